"""The local engine: one supervisor process per node on this machine.

Supervisors are started in sessions of their own and outlive the server; the next server finds them
again by the identity (pid and start time) that each node's folder records. When one dies, its node
is swept of whatever it left behind before anybody is told.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from gangline.engines.base import NodeStatus, SeenNode, Sight
from gangline.model.node import NodeView

SHUTDOWN_GRACE_S = 10.0
_RECORD = "supervisor.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Supervisor:
    """A supervisor process that no other process can be mistaken for."""

    pid: int
    start_time: float

    @property
    def alive(self) -> bool:
        try:
            process = psutil.Process(self.pid)
            return process.create_time() == self.start_time and process.status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return False


@dataclass(slots=True)
class LocalEngine:
    """Starts, finds again, watches and ends the supervisors of this machine's nodes.

    `sweep(home, node)` kills what a dead supervisor left on a node and `is_swept` says whether it could
    kill all; `server_url` is where supervisors call; `template_socket` is where they find the warm
    template, which `end_template` ends.
    """

    home: Path
    server_url: str
    sweep: Callable[[Path, str], int]
    is_swept: Callable[[Path, str], bool]
    template_socket: Path
    end_template: Callable[[Path], None]
    name: str = "local"
    _watch: _DeathWatch = field(init=False)
    _children: dict[int, subprocess.Popen[bytes]] = field(init=False, default_factory=dict)
    _known: dict[str, Supervisor] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self._watch = _DeathWatch()
        for record in self.home.glob(f"nodes/*/{_RECORD}"):
            known = _recorded(record)
            if known is not None:
                self._known[record.parent.name] = known

    def provision(self, nodes: Collection[NodeView]) -> None:
        for node in nodes:
            known = self._known.get(node.node)
            if known is not None and known.alive:
                self._watch.add(known)
            else:
                self._start(node)

    def observe(self) -> Sight:
        self._reap()
        return Sight(nodes=tuple(self._see(name, known) for name, known in self._known.items()))

    def release(self, nodes: Collection[NodeView]) -> None:
        # A node that has just left may not have heard of it yet: its supervisor goes too.
        doomed = [(name, self._known.get(name)) for name in sorted({node.node for node in nodes} | self._known.keys())]
        for _, known in doomed:
            if known is not None and known.alive:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(known.pid, signal.SIGTERM)
        deadline = time.monotonic() + SHUTDOWN_GRACE_S
        for name, known in doomed:
            if known is not None:
                _end(known, deadline)
            self.sweep(self.home, name)
            (self._folder(name) / _RECORD).unlink(missing_ok=True)
            self._known.pop(name, None)
        self.end_template(self.template_socket)
        self._reap()

    def on_change(self, callback: Callable[[], None]) -> None:
        self._watch.start(callback)

    def close(self) -> None:
        self._watch.stop()

    def _see(self, name: str, known: Supervisor) -> SeenNode:
        if known.alive:
            return SeenNode(name=name, pool="", status=NodeStatus.READY)
        count = self.sweep(self.home, name)
        left = f"; {count} processes it left were killed" if count else ""
        return SeenNode(name=name, pool="", status=NodeStatus.DOWN, text=f"the supervisor of {name} died{left}",
                        empty=self.is_swept(self.home, name))

    def _start(self, node: NodeView) -> None:
        folder = self._folder(node.node)
        folder.mkdir(parents=True, exist_ok=True)
        self.sweep(self.home, node.node)
        argv = [sys.executable, "-m", "gangline.node", "--server", self.server_url, "--node", node.node,
                "--home", str(self.home), "--address", node.address, "--warm-template", str(self.template_socket)]
        with open(folder / "supervisor.log", "ab") as log:
            process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/",
                                       start_new_session=True)
        self._children[process.pid] = process
        known = Supervisor(pid=process.pid, start_time=psutil.Process(process.pid).create_time())
        _write_atomically(folder / _RECORD, json.dumps({"pid": known.pid, "start_time": known.start_time}))
        self._known[node.node] = known
        self._watch.add(known)

    def _folder(self, node: str) -> Path:
        return self.home / "nodes" / node

    def _reap(self) -> None:
        for pid, process in list(self._children.items()):
            if process.poll() is not None:
                del self._children[pid]


def _recorded(record: Path) -> Supervisor | None:
    try:
        noted = json.loads(record.read_text())
        return Supervisor(pid=int(noted["pid"]), start_time=float(noted["start_time"]))
    except (OSError, ValueError, KeyError):
        return None


class _DeathWatch:
    """Calls back once for every watched process that ends, without polling."""

    def __init__(self) -> None:
        self._poll = select.poll()
        self._fds: dict[int, Supervisor] = {}
        self._lock = threading.Lock()
        self._wake_r, self._wake_w = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._poll.register(self._wake_r, select.POLLIN)
        self._thread: threading.Thread | None = None
        self._stopping = False

    def add(self, known: Supervisor) -> None:
        with self._lock:
            if known in self._fds.values() or self._stopping:
                return
            try:
                fd = os.pidfd_open(known.pid)
            except ProcessLookupError:
                return
            self._fds[fd] = known
            self._poll.register(fd, select.POLLIN)
        self._nudge()

    def start(self, callback: Callable[[], None]) -> None:
        self._thread = threading.Thread(target=self._run, args=(callback,), name="death-watch", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopping = True
        self._nudge()
        if self._thread is not None:
            self._thread.join()
        with self._lock:
            for fd in (*self._fds, self._wake_r, self._wake_w):
                os.close(fd)
            self._fds.clear()

    def _nudge(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.write(self._wake_w, b"x")

    def _run(self, callback: Callable[[], None]) -> None:
        while not self._stopping:
            ended = False
            for fd, _ in self._poll.poll():
                if fd == self._wake_r:
                    os.read(fd, 4096)
                    continue
                with self._lock:
                    self._poll.unregister(fd)
                    self._fds.pop(fd, None)
                    os.close(fd)
                ended = True
            if ended:
                callback()


def _end(known: Supervisor, deadline: float) -> None:
    try:
        process = psutil.Process(known.pid)
        if process.create_time() != known.start_time:
            return
        process.wait(max(0.0, deadline - time.monotonic()))
    except psutil.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.kill(known.pid, signal.SIGKILL)
        with contextlib.suppress(psutil.Error):
            psutil.Process(known.pid).wait(5)
    except psutil.NoSuchProcess:
        return


def _write_atomically(path: Path, text: str) -> None:
    temporary = path.with_suffix(".tmp")
    temporary.write_text(text)
    os.replace(temporary, path)
