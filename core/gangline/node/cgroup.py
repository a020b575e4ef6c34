"""A control group per process tree where the kernel lets us make one: its kill switch misses nobody.

Works on cgroup v2, also as the `unified` hierarchy beside v1. Everything here is best effort: without a
group, descent and markers find the processes.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

OFF_ENV = "GANGLINE_CGROUP"  # "off" for nodes whose groups something else manages
_MOUNTS = (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified"))


def create(name: str) -> Path | None:
    """A fresh group below our own with a kill switch, or None where that is not allowed."""
    base = _own_group()
    if base is None or os.environ.get(OFF_ENV) == "off":
        return None
    group = base / name
    try:
        group.mkdir(exist_ok=True)
    except OSError:
        return None
    usable = os.access(group / "cgroup.kill", os.W_OK) and os.access(group / "cgroup.procs", os.W_OK)
    if not usable:
        remove(group)
        return None
    return group


def enter(group: Path) -> bool:
    """Move the calling process into the group; False when the kernel refuses."""
    try:
        (group / "cgroup.procs").write_text("0")
    except OSError:
        return False
    return True


def kill(group: Path) -> None:
    """SIGKILL everything in the group and below it."""
    with contextlib.suppress(OSError):
        (group / "cgroup.kill").write_text("1")


def count(group: Path) -> int:
    """How many processes are in the group itself."""
    try:
        return len((group / "cgroup.procs").read_text().split())
    except OSError:
        return 0


def is_populated(group: Path) -> bool:
    try:
        return "populated 1" in (group / "cgroup.events").read_text()
    except OSError:
        return False


def oom_kills(group: Path) -> int:
    """Kills for memory within the group; 0 where the memory controller is not on."""
    try:
        lines = (group / "memory.events").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)


def remove(group: Path, *, patience_s: float = 1.0) -> None:
    """Remove an empty group and those below it; one that stays populated is left."""
    deadline = time.monotonic() + patience_s
    while is_populated(group) and time.monotonic() < deadline:
        time.sleep(0.005)
    for folder, _, _ in os.walk(group, topdown=False):
        with contextlib.suppress(OSError):
            os.rmdir(folder)


def _own_group() -> Path | None:
    mount = next((path for path in _MOUNTS if (path / "cgroup.controllers").exists()), None)
    if mount is None:
        return None
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return None
    own = next((line[3:] for line in lines if line.startswith("0::")), None)
    return None if own is None else mount / own.lstrip("/")
