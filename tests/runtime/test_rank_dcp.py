"""Checkpoints of several torch ranks: whole, verified, redistributed, and never a mixture."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gangline.model.errors import Rejected
from gangline.runtime.checkpoint import load_checkpoint, read_dcp, save_checkpoint, write_dcp
from gangline.volumes.hashing import hash_file
from gangline.volumes.publish import read_manifest

pytestmark = pytest.mark.torch


def test_four_ranks_save_and_two_resume(supervise, torch_template, tmp_path: Path) -> None:
    fake = supervise(4)
    ran = torch_template.run("dcp_save", fake, 4, tmp_path / "save", store=str(tmp_path / "store-4"))
    assert ran.exits == [0] * 4
    [save] = fake.saves
    assert all(r == ran.results[0] for r in ran.results)
    assert ran.results[0]["manifest_sha256"] == save.sha256
    assert fake.verify(save) == []

    manifest = read_manifest(fake.root("/ckpt"), save.directory)
    assert (manifest.format, manifest.step, manifest.extra["at"]) == ("dcp", 7, [1, 2])
    on_disk = sorted(os.listdir(fake.root("/ckpt") / save.directory))
    assert on_disk == [".metadata", *(f"__{r}_0.distcp" for r in range(4)), "manifest.json"]
    by_rank = [sorted(f["path"] for f in save.reports[r]["files"]) for r in range(4)]
    assert by_rank == [[".metadata", "__0_0.distcp"], *([f"__{r}_0.distcp"] for r in (1, 2, 3))]

    fake.resume["/ckpt"] = save
    fake.world_size = 2
    loaded = torch_template.run("dcp_load", fake, 2, tmp_path / "load", store=str(tmp_path / "store-2"))
    assert loaded.results == [
        {"step": 7, "equal": True, "epoch": 3, "note": "x", "local_rows": 8, "world": 2}] * 2


def test_a_rank_killed_while_saving_leaves_the_last_version_whole(supervise, torch_template,
                                                                   tmp_path: Path) -> None:
    fake = supervise(4)
    torch_template.run("dcp_save", fake, 4, tmp_path / "one", store=str(tmp_path / "s1"))
    ran = torch_template.run("dcp_killed", fake, 4, tmp_path / "two", store=str(tmp_path / "s2"), victim=2)
    assert ran.exits[2] == -9
    good, torn = fake.saves
    assert torn.published is None
    assert fake.verify(good) == []
    assert "manifest.json" not in os.listdir(fake.root("/ckpt") / torn.directory)
    fake.resume["/ckpt"] = good
    loaded = torch_template.run("dcp_load", fake, 4, tmp_path / "load", store=str(tmp_path / "s3"))
    assert [r["equal"] for r in loaded.results] == [True] * 4


def test_a_full_disk_on_one_rank_is_told_by_all(supervise, torch_template, tmp_path: Path) -> None:
    fake = supervise(2)
    ran = torch_template.run("dcp_disk_full", fake, 2, tmp_path / "r", store=str(tmp_path / "s"), victim=1)
    assert [r["kind"] for r in ran.results] == ["unavailable"] * 2
    assert all("rank 1" in r["message"] and "No space left" in r["message"] for r in ran.results)
    assert fake.saves[0].published is None


def test_ranks_that_disagree_are_refused_on_all(supervise, torch_template, tmp_path: Path) -> None:
    fake = supervise(2)
    ran = torch_template.run("dcp_steps_differ", fake, 2, tmp_path / "r", store=str(tmp_path / "s"))
    assert [(r["kind"], r["field"]) for r in ran.results] == [("rejected", "step")] * 2


def test_a_rank_that_cannot_open_stops_all(supervise, torch_template, tmp_path: Path) -> None:
    fake = supervise(2)
    ran = torch_template.run("dcp_one_cannot_open", fake, 2, tmp_path / "r", store=str(tmp_path / "s"))
    assert [r["kind"] for r in ran.results] == ["conflict", "unavailable"]
    assert "rank 1 failed" in ran.results[0]["message"]


def test_a_checkpoint_is_never_written_over_another(supervise, torch_template, tmp_path: Path) -> None:
    fake, directory = supervise(2), tmp_path / "d"
    directory.mkdir()
    ran = torch_template.run("dcp_twice_into_one_directory", fake, 2, tmp_path / "r",
                             store=str(tmp_path / "s"), directory=str(directory))
    assert all("already exists" in r["message"] for r in ran.results)


def test_tensors_on_several_ranks_need_a_process_group(supervise, torch_template, tmp_path: Path) -> None:
    fake = supervise(2)
    ran = torch_template.run("tensors_without_group", fake, 2, tmp_path / "r")
    assert all("init_process_group" in r["fix"] for r in ran.results)
    assert fake.saves == []


def test_files_are_hashed_as_they_lie_on_disk(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    state = {"big": torch.rand(700_000), "small": torch.rand(3), "n": 5, "none": None}
    entries = write_dcp(state, tmp_path / "v", 0, 1)
    assert [e.path for e in entries] == [".metadata", "__0_0.distcp"]
    for entry in entries:
        assert hash_file(tmp_path / "v" / entry.path) == (entry.bytes, entry.sha256)
    back = {"big": torch.zeros(700_000), "small": torch.zeros(3), "n": 0, "none": 1}
    read_dcp(back, tmp_path / "v")
    assert torch.equal(back["big"], state["big"])
    assert (back["n"], back["none"]) == (5, None)


@pytest.mark.parametrize("given", ["objects", "state_dicts", "nothing"])
def test_a_new_optimizer_receives_its_moments(tmp_path: Path, monkeypatch, given: str) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.setenv("GANGLINE_LOCAL_VOLUMES", str(tmp_path))

    def fresh():
        model = torch.nn.Linear(4, 4)
        return model, torch.optim.AdamW(model.parameters(), lr=0.1)

    model, optimizer = fresh()
    model(torch.ones(4)).sum().backward()
    optimizer.step()
    optimizer.param_groups[0]["lr"] = 0.02
    save_checkpoint({"model": model, "optimizer": optimizer, "order": {3: "c", 4: "d"}}, step=5)

    other, momentless = fresh()
    state = {"objects": {"model": other, "optimizer": momentless, "order": {3: "", 4: ""}},
             "state_dicts": {"model": other.state_dict(), "optimizer": momentless.state_dict(), "order": {}},
             "nothing": {}}[given]
    assert load_checkpoint(state, version=1) == 5
    if given != "objects":
        other.load_state_dict(state["model"])
        momentless.load_state_dict(state["optimizer"])
    assert torch.equal(other.weight, model.weight)
    got, want = momentless.state_dict(), optimizer.state_dict()
    assert got["param_groups"] == want["param_groups"]
    assert list(got["state"]) == [0, 1]
    assert all(torch.equal(got["state"][i][k], want["state"][i][k]) for i in (0, 1) for k in want["state"][i])
    assert state["order"] == {3: "c", 4: "d"}


@pytest.mark.parametrize("wrong", ["key", "shape"])
def test_state_that_does_not_fit_is_refused(tmp_path: Path, wrong: str) -> None:
    torch = pytest.importorskip("torch")
    write_dcp({"w": torch.ones(3)}, tmp_path / "v", 0, 1)
    with pytest.raises(Rejected, match="does not fit this state"):
        read_dcp({"v": torch.ones(3)} if wrong == "key" else {"w": torch.ones(4)}, tmp_path / "v")
