"""`python -m gangline.engines.ray.leash PROGRAM ARGUMENT...`: runs a program whose whole tree ends with it.

Standard input is the leash. A line "leave SECONDS" sends the program SIGTERM, and SIGKILL to everything when the
seconds are over; its end, which is also what the death of the holder looks like, kills everything at once.
Everything the program ever starts stays below a subreaper and is gone before this process exits with the program's
status (128 + N for signal N). It knows no more of Gangline, and starts in no time.

Two processes: a Ray worker that ends kills its own children, and them alone, so its child is only the one that
waits, and the one that holds the tree is out of its sight.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
import time

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_PAUSE_S = 0.01  # between looks at a tree that is being killed
_prctl = ctypes.CDLL(None, use_errno=True).prctl


def main(argv: list[str]) -> int:
    """Run the program to its end; its status."""
    keeper = os.fork()
    if keeper:
        return os.waitstatus_to_exitcode(os.waitpid(keeper, 0)[1])
    os.setsid()
    os._exit(_hold(argv))


def _hold(argv: list[str]) -> int:
    _prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    # This process has one thread, so a function between fork and exec is safe; should it be killed, the
    # program goes with it.
    child = subprocess.Popen(argv, stdin=subprocess.DEVNULL,
                             preexec_fn=lambda: _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0))
    status = _watch(child)
    _kill_all()
    return 128 - status if status < 0 else status


def _watch(child: subprocess.Popen[bytes]) -> int:
    poll, ended, deadline_s = select.poll(), os.pidfd_open(child.pid), float("inf")
    poll.register(ended, select.POLLIN)
    poll.register(0, select.POLLIN)
    while child.poll() is None:
        left_s = deadline_s - time.monotonic()
        events = dict(poll.poll(None if left_s == float("inf") else max(0.0, left_s * 1000)))
        if 0 in events:
            line = os.read(0, 4096).decode().split()
            if not line:
                break
            deadline_s = min(deadline_s, time.monotonic() + float(line[-1]))
            child.terminate()
        if time.monotonic() >= deadline_s:
            break
    os.close(ended)
    if child.poll() is None:
        child.kill()
    return child.wait()


def _kill_all() -> None:
    """Everything below this process, however fast it forks: all of it is frozen before the first is killed."""
    while True:
        frozen: set[int] = set()
        while fresh := _below() - frozen:
            _send(fresh, signal.SIGSTOP)
            frozen |= fresh
        _send(frozen, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        if not frozen:
            return
        time.sleep(_PAUSE_S)


def _send(pids: set[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _below() -> set[int]:
    """Every living process below this one."""
    parents = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:
            state, parent = file.read().rpartition(b")")[2].split()[:2]
            parents[int(name)] = (int(parent), state)
    found = {os.getpid()}
    while more := {pid for pid, (parent, _) in parents.items() if parent in found} - found:
        found |= more
    return {pid for pid in found - {os.getpid()} if parents[pid][1] not in (b"Z", b"X")}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
