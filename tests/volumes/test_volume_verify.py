"""Nothing damaged, swapped or hostile passes for the version that was recorded."""

from __future__ import annotations

import json
import os
import pickle
import random
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from gangline.volumes.layout import make_version
from gangline.volumes.publish import manifest_sha256, put_manifest, read_manifest
from gangline.volumes.verify import verify


def test_an_intact_version_has_no_problems(version) -> None:
    assert version.problems() == []
    assert verify(version.root, version.directory.removeprefix("versions/"), version.sha256) == []
    assert read_manifest(version.root, version.directory).total_bytes == 1_370_900


def test_files_the_manifest_does_not_list_are_ignored(version) -> None:
    (version.path / "notes.txt").write_text("mine")
    assert version.problems() == []


def test_forty_of_forty_random_corruptions_are_found(version) -> None:
    rng = random.Random()
    targets = [p for p in version.path.rglob("*") if p.is_file() and p.stat().st_size > 8]
    found = 0
    for _ in range(40):
        target = rng.choice(targets)
        good = target.read_bytes()
        at = rng.randrange(len(good) - 8)
        bad = bytes(b ^ rng.randrange(1, 256) for b in good[at:at + 8])
        target.write_bytes(good[:at] + bad + good[at + 8:])
        problems = version.problems()
        found += len(problems) == 1 and target.name in problems[0]
        target.write_bytes(good)
    assert found == 40
    assert version.problems() == []


def test_a_single_flipped_bit_is_found(version) -> None:
    target = version.path / "a.bin"
    data = bytearray(target.read_bytes())
    data[35_000] ^= 1
    target.write_bytes(data)
    [problem] = version.problems()
    assert problem.startswith("'a.bin': SHA-256 is ")


@pytest.mark.parametrize("change", [-1, 1])
def test_a_wrong_size_is_told_as_such(version, change: int) -> None:
    os.truncate(version.path / "a.bin", 70_000 + change)
    assert version.problems() == [f"'a.bin': has {70_000 + change} bytes, not 70000"]


def test_every_missing_file_is_named(version) -> None:
    (version.path / "a.bin").unlink()
    (version.path / "empty").unlink()
    assert sorted(version.problems()) == [
        "'a.bin': No such file or directory", "'empty': No such file or directory"]


def test_a_missing_or_altered_manifest_is_a_problem(version) -> None:
    manifest = version.path / "manifest.json"
    text = manifest.read_text()
    manifest.write_text(text.replace('"attempt":1', '"attempt":2'))
    assert "the record says" in version.problems()[0]
    manifest.unlink()
    assert "does not exist" in version.problems()[0]


def _swap_file(version) -> None:
    (version.path / "a.bin").rename(version.root / "aside")
    (version.path / "a.bin").symlink_to(version.root / "aside")


def _swap_folder(version) -> None:
    (version.path / "deep").rename(version.root / "aside")
    (version.path / "deep").symlink_to(version.root / "aside")


def _swap_version(version) -> None:
    version.path.rename(version.root / "aside")
    version.path.symlink_to(version.root / "aside")


def _swap_versions(version) -> None:
    (version.root / "versions").rename(version.root / "aside")
    (version.root / "versions").symlink_to(version.root / "aside")


def _swap_manifest(version) -> None:
    (version.path / "manifest.json").rename(version.root / "aside")
    (version.path / "manifest.json").symlink_to(version.root / "aside")


@pytest.mark.parametrize("swap", [_swap_file, _swap_folder, _swap_version, _swap_versions, _swap_manifest])
def test_a_link_is_refused_even_to_the_right_bytes(version, swap: Callable[..., None]) -> None:
    swap(version)
    assert len(version.problems()) == 1


@pytest.mark.parametrize("put", [os.mkfifo, os.mkdir])
def test_what_is_not_a_file_is_told_without_hanging(version, put: Callable[[Path], None]) -> None:
    (version.path / "empty").unlink()
    put(version.path / "empty")
    assert version.problems() == ["'empty': is not a regular file"]


@pytest.mark.parametrize("path", ["../secret", "/etc/hostname", "a/../../secret", "./a", "", "..", "a//b",
                                  "x\0y"])
def test_a_hostile_path_in_a_manifest_is_refused(tmp_path: Path, path: str) -> None:
    (tmp_path / "versions").mkdir(parents=True)
    (tmp_path / "versions" / "secret").write_text("s")
    make_version(tmp_path, "x")
    text = json.dumps({
        "schema_version": 1, "volume": "v", "directory": "x", "format": "files", "world_size": 1, "gang": "g",
        "attempt": 1, "slot": "s", "digest": "d", "created_ms": 0,
        "files": [{"path": path, "bytes": 1, "sha256": "0" * 64}]})
    put_manifest(tmp_path, "x", text)
    [problem] = verify(tmp_path, "x", manifest_sha256(text))
    assert "is not a plain relative path" in problem


@pytest.mark.parametrize("text", ["", "[]", "{", '{"schema_version": 2}', "[" * 100_000, "\ud7ff"])
def test_a_manifest_that_is_none_is_a_problem(tmp_path: Path, text: str) -> None:
    make_version(tmp_path, "x")
    put_manifest(tmp_path, "x", text)
    assert verify(tmp_path, "x", manifest_sha256(text))[0].startswith("manifest.json: ")


def test_a_manifest_of_another_directory_is_a_problem(version) -> None:
    text = (version.path / "manifest.json").read_text()
    version.path.rename(version.root / "versions" / "other")
    assert verify(version.root, "other", manifest_sha256(text)) == [
        "manifest.json: describes 'versions/g-aaaaaaaaaaaa-1-x', not 'other'"]


class _Bomb:
    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (self.path,)


def test_a_hostile_pickle_is_hashed_and_never_loaded(tmp_path: Path, publish) -> None:
    bomb = pickle.dumps(_Bomb(tmp_path / "exploded"))
    version = publish({".metadata": bomb, "__0_0.distcp": b"x"})
    assert version.problems() == []
    (version.path / ".metadata").write_bytes(bomb + b".")
    assert len(version.problems()) == 1
    assert not (tmp_path / "exploded").exists()


def test_a_large_file_is_read_in_bounded_memory(publish) -> None:
    version = publish({f"{i}.bin": b"\0" * (24 << 20) for i in range(2)})
    tracemalloc.start()
    try:
        assert version.problems() == []
        assert tracemalloc.get_traced_memory()[1] < 6 << 20
    finally:
        tracemalloc.stop()
