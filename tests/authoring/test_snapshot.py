from __future__ import annotations

import json
import os
import subprocess
import tarfile
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gangline.client import snapshot as snapshot_module
from gangline.client import tree
from gangline.client.snapshot import Snapshot, take_snapshot
from gangline.model.errors import Rejected


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "code"
    (root / "pkg").mkdir(parents=True)
    (root / "train.py").write_text("import pkg\n")
    (root / "pkg" / "__init__.py").write_text("")
    (root / "run.sh").write_text("#!/bin/sh\n")
    (root / "run.sh").chmod(0o750)
    return root


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def names(made: Snapshot) -> list[str]:
    with tarfile.open(made.archive) as tar:
        return tar.getnames()


def settle(root: Path) -> None:
    """Let the clock that stamps files move on, as it has long before most submissions."""
    newest = max(p.lstat().st_ctime_ns for p in root.rglob("*"))
    while time.time_ns() < newest + 150_000_000:
        time.sleep(0.01)


def git(root: Path, *words: str) -> None:
    subprocess.run(["git", "-C", str(root), "-c", "user.name=t", "-c", "user.email=t@t", *words],
                   check=True, capture_output=True)


def test_the_same_files_give_the_same_archive_anywhere(root: Path, tmp_path: Path, cache: Path) -> None:
    first = take_snapshot(root, cache)
    copy = tmp_path / "elsewhere"
    copy.mkdir()
    for path in sorted(root.rglob("*"), reverse=True):
        if path.is_file():
            target = copy / path.relative_to(root)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(path.read_bytes())
            target.chmod(0o777 if path.name == "run.sh" else 0o600)
            os.utime(target, (1, 1))
    assert take_snapshot(copy, cache).sha256 == first.sha256
    assert names(first) == ["pkg/__init__.py", "run.sh", "train.py"]
    with tarfile.open(first.archive) as tar:
        assert {(m.mtime, m.uid, m.uname) for m in tar} == {(0, 0, "")}
        assert [oct(m.mode) for m in tar] == ["0o644", "0o755", "0o644"]


def test_content_mode_and_names_all_count(root: Path, cache: Path) -> None:
    seen = {take_snapshot(root, cache).sha256}
    (root / "train.py").write_text("import pkg #\n")
    seen.add(take_snapshot(root, cache).sha256)
    (root / "train.py").chmod(0o755)
    seen.add(take_snapshot(root, cache).sha256)
    (root / "train.py").rename(root / "main.py")
    seen.add(take_snapshot(root, cache).sha256)
    assert len(seen) == 4


def test_unchanged_code_is_not_read_again(root: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settle(root)
    first = take_snapshot(root, cache)
    monkeypatch.setattr(snapshot_module, "_archive", None)  # calling it would fail
    assert take_snapshot(root, cache) == first


def test_a_change_of_the_same_size_and_time_is_seen(root: Path, cache: Path) -> None:
    settle(root)
    first = take_snapshot(root, cache)
    info = (root / "train.py").stat()
    (root / "train.py").write_text("import pkq\n")
    os.utime(root / "train.py", ns=(info.st_atime_ns, info.st_mtime_ns))
    assert take_snapshot(root, cache).sha256 != first.sha256


def test_a_file_changed_just_now_is_not_remembered(root: Path, cache: Path) -> None:
    (root / "train.py").write_text("import pkg # now\n")
    take_snapshot(root, cache)
    assert not list(cache.glob("*.key"))


def test_many_at_once_share_one_cache(root: Path, cache: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda _: take_snapshot(root, cache), range(16)))
    assert len({m.sha256 for m in made}) == 1
    assert not list(cache.glob("*.part"))


def test_what_nobody_wants_is_left_out(root: Path, cache: Path) -> None:
    for name in ("__pycache__/x.pyc", "pkg/__pycache__/y.txt", "node_modules/z.js", "env/pyvenv.cfg",
                 "env/bin"):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    os.mkfifo(root / "pipe")
    assert names(take_snapshot(root, cache)) == ["pkg/__init__.py", "run.sh", "train.py"]


