"""Only our own, old, unneeded directories are removed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gangline.model.errors import Rejected
from gangline.volumes.abandoned import abandoned, remove_abandoned
from gangline.volumes.layout import make_version

HOUR_MS = 3_600_000
NOW_MS = 1_900_000_000_000
OLD, KEPT, YOUNG, THEIRS = "g-abcdefghij23-1-a", "g-abcdefghij23-1-b", "g-abcdefghij23-2-c", "my-data"


def _touch(path: Path, at_ms: int) -> None:
    os.utime(path, (at_ms / 1000, at_ms / 1000), follow_symlinks=False)


def test_ours_old_and_unneeded_goes_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "precious").write_text("p")
    for name in (OLD, KEPT, YOUNG, THEIRS):
        path = make_version(tmp_path, name)
        (path / "f").write_text("x")
        _touch(path / "f", NOW_MS - (HOUR_MS if name != YOUNG else 0))
    (tmp_path / "versions" / OLD / "link").symlink_to(tmp_path / "outside")
    _touch(tmp_path / "versions" / OLD / "link", NOW_MS - HOUR_MS)
    (tmp_path / "versions" / "g-abcdefghij23-3-d").symlink_to(tmp_path / "outside")
    for name in (OLD, KEPT, YOUNG, THEIRS):
        _touch(tmp_path / "versions" / name, NOW_MS - HOUR_MS)

    assert abandoned(tmp_path, {f"versions/{KEPT}"}, HOUR_MS, NOW_MS) == [OLD]
    remove_abandoned(tmp_path, OLD)
    assert abandoned(tmp_path, {f"versions/{KEPT}"}, HOUR_MS, NOW_MS) == []
    assert sorted(os.listdir(tmp_path / "versions")) == sorted([KEPT, YOUNG, "g-abcdefghij23-3-d", THEIRS])
    assert (tmp_path / "outside" / "precious").read_text() == "p"


def test_a_link_or_foreign_name_is_not_removed(tmp_path: Path) -> None:
    make_version(tmp_path, THEIRS)
    (tmp_path / "outside").mkdir()
    (tmp_path / "versions" / OLD).symlink_to(tmp_path / "outside")
    with pytest.raises(Rejected):
        remove_abandoned(tmp_path, THEIRS)
    with pytest.raises(Rejected):
        remove_abandoned(tmp_path, "../outside")
    with pytest.raises(OSError, match="symbolic link"):
        remove_abandoned(tmp_path, OLD)
    assert (tmp_path / "outside").is_dir()


def test_a_volume_without_versions_has_nothing_abandoned(tmp_path: Path) -> None:
    assert abandoned(tmp_path, set(), 0, NOW_MS) == []
