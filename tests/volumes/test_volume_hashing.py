"""Hashes taken while writing are those of the bytes on disk."""

from __future__ import annotations

import hashlib
import os
import random
from pathlib import Path

import pytest

from gangline.volumes.hashing import OVERLAP_BYTES, HashingWriter, hash_file, seal_tree


def test_pieces_of_any_size_are_hashed_in_order(tmp_path: Path) -> None:
    rng = random.Random()
    sizes = [0, 1, 4096, OVERLAP_BYTES - 1, OVERLAP_BYTES, 3 * OVERLAP_BYTES + 5, 17]
    rng.shuffle(sizes)
    whole = b""
    with HashingWriter(tmp_path / "f") as file:
        for size in sizes:
            piece = bytearray(rng.randbytes(size))
            whole += piece
            file.write(piece)
            piece[:] = b"\0" * size  # the writer must be done with the caller's buffer
        assert file.tell() == len(whole)
    entry = file.entry("f")
    assert (tmp_path / "f").read_bytes() == whole
    assert (entry.bytes, entry.sha256) == (len(whole), hashlib.sha256(whole).hexdigest())
    assert hash_file(tmp_path / "f") == (entry.bytes, entry.sha256)


def test_a_file_that_exists_is_never_overwritten(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("old")
    with pytest.raises(FileExistsError):
        HashingWriter(tmp_path / "f")
    assert (tmp_path / "f").read_text() == "old"


def test_a_failure_inside_the_block_closes_the_file(tmp_path: Path) -> None:
    file = HashingWriter(tmp_path / "f")
    file.write(b"x" * 2 * OVERLAP_BYTES)
    with pytest.raises(TypeError), file:
        file.write("text")
    assert file.closed


def test_a_disk_that_is_full_is_told(tmp_path: Path) -> None:
    if not os.access("/dev/full", os.W_OK):
        pytest.skip("/dev/full is not here")
    file = HashingWriter(tmp_path / "f")
    os.dup2(full := os.open("/dev/full", os.O_WRONLY), file._file.fileno())
    os.close(full)
    file.write(b"x")
    with pytest.raises(OSError, match="No space left"):
        file.close()
    assert file.closed


def test_a_tree_is_sealed_with_paths_relative_to_its_version(tmp_path: Path) -> None:
    (tmp_path / "rank-0" / "deep").mkdir(parents=True)
    (tmp_path / "rank-0" / "deep" / "b").write_bytes(b"bb")
    (tmp_path / "rank-0" / "a").write_bytes(b"")
    (tmp_path / "other").write_bytes(b"")
    entries = seal_tree(tmp_path, tmp_path / "rank-0")
    assert [(e.path, e.bytes) for e in entries] == [("rank-0/a", 0), ("rank-0/deep/b", 2)]


@pytest.mark.parametrize("make", [lambda p: p.symlink_to("/etc/hostname"), lambda p: p.symlink_to("/etc"),
                                  lambda p: os.mkfifo(p)])
def test_a_tree_with_links_or_special_files_is_refused(tmp_path: Path, make) -> None:
    make(tmp_path / "x")
    with pytest.raises(ValueError, match="plain files only"):
        seal_tree(tmp_path, tmp_path)
