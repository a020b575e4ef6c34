"""Processes as the kernel tells of them: who they are, whose children, and signals that hit no stranger."""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_PR_SET_CHILD_SUBREAPER = 36
_LIBC = ctypes.CDLL(None, use_errno=True)
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class Proc(NamedTuple):
    """One process at one look. `start_ticks` (since boot) tells it from a later one with the same pid."""

    pid: int
    ppid: int
    start_ticks: int
    dead: bool
    name: str

    @property
    def identity(self) -> tuple[int, int]:
        return self.pid, self.start_ticks


def look(pid: int) -> Proc | None:
    """The process with this pid now; None when there is none."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    # The command name may hold anything, brackets and spaces too: fields count from the last bracket.
    end = text.rindex(")")
    fields = text[end + 2:].split()
    state, ppid, threads, start_ticks = fields[0], int(fields[1]), int(fields[17]), int(fields[19])
    # A zombie is dead, unless only its first thread ended and others still run.
    return Proc(pid, ppid, start_ticks, state in "ZXx" and threads <= 1, text[text.index("(") + 1:end])


def pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def living() -> list[Proc]:
    """Every process that is not dead."""
    return [proc for pid in pids() if (proc := look(pid)) is not None and not proc.dead]


def descendants(root: int, table: Iterable[Proc]) -> list[Proc]:
    """The processes of `table` below `root`, which is not one of them itself."""
    children: dict[int, list[Proc]] = {}
    for proc in table:
        children.setdefault(proc.ppid, []).append(proc)
    found: list[Proc] = []
    todo = [root]
    while todo:
        below = children.pop(todo.pop(), [])
        found += below
        todo += [proc.pid for proc in below]
    return found


def catches(pid: int, signum: int) -> bool:
    """Whether a process has a handler of its own for a signal."""
    try:
        text = Path(f"/proc/{pid}/status").read_text(errors="replace")
    except OSError:
        return False
    mask = next((line.split()[1] for line in text.splitlines() if line.startswith("SigCgt:")), "0")
    return bool(int(mask, 16) >> (signum - 1) & 1)


def answering(root: int, table: Iterable[Proc], signum: int) -> list[Proc]:
    """Whom below `root` a signal is for: one that catches it answers for all below it."""
    children: dict[int, list[Proc]] = {}
    for proc in table:
        children.setdefault(proc.ppid, []).append(proc)
    found: list[Proc] = []
    todo = [root]
    while todo:
        below = children.pop(todo.pop(), [])
        found += below
        todo += [proc.pid for proc in below if not catches(proc.pid, signum)]
    return found


def is_alive(pid: int, start_ticks: int) -> bool:
    proc = look(pid)
    return proc is not None and not proc.dead and proc.start_ticks == start_ticks


def send(proc: Proc, signum: int) -> bool:
    """Signal exactly this process, never another that took its pid; False when it is gone or not ours."""
    try:
        pidfd = os.pidfd_open(proc.pid)
    except OSError:
        return False
    try:
        now = look(proc.pid)
        if now is None or now.start_ticks != proc.start_ticks:
            return False
        signal.pidfd_send_signal(pidfd, signum)
        return True
    except OSError:
        return False
    finally:
        os.close(pidfd)


def start_time_s(pid: int) -> float:
    """When a process started, in seconds since the epoch, as psutil's `create_time` tells it."""
    proc = look(pid)
    if proc is None:
        raise ProcessLookupError(pid)
    with open("/proc/stat") as lines:
        boot_s = next(float(line.split()[1]) for line in lines if line.startswith("btime "))
    return boot_s + proc.start_ticks / _TICKS_PER_S


def boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def oom_kills() -> int:
    """How many processes the kernel has killed for memory since boot; 0 where it does not say."""
    try:
        with open("/proc/vmstat") as lines:
            return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)
    except OSError:
        return 0


def adopt_orphans() -> None:
    """Make this process the parent of every descendant whose own parent dies."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(parent_pid: int) -> None:
    """Be killed when the parent's thread that forked us ends; at once if it has ended already."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:
        os.kill(os.getpid(), signal.SIGKILL)


def set_name(name: str) -> None:
    """The name that `ps` and `look` show, at most 15 bytes."""
    buffer = ctypes.create_string_buffer(name.encode()[:15])
    _prctl(_PR_SET_NAME, ctypes.addressof(buffer))


def spawn(argv: list[str], *, env: Mapping[str, str], output_fd: int, keep: Iterable[int]) -> int:
    """Start a program in a session of its own, given `keep` besides standard input and output; its pid."""
    for fd in keep:
        os.set_inheritable(fd, True)
    try:
        actions = ((os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
                   (os.POSIX_SPAWN_DUP2, output_fd, 1), (os.POSIX_SPAWN_DUP2, output_fd, 2))
        return os.posix_spawn(argv[0], argv, env, file_actions=actions, setsid=True)
    finally:
        for fd in keep:
            os.set_inheritable(fd, False)


def close_descriptors(keep: Iterable[int]) -> None:
    """Close every descriptor but the standard ones and those in `keep`."""
    kept = {0, 1, 2, *keep}
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in kept:
            try:
                os.close(int(name))
            except OSError:
                continue  # the one that listed the folder


def _prctl(option: int, value: int) -> None:
    if _LIBC.prctl(option, ctypes.c_ulong(value), 0, 0, 0):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
