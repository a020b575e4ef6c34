"""Finding and ending what a dead supervisor, or a dead keeper, left running on this machine.

Every process of a tree carries two marks: its tree's name in the environment it was started with, and a
descriptor of the tree's marker file, for forks whose environment the kernel never saw. The marker file
exists from before the first process until the last is known to be gone.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from gangline.node import cgroup
from gangline.node.kill import end_all
from gangline.node.proc import Proc, boot_id, is_alive, living, look, send

TREE_ENV = "GANGLINE_TREE"
_PATIENCE_S = 10.0
_CLAIM = "incarnation.json"


class Tree(NamedTuple):
    """The name and the marks of one process tree."""

    name: str  # home hash / gang / attempt / generation / node
    marker: Path


def node_dir(home: Path, node: str) -> Path:
    """Where a node's supervisor keeps its files."""
    return home / "nodes" / node


def tree_of(home: Path, node: str, gang: str, attempt: int, generation: int) -> Tree:
    return Tree(f"{home_hash(home)}/{gang}/{attempt}/{generation}/{node}",
                _tree_dir(home, node) / f"{gang}.{attempt}.{generation}.tree")


def mark(tree: Tree) -> None:
    """Make the marker of a tree that is about to be started."""
    tree.marker.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    tree.marker.write_text(json.dumps({"tree": tree.name, "group": None}))


def make_group(tree: Tree) -> Path | None:
    """A control group for the tree, noted in its marker; None where there are none."""
    name = "gangline-" + hashlib.sha256(tree.name.encode()).hexdigest()[:16]
    group = cgroup.create(name)
    tree.marker.write_text(json.dumps({"tree": tree.name, "group": str(group) if group else None}))
    return group


def unmark(tree: Tree, group: Path | None) -> None:
    """Remove the marks of a tree whose keeper has seen its last process go."""
    if group is not None:
        cgroup.remove(group)
    tree.marker.unlink(missing_ok=True)


def home_hash(home: Path) -> str:
    return hashlib.sha256(os.path.realpath(home).encode()).hexdigest()[:12]


def claim(home: Path, node: str) -> None:
    """Note that this process supervises the node now, so that its successor can make sure it is gone."""
    me = look(os.getpid())
    assert me is not None
    path = node_dir(home, node) / _CLAIM
    fresh = path.with_suffix(f".{me.pid}")
    fresh.write_text(json.dumps({"pid": me.pid, "start_ticks": me.start_ticks, "boot_id": boot_id()}))
    fresh.replace(path)


def sweep(home: Path, node: str) -> int:
    """End the node's supervisor, unless it is the caller, and all it left; the number of processes ended.

    Synchronous, and cheap when nothing is left. Takes at most some ten seconds: `is_swept` says whether
    even an uninterruptible process is gone.
    """
    ended = _end_supervisor(home, node)
    return ended + end_trees(_marked_trees(home, node))


def is_swept(home: Path, node: str) -> bool:
    """Whether no tree of the node is left."""
    return next(_marked_trees(home, node), None) is None


def end_trees(trees: Iterable[Tree]) -> int:
    """End every process of the trees, keepers included; how many there were.

    Their marker files are removed, unless some process outlived the attempt.
    """
    trees = list(trees)
    if not trees:
        return 0
    groups = [group for tree in trees if (group := _group_of(tree)) is not None]
    names = {tree.name for tree in trees}
    markers = {str(tree.marker) for tree in trees}
    ended = 0
    for group in groups:
        ended += cgroup.count(group)
        cgroup.kill(group)
    ended += end_all(lambda: _marked(names, markers), patience_s=_PATIENCE_S)
    for group in groups:
        cgroup.remove(group)
    if not _marked(names, markers):
        for tree in trees:
            tree.marker.unlink(missing_ok=True)
    return ended


def _tree_dir(home: Path, node: str) -> Path:
    # Resolved, since the kernel names open files by their real path.
    return Path(os.path.realpath(node_dir(home, node))) / "trees"


def _marked_trees(home: Path, node: str) -> Iterator[Tree]:
    for marker in sorted(_tree_dir(home, node).glob("*.tree")):
        gang, attempt, generation = marker.stem.rsplit(".", 2)
        yield tree_of(home, node, gang, int(attempt), int(generation))


def _group_of(tree: Tree) -> Path | None:
    try:
        noted = json.loads(tree.marker.read_text())["group"]
    except (OSError, ValueError, KeyError):
        return None
    return Path(noted) if noted else None


def _marked(names: set[str], markers: set[str]) -> list[Proc]:
    me = os.getpid()
    return [proc for proc in living()
            if proc.pid != me and (_name_of(proc.pid) in names or _holds(proc.pid, markers))]


def _name_of(pid: int) -> str | None:
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return None
    prefix = TREE_ENV.encode() + b"="
    found = next((entry for entry in environment.split(b"\0") if entry.startswith(prefix)), None)
    return None if found is None else found[len(prefix):].decode(errors="replace")


def _holds(pid: int, markers: set[str]) -> bool:
    folder = f"/proc/{pid}/fd"
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            with contextlib.suppress(OSError):
                if os.readlink(f"{folder}/{name}") in markers:
                    return True
    return False


def _end_supervisor(home: Path, node: str) -> int:
    try:
        noted = json.loads((node_dir(home, node) / _CLAIM).read_text())
        pid, start_ticks = int(noted["pid"]), int(noted["start_ticks"])
        old = look(pid) if noted["boot_id"] == boot_id() and pid != os.getpid() else None
    except (OSError, ValueError, KeyError):
        return 0
    if old is None or old.dead or old.start_ticks != start_ticks:
        return 0
    send(old, signal.SIGKILL)
    deadline = time.monotonic() + _PATIENCE_S
    while is_alive(pid, start_ticks) and time.monotonic() < deadline:
        time.sleep(0.005)
    return 1
