"""A manifest is put once, whole, whoever races or dies."""

from __future__ import annotations

import multiprocessing
import os
import signal
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest

from gangline.model.errors import Conflict, NotFound, Rejected
from gangline.volumes.layout import make_version, version_name, version_path
from gangline.volumes.publish import put_manifest, read_manifest_text

RACERS = 8
fork = multiprocessing.get_context("fork")


def test_the_same_text_again_is_fine_and_another_is_a_conflict(tmp_path: Path) -> None:
    make_version(tmp_path, "x")
    put_manifest(tmp_path, "versions/x", "one")
    put_manifest(tmp_path, "x", "one")
    with pytest.raises(Conflict, match="already has another manifest"):
        put_manifest(tmp_path, "x", "two")
    assert read_manifest_text(tmp_path, "x") == "one"
    assert os.listdir(tmp_path / "versions" / "x") == ["manifest.json"]


def test_a_directory_that_is_not_there_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        put_manifest(tmp_path, "x", "one")
    make_version(tmp_path, "x")
    with pytest.raises(NotFound):
        read_manifest_text(tmp_path, "x")


def test_a_linked_directory_or_manifest_is_not_written_through(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "versions").mkdir()
    (tmp_path / "versions" / "x").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Rejected):
        put_manifest(tmp_path, "x", "one")
    path = make_version(tmp_path, "y")
    (path / "manifest.json").symlink_to(tmp_path / "elsewhere" / "m")
    with pytest.raises(Rejected):
        put_manifest(tmp_path, "y", "one")
    assert os.listdir(tmp_path / "elsewhere") == []
    assert os.listdir(path) == ["manifest.json"]


@pytest.mark.parametrize("directory", ["../x", "versions/../x", "/x", "versions/x/y", "", ".", "..",
                                       "x\0", "-x"])
def test_only_a_directory_of_versions_is_named(directory: str) -> None:
    with pytest.raises(Rejected):
        version_name(directory)


def _race(root: Path, barrier: Barrier, number: int) -> None:
    text = f"{number}" * 40_000
    barrier.wait(20)
    try:
        put_manifest(root, "x", text)
    except Conflict:
        os._exit(3)
    os._exit(0)


def test_of_eight_racing_processes_one_wins_whole(tmp_path: Path) -> None:
    make_version(tmp_path, "x")
    for _ in range(5):
        barrier = fork.Barrier(RACERS)
        racers = [fork.Process(target=_race, args=(tmp_path, barrier, n)) for n in range(RACERS)]
        for racer in racers:
            racer.start()
        for racer in racers:
            racer.join(30)
        codes = [racer.exitcode for racer in racers]
        assert sorted(codes) == [0] + [3] * (RACERS - 1)
        assert read_manifest_text(tmp_path, "x") == str(codes.index(0)) * 40_000
        (version_path(tmp_path, "x") / "manifest.json").unlink()


def _die_before_link(root: Path) -> None:
    os.link = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[assignment]
    put_manifest(root, "x", "never")


def test_killed_before_the_link_nothing_is_published(tmp_path: Path) -> None:
    make_version(tmp_path, "x")
    victim = fork.Process(target=_die_before_link, args=(tmp_path,))
    victim.start()
    victim.join(30)
    assert victim.exitcode == -signal.SIGKILL
    with pytest.raises(NotFound):
        read_manifest_text(tmp_path, "x")
    put_manifest(tmp_path, "x", "later")
    assert read_manifest_text(tmp_path, "x") == "later"