def test_git_decides_inside_a_checkout(root: Path, cache: Path) -> None:
    git(root, "init", "-q")
    (root / ".gitignore").write_text("*.bin\nout/\n")
    (root / "new").write_text("1")
    (root / "big.bin").write_text("x")
    (root / "out").mkdir()
    (root / "out" / "log").write_text("x")
    (root / "forced.bin").write_text("x")
    git(root, "add", "-f", "train.py", "forced.bin")
    git(root, "commit", "-qm", "one")
    (root / "gone.py").write_text("")
    git(root, "add", "gone.py")
    (root / "gone.py").unlink()
    assert names(take_snapshot(root, cache)) == [
        ".gitignore", "forced.bin", "new", "pkg/__init__.py", "run.sh", "train.py"]
    assert names(take_snapshot(root / "pkg", cache)) == ["__init__.py"]


def test_code_that_git_ignores_still_travels(root: Path, cache: Path) -> None:
    git(root, "init", "-q")
    (root / ".gitignore").write_text("generated/\n")
    made = root / "generated"
    made.mkdir()
    (made / "job.py").write_text("")
    assert names(take_snapshot(made, cache, [made / "job.py"])) == ["job.py"]


def test_ganglineignore(root: Path, cache: Path) -> None:
    for name in ("data/a.txt", "pkg/data/b.txt", "pkg/data.txt", "x/keep/c.csv", "x/drop/d.csv", "e.csv",
                 "f.log"):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    (root / ".ganglineignore").write_text("# not code\n\ndata/\n/x/drop\n/e.csv\n*.log\n")
    assert names(take_snapshot(root, cache)) == [
        ".ganglineignore", "pkg/__init__.py", "pkg/data.txt", "run.sh", "train.py", "x/keep/c.csv"]
    (root / ".ganglineignore").write_text("*.py\n")
    with pytest.raises(Rejected, match=r"train.py is left out of the snapshot by .ganglineignore"):
        take_snapshot(root, cache, [root / "train.py"])
    (root / ".ganglineignore").write_text("!keep\n")
    with pytest.raises(Rejected, match=r"line 1: patterns with ! are not supported"):
        take_snapshot(root, cache)


def test_links_inside_travel_and_links_out_are_refused(root: Path, tmp_path: Path, cache: Path) -> None:
    (root / "near.py").symlink_to(root / "train.py")
    (root / "pkg" / "up.py").symlink_to("../train.py")
    (root / "nowhere").symlink_to("not-there")
    with tarfile.open(take_snapshot(root, cache).archive) as tar:
        links = {m.name: m.linkname for m in tar if m.issym()}
    assert links == {"near.py": "train.py", "pkg/up.py": "../train.py"}
    (tmp_path / "secret").write_text("")
    (root / "out").symlink_to(tmp_path / "secret")
    with pytest.raises(Rejected, match=r"code/out is a link to .*secret, outside"):
        take_snapshot(root, cache)
    (root / ".ganglineignore").write_text("out\n")
    take_snapshot(root, cache)


def test_too_large_lists_the_largest_and_the_way_out(
        root: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree, "MAX_BYTES", 3 << 20)
    (root / "data").mkdir()
    (root / "data" / "a").write_bytes(b"x" * (2 << 20))
    (root / "model.bin").write_bytes(b"x" * (3 << 19))
    with pytest.raises(Rejected) as caught:
        take_snapshot(root, cache)
    said = str(caught.value)
    assert "is 3.5 MiB, over the limit of 3.0 MiB; largest: data/ (2.0 MiB), model.bin (1.5 MiB)" in said
    assert ".ganglineignore" in said
    monkeypatch.setattr(tree, "MAX_FILES", 3)
    (root / "data" / "a").write_bytes(b"")
    with pytest.raises(Rejected, match=r"is 5 files, over the limit of 3; largest: .*\(1 files\)"):
        take_snapshot(root, cache)


def test_directories_that_must_not_travel(root: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for place, message in [(Path("/"), "holds home directories"),
                           (Path(tempfile.gettempdir()), "everybody's temporary directory"),
                           (Path(json.__file__).parent, "belongs to the Python installation"),
                           (root / "nothing", "is not a directory")]:
        with pytest.raises(Rejected, match=message):
            take_snapshot(place, cache)
    monkeypatch.setenv("HOME", str(root))
    for place, message in [(root, "is your home directory"), (root.parent, "holds home directories")]:
        with pytest.raises(Rejected, match=message):
            take_snapshot(place, cache)


def test_a_file_that_cannot_be_read_is_named(root: Path, cache: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root reads everything")
    (root / "train.py").chmod(0)
    with pytest.raises(Rejected, match=r"cannot read .*train.py"):
        take_snapshot(root, cache)
