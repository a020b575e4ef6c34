"""The keeper: the only parent of a gang's ranks on one node, and the end of everything they ever start.

One process per (gang, attempt, generation, node), forked from the warm template or started cold. It talks
JSON lines with its supervisor over one socket:

    in   {"op": "start", "ranks": [RANK...]}     RANK: rank, argv | boot, env, cwd, log, announces
         {"op": "stop", "grace_s": 5.0}          SIGTERM to the ranks, SIGKILL to all when the grace is over
    out  {"event": "started"}                    user code runs on every rank
         {"event": "rank_exit", "rank", "code", "signal", "at_ms"}
         {"event": "empty"}                      nothing is left; the keeper exits

When the socket closes the supervisor is dead: the tree is killed at once. Every descendant stays below the
keeper, a subreaper, so looking down from it finds them all, daemons too.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from gangline.node import boot, cgroup
from gangline.node.kill import end_all
from gangline.node.proc import (
    Proc,
    adopt_orphans,
    answering,
    close_descriptors,
    descendants,
    die_with_parent,
    living,
    send,
    set_name,
)

_LOOK_S = 0.05  # between looks at a tree that was asked to end
_HIGH_FD = 200  # out of the way of programs that count on low numbers
_EXEC_FAILED = 127
NAME = "gangline-keeper"


class _Rank:
    """A rank that was forked: where its first sign of life comes from."""

    def __init__(self, number: int, pid: int, sign_fd: int) -> None:
        self.number, self.pid, self.sign_fd = number, pid, sign_fd
        self.began = False
        self.exited = False


class Keeper:
    """Serves one supervisor until the tree is empty or the supervisor is gone."""

    def __init__(self, control: socket.socket, marker_fd: int, group: Path | None) -> None:
        self._control, self._marker_fd, self._group = control, marker_fd, group
        self._ranks: dict[int, _Rank] = {}
        self._told_started = False
        self._deadline: float | None = None  # when the grace is over
        self._told_rest = False  # what outlived the ranks was asked to end as well
        self._inbox = bytearray()
        self._wake, self._woken = socket.socketpair()
        for end in (self._wake, self._woken):
            end.setblocking(False)

    def serve(self) -> None:
        """Return when nothing of the tree is left."""
        set_name(NAME)
        adopt_orphans()
        for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(signum, signal.SIG_IGN)  # only the supervisor decides; its end is seen at once
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._woken.fileno(), warn_on_full_buffer=False)
        while self._turn():
            pass

    def _turn(self) -> bool:
        signs = {rank.sign_fd: rank for rank in self._ranks.values() if not rank.began}
        timeout_s = None if self._deadline is None else _LOOK_S
        sources: list[Any] = [self._control, self._wake, *signs]
        readable, _, _ = select.select(sources, [], [], timeout_s)
        for ready in readable:
            if ready is self._wake:
                with contextlib.suppress(BlockingIOError):
                    self._wake.recv(4096)
            elif ready in signs:
                self._see_sign(signs[ready])
        self._reap()
        if self._control in readable and not self._obey():
            self._end_tree()
            return False
        if self._deadline is not None and (time.monotonic() >= self._deadline or self._is_empty()):
            self._end_tree()
            while not all(rank.exited for rank in self._ranks.values()):
                self._reap()
                time.sleep(0.001)
            self._tell({"event": "empty"})
            return False
        if self._deadline is not None and not self._told_rest:
            self._ask_rest()
        return True

    def _obey(self) -> bool:
        """Carry out what the supervisor says; False when it is gone."""
        try:
            data = self._control.recv(1 << 16)
        except ConnectionError:
            return False
        if not data:
            return False
        self._inbox += data
        if b"\n" not in data:  # a long order in many pieces: look for its end in the new one only
            return True
        *lines, rest = bytes(self._inbox).split(b"\n")
        self._inbox = bytearray(rest)
        for line in lines:
            message = json.loads(line)
            if message["op"] == "start":
                self._start(message["ranks"])
            elif message["op"] == "stop":
                self._stop(float(message["grace_s"]))
        return True

    def _tell(self, message: Mapping[str, Any]) -> None:
        # A supervisor that is gone shows on the next turn as the end of the socket.
        with contextlib.suppress(OSError):
            self._control.sendall(json.dumps(message).encode() + b"\n")

    def _start(self, orders: list[dict[str, Any]]) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        keeper_pid = os.getpid()
        # Held until the child has handlers of its own: we ignore it, and it would be lost.
        signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM,))
        for order in orders:
            theirs, ours = os.pipe()  # closed on exec: the end of the file is a sign too
            pid = os.fork()
            if pid == 0:
                self._become_rank(order, keeper_pid, ours)
            os.close(ours)
            self._ranks[pid] = _Rank(order["rank"], pid, theirs)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGTERM,))

    def _become_rank(self, order: dict[str, Any], keeper_pid: int, sign_fd: int) -> NoReturn:
        code = _EXEC_FAILED
        try:
            die_with_parent(keeper_pid)
            os.setsid()
            set_name(f"rank-{order['rank']}")
            if self._group is not None:
                cgroup.enter(self._group)
            _reset_signals()
            _point_output_at(order["log"])
            close_descriptors((sign_fd, self._marker_fd))
            os.set_inheritable(self._marker_fd, True)
            if order.get("boot") is not None:
                code = boot.run_forked(order, sign_fd)
            else:
                _exec(order, sign_fd)
        except BaseException as exc:  # noqa: BLE001 - nothing may return into the keeper's loop
            with contextlib.suppress(OSError):
                os.write(2, f"gangline: cannot start rank {order['rank']}: {exc}\n".encode())
        finally:
            os._exit(code)

    def _see_sign(self, rank: _Rank) -> None:
        os.read(rank.sign_fd, 1)
        os.close(rank.sign_fd)
        rank.began = True
        if not self._told_started and all(other.began for other in self._ranks.values()):
            self._told_started = True
            self._tell({"event": "started"})

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            rank = self._ranks.get(pid)
            if rank is None:
                continue  # an orphan of the tree
            if not rank.began:
                self._see_sign(rank)
            rank.exited = True
            code = os.waitstatus_to_exitcode(status)
            self._tell({"event": "rank_exit", "rank": rank.number, "code": code if code >= 0 else None,
                        "signal": _signal_name(-code) if code < 0 else None,
                        "at_ms": time.time_ns() // 1_000_000})

    def _stop(self, grace_s: float) -> None:
        deadline = time.monotonic() + grace_s
        if self._deadline is None and grace_s > 0:
            # A rank that catches it needs its helpers (data loaders, torchrun's workers) to save.
            for proc in answering(os.getpid(), living(), signal.SIGTERM):
                send(proc, signal.SIGTERM)
        self._deadline = deadline if self._deadline is None else min(deadline, self._deadline)

    def _ask_rest(self) -> None:
        """Once every rank has left, nobody answers any more for what they left behind."""
        if all(rank.exited for rank in self._ranks.values()):
            self._told_rest = True
            for proc in self._tree():
                send(proc, signal.SIGTERM)

    def _tree(self) -> list[Proc]:
        return descendants(os.getpid(), living())

    def _is_empty(self) -> bool:
        # The group is cheap to ask and is right unless a process left it; the look at all decides.
        if self._group is not None and cgroup.is_populated(self._group):
            return False
        return not self._tree()

    def _end_tree(self) -> None:
        if self._group is not None:
            cgroup.kill(self._group)
        end_all(self._tree)
        if self._group is not None:
            cgroup.remove(self._group)


def run(control: socket.socket, marker: str, group: str | None) -> None:
    """Be the keeper of the tree that `marker` (a path) marks, in this process."""
    marker_fd = _raised(os.open(marker, os.O_RDONLY | os.O_CLOEXEC))
    Keeper(control, marker_fd, Path(group) if group else None).serve()


def main() -> None:
    """`keeper CONTROL_FD MARKER GROUP_OR_EMPTY`: the cold keeper, started by its supervisor."""
    control_fd, marker, group = sys.argv[1:4]
    control = socket.socket(fileno=int(control_fd))
    os.set_inheritable(control.fileno(), False)
    os.chdir("/")
    run(control, marker, group or None)


def _raised(fd: int) -> int:
    try:
        high = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _HIGH_FD)
    except OSError:
        return fd  # few descriptors allowed here
    os.close(fd)
    return high


def _reset_signals() -> None:
    signal.set_wakeup_fd(-1)
    for signum in (signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
        signal.signal(signum, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _point_output_at(log: str) -> None:
    nothing = os.open("/dev/null", os.O_RDONLY)
    output = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    for fd, number in ((nothing, 0), (output, 1), (output, 2)):
        os.dup2(fd, number)


def _exec(order: Mapping[str, Any], sign_fd: int) -> NoReturn:
    env = dict(order["env"])
    if order.get("announces"):
        os.set_inheritable(sign_fd, True)
        env[boot.SIGN_FD] = str(sign_fd)
    os.chdir(order["cwd"])
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores it, and exec would pass that on
    os.execvpe(order["argv"][0], order["argv"], env)  # noqa: S606 - an argv list, no shell


def _signal_name(signum: int) -> str:
    try:
        return signal.Signals(signum).name
    except ValueError:
        return f"signal {signum}"


if __name__ == "__main__":
    main()
