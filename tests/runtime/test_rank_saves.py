"""Saves without torch: whole or not at all, on one rank and on several."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gangline.model.errors import Conflict, NotFound, Rejected, Unavailable
from gangline.runtime.checkpoint import load_checkpoint, save_checkpoint
from gangline.runtime.info import cluster_info
from gangline.runtime.link import supervisor
from gangline.runtime.versions import new_version, path_of, resume_path
from gangline.volumes.publish import read_manifest


def test_json_state_of_four_ranks_is_one_version(supervise, template, tmp_path: Path) -> None:
    fake = supervise(4)
    ran = template.run("json_state", fake, 4, tmp_path / "save")
    assert ran.exits == [0] * 4
    [save] = fake.saves
    assert all(r == ran.results[0] for r in ran.results)
    assert ran.results[0] | {} == {"volume": "sft", "version": 1, "step": 1, "metrics": {"loss": 2.5},
                                   "manifest_sha256": save.sha256}
    assert fake.verify(save) == []
    fake.resume["/ckpt"] = save
    assert template.run("json_resume", fake, 4, tmp_path / "load").results == [
        {"step": 1, "seen": rank * 10} for rank in range(4)]


def test_files_of_four_ranks_lie_in_a_folder_each(supervise, template, tmp_path: Path) -> None:
    fake = supervise(4)
    ran = template.run("plain_files", fake, 4, tmp_path / "files")
    assert ran.exits == [0] * 4
    [save] = fake.saves
    assert fake.verify(save) == []
    manifest = read_manifest(fake.root("/ckpt"), save.directory)
    assert [f.path for f in manifest.files] == ["rank-0/part.txt", "rank-2/part.txt"]
    assert (manifest.format, manifest.step, manifest.extra) == ("files", 4, {"world_size": 4})


def test_a_missing_rank_is_named_and_nothing_is_published(supervise, template, tmp_path: Path) -> None:
    fake = supervise(3, hold_s=0.05)
    ran = template.run("one_rank_does_not_save", fake, 3, tmp_path / "r")
    assert [r.get("kind") for r in ran.results] == ["unavailable", None, "unavailable"]
    assert "have not reported: 1" in ran.results[0]["message"]
    assert fake.saves[0].published is None
    assert not (fake.root("/ckpt") / fake.saves[0].directory / "manifest.json").exists()


def test_a_step_is_saved_once_per_attempt_and_mount(supervise, be_rank) -> None:
    fake = supervise(1, {"/a": "one", "/b": "two"})
    be_rank(fake)
    assert save_checkpoint({"i": 1}, step=1, mount="/a").uri == "one@1"
    assert save_checkpoint({"i": 1}, step=1, mount="/b").uri == "two@1"
    with pytest.raises(Rejected, match="has already saved step-1 to /a"):
        save_checkpoint({"i": 2}, step=1, mount="/a")
    assert save_checkpoint({"i": 2}, step=2, mount="/a").uri == "one@2"


def test_a_report_may_be_repeated(supervise, be_rank) -> None:
    fake = supervise(1)
    be_rank(fake)
    save_checkpoint({"i": 1}, step=1)
    link, report = supervisor(), fake.saves[0].reports[0]
    assert link is not None
    again = link.request("report_save", **{k: report[k] for k in ("save", "files", "format")})
    assert again["published"] == 1
    assert fake.verify(fake.saves[0]) == []


def test_a_save_that_was_given_up_says_why(supervise, be_rank) -> None:
    fake = supervise(2)
    be_rank(fake, 0)
    with fake.changed:
        fake._open_save({"mount": "/ckpt", "key": "step-1", "step": 1})
        fake.saves[0].error = "the attempt has ended"
    with pytest.raises(Conflict, match="the attempt has ended"):
        save_checkpoint({"i": 1}, step=1)


def test_which_mount_is_asked_when_there_are_several(supervise, be_rank) -> None:
    be_rank(supervise(1, {"/a": "one", "/b": "two"}))
    with pytest.raises(Rejected, match="the gang mounts /a, /b"):
        save_checkpoint({}, step=1)
    with pytest.raises(Rejected, match="'/c' is not mounted"):
        resume_path("/c")


def test_without_a_mount_the_fix_is_told(supervise, be_rank) -> None:
    be_rank(supervise(1, {}))
    with pytest.raises(Rejected, match="add volumes:"):
        save_checkpoint({}, step=1)


@pytest.mark.parametrize(("state", "extra", "field"), [
    ({"ok": 1, "odd": object()}, None, "state"), ({"x": float("nan")}, None, "state"),
    ({"i": 1}, {"when": object()}, "extra")])
def test_what_cannot_be_kept_is_refused_before_a_save_opens(supervise, be_rank, state, extra, field) -> None:
    fake = supervise(1)
    be_rank(fake)
    with pytest.raises(Rejected) as raised:
        save_checkpoint(state, step=1, extra=extra)
    assert raised.value.field == field
    assert fake.saves == []


def test_metrics_that_are_not_finite_do_not_lose_the_checkpoint(supervise, be_rank) -> None:
    fake = supervise(1)
    be_rank(fake)
    ref = save_checkpoint({"i": 1}, step=1, metrics={"loss": float("nan"), "lr": 0.1})
    assert ref.metrics == {"lr": 0.1}
    manifest = read_manifest(fake.root("/ckpt"), fake.saves[0].directory)
    assert manifest.extra["non_finite_metrics"] == {"loss": "nan"}


def test_a_process_below_a_launcher_of_the_users_is_told(supervise, be_rank, monkeypatch) -> None:
    be_rank(supervise(2))
    monkeypatch.setenv("WORLD_SIZE", "16")
    assert cluster_info().world_size == 16
    with pytest.raises(Rejected, match="let Gangline start the ranks"):
        save_checkpoint({"i": 1}, step=1)


def test_state_is_filled_in_place_and_must_fit(supervise, be_rank) -> None:
    fake = supervise(1)
    be_rank(fake)
    assert load_checkpoint({"i": 0}) is None
    save_checkpoint({"i": 5, "seen": [1]}, step=9)
    fake.resume["/ckpt"] = fake.saves[0]
    be_rank(fake, name="resumed")
    partial, empty = {"i": 0}, {}
    assert load_checkpoint(partial) == load_checkpoint(empty, version=1) == 9
    assert (partial, empty) == ({"i": 5}, {"i": 5, "seen": [1]})
    with pytest.raises(Rejected, match="has no 'other'"):
        load_checkpoint({"other": 0})
    with pytest.raises(Rejected, match="from: sft@4"):
        load_checkpoint({}, version=4)


def test_plain_files_of_one_rank(supervise, be_rank) -> None:
    fake = supervise(1)
    be_rank(fake)
    with new_version(step=2, metrics={"acc": 1}, extra={"k": "v"}) as path:
        (path / "deep").mkdir()
        (path / "deep" / "model.json").write_text("{}")
    assert path.version is not None
    assert (path.version.uri, path.version.step, path.version.metrics) == ("sft@1", 2, {"acc": 1.0})
    assert fake.verify(fake.saves[0]) == []
    with new_version(mount="/ckpt") as second:
        pass
    assert second.version is not None
    assert second.version.uri == "sft@2"

    fake.resume["/ckpt"] = fake.saves[0]
    be_rank(fake, name="resumed")
    assert resume_path() == resume_path("/ckpt") == path
    assert path_of(cluster_info().volumes["/ckpt"], fake.saves[0].directory) == path
    with pytest.raises(Rejected, match="not a checkpoint"):
        load_checkpoint({"i": 0})


def test_an_exception_publishes_nothing_and_keeps_the_last_version(supervise, be_rank) -> None:
    fake = supervise(1)
    be_rank(fake)
    with new_version() as good:
        (good / "a").write_text("a")
    unpublished = new_version()
    with pytest.raises(FileNotFoundError), unpublished as bad:
        (bad / "no such folder" / "a").write_text("b")
    assert bad.version is None
    assert [s.published for s in fake.saves] == [1, None]
    assert fake.verify(fake.saves[0]) == []
    assert not (bad / "manifest.json").exists()


@pytest.mark.parametrize("spoil", [lambda p: (p / "x").symlink_to("/etc/hostname"),
                                   lambda p: os.mkfifo(p / "x"),
                                   lambda p: (p / "manifest.json").write_text("{}")])
def test_files_that_cannot_be_versioned_are_refused(supervise, be_rank, spoil) -> None:
    fake = supervise(1)
    be_rank(fake)
    with pytest.raises(Rejected), new_version() as path:
        spoil(path)
    assert fake.saves[0].published is None


def test_a_supervisor_that_is_gone_is_unavailable(supervise, be_rank, monkeypatch) -> None:
    fake = supervise(1)
    be_rank(fake)
    monkeypatch.setenv("GANGLINE_SUPERVISOR", str(fake.home / "gone"))
    with pytest.raises(Unavailable):
        save_checkpoint({"i": 1}, step=1)
    be_rank(fake)
    assert save_checkpoint({"i": 1}, step=1).version == 1  # it was not the step's fault


def test_a_version_whose_manifest_is_gone_is_not_guessed(supervise, be_rank) -> None:
    fake = supervise(1)
    be_rank(fake)
    save_checkpoint({"i": 5}, step=9)
    fake.resume["/ckpt"] = fake.saves[0]
    be_rank(fake, name="resumed")
    path = resume_path()
    assert path is not None
    (path / "manifest.json").unlink()
    with pytest.raises(NotFound):
        load_checkpoint({"i": 0})
