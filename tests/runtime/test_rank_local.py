"""A function runs unchanged outside any gang, with versions in a directory of its own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gangline.model.errors import NotFound, Unavailable
from gangline.runtime.checkpoint import load_checkpoint, save_checkpoint
from gangline.runtime.versions import new_version, resume_path


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GANGLINE_LOCAL_VOLUMES", str(tmp_path))
    return tmp_path


def test_versions_are_numbered_and_read_back(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert save_checkpoint({"i": 1}, step=10).uri == "default@1"
    assert save_checkpoint({"i": 2}, step=10, metrics={"loss": 1}).uri == "default@2"
    assert save_checkpoint({"i": 3}, step=1, mount="/a/ckpt").uri == "a.ckpt@1"
    assert sorted(os.listdir(home)) == ["a.ckpt", "default"]
    state = {"i": 0}
    assert load_checkpoint(state) is None  # a new run starts afresh
    assert load_checkpoint(state, version=1) == 10
    assert state == {"i": 1}
    monkeypatch.setenv("GANGLINE_LOCAL_RESUME", "1")
    assert load_checkpoint(state) == 10
    assert state == {"i": 2}
    with pytest.raises(NotFound):
        load_checkpoint(state, version=7)


def test_a_damaged_version_is_passed_over(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GANGLINE_LOCAL_RESUME", "1")
    assert resume_path() is None
    with new_version() as first:
        (first / "f").write_text("one")
    with new_version() as second:
        (second / "f").write_text("two")
    assert resume_path() == second
    (second / "f").write_text("ten")
    assert resume_path() == first
    with pytest.raises(Unavailable, match="is damaged: 'f'"):
        load_checkpoint({}, version=2)


def test_without_the_variable_it_is_the_working_directory(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.delenv("GANGLINE_LOCAL_VOLUMES")
    monkeypatch.chdir(tmp_path)
    save_checkpoint({"i": 1}, step=1)
    assert (tmp_path / ".gangline-local" / "default" / "commits" / "1.json").exists()
