"""Checkpoints of several torch ranks: whole, verified, redistributed, and never a mixture."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

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


def test_two_ranks_save_and_four_resume(supervise, torch_template, tmp_path: Path) -> None:
    fake = supervise(2)
    torch_template.run("dcp_save", fake, 2, tmp_path / "save", store=str(tmp_path / "store-2"))
    fake.resume["/ckpt"] = fake.saves[0]
    fake.world_size = 4
    loaded = torch_template.run("dcp_load", fake, 4, tmp_path / "load", store=str(tmp_path / "store-4"))
    assert loaded.results == [
        {"step": 7, "equal": True, "epoch": 3, "note": "x", "local_rows": 4, "world": 4}] * 4


def test_a_stop_that_one_rank_hears_is_seen_by_all_at_the_same_step(supervise, torch_template,
                                                                   tmp_path: Path) -> None:
    fake = supervise(4)
    ran = torch_template.run("stops_and_saves", fake, 4, tmp_path / "r", store=str(tmp_path / "s"), victim=2)
    assert ran.exits == [0] * 4
    [save] = fake.saves
    assert save.published == 1
    assert ran.results == [{"saved": save.step, "again": True}] * 4
    assert sorted(path.name for path in fake.home.glob("*.stopped")) == [f"rank-{r}.stopped" for r in range(4)]


def test_workers_of_torchrun_are_spoken_for_by_one_per_node(supervise, torch_template,
                                                            tmp_path: Path) -> None:
    fake = supervise(2)  # one rank, torchrun, on each of two nodes; four workers below
    nodes = [fake.info(f"node-{n}", node_rank=n) for n in range(2)]
    ranks = [nodes[r // 2] | {"RANK": str(r), "WORLD_SIZE": "4", "LOCAL_RANK": str(r % 2)} for r in range(4)]
    ran = torch_template.run_as("dcp_save", ranks, tmp_path / "save", store=str(tmp_path / "s"))
    assert ran.exits == [0] * 4
    assert all(r == ran.results[0] for r in ran.results)
    [save] = fake.saves
    assert {r: sorted(f["path"] for f in report["files"]) for r, report in save.reports.items()} == {
        0: [".metadata", "__0_0.distcp", "__1_0.distcp"], 1: ["__2_0.distcp", "__3_0.distcp"]}
    assert fake.verify(save) == []


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


def _alone(tmp_path: Path) -> list[dict[str, str]]:
    return [{"GANGLINE_INFO": "", "GANGLINE_LOCAL_VOLUMES": str(tmp_path)}]


def test_files_are_hashed_as_they_lie_on_disk(torch_template, tmp_path: Path) -> None:
    ran = torch_template.run_as("dcp_alone", _alone(tmp_path), tmp_path / "r", directory=str(tmp_path / "v"))
    [result] = ran.results
    assert [name for name, *_ in result["entries"]] == [".metadata", "__0_0.distcp"]
    for name, size_bytes, sha256 in result["entries"]:
        assert hash_file(tmp_path / "v" / name) == (size_bytes, sha256)
    assert result["back"] == {"equal": True, "n": 5, "none": None}


@pytest.mark.parametrize("given", ["objects", "state_dicts", "nothing"])
def test_a_new_optimizer_receives_its_moments(torch_template, tmp_path: Path, given: str) -> None:
    ran = torch_template.run_as("optimizer_alone", _alone(tmp_path), tmp_path / "r", given=given)
    assert ran.results == [{"step": 5, "weight": True, "param_groups": True, "keys": [0, 1], "moments": True,
                            "order": [[3, "c"], [4, "d"]]}]


def test_state_that_does_not_fit_is_refused(torch_template, tmp_path: Path) -> None:
    ran = torch_template.run_as("unfit_alone", _alone(tmp_path), tmp_path / "r",
                                directory=str(tmp_path / "v"))
    assert [r["kind"] for r in ran.results[0]] == ["rejected"] * 2
    assert all("does not fit this state" in r["message"] for r in ran.results[0])
