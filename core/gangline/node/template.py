"""The template: one process per machine and interpreter that has imported torch, and forks keepers.

Ranks that a keeper forks in turn begin in milliseconds instead of seconds. It serves a unix socket, one JSON
line each way; descriptors travel beside the line:

    {"op": "hello"}                          -> {"interpreter", "modules", "pid"}
    {"op": "fork", "marker", "group"} + [control, stderr]   -> {"pid"}
    {"op": "leave"}                          it ends; keepers go on

It stays at one thread, since only such a process may be forked, and it leaves when no supervisor has been
connected for a while. Keepers outlive it.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import gc
import importlib
import importlib.util
import json
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gangline.node import keeper
from gangline.node.kill import end_all
from gangline.node.proc import Proc, adopt_orphans, close_descriptors, descendants, living, set_name, spawn

NAME = "gangline-templ"
IDLE_S = 60.0
PRELOAD_ENV = "GANGLINE_PRELOAD"  # modules to import, comma separated; empty: none; unset: torch's
# The first optimizer imports `torch._dynamo`, 2.5 s of processor time that every rank would pay.
DEFAULT_PRELOAD = "torch,torch.distributed.checkpoint,torch._dynamo"
# One thread each, or the fork would be of a process with threads.
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1",
              "NUMEXPR_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
_MESSAGE_BYTES = 1 << 16


class Template:
    """Forks keepers for whoever connects; alone in its process."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._clients: dict[int, socket.socket] = {}
        self._keepers: set[int] = set()
        self._leaving = False
        self._wake, self._woken = socket.socketpair()
        for end in (self._wake, self._woken):
            end.setblocking(False)
        self._modules = sorted({name.partition(".")[0] for name in sys.modules} - {"__main__"})

    def serve(self) -> None:
        """Return when told to leave, or when nobody has been connected for `IDLE_S`."""
        adopt_orphans()
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._woken.fileno(), warn_on_full_buffer=False)
        idle_since = time.monotonic()
        while not self._leaving:
            if self._clients:
                idle_since = time.monotonic()
            left_s = idle_since + IDLE_S - time.monotonic()
            if left_s <= 0:
                return
            sources = [self._listener, self._wake, *self._clients.values()]
            for source in select.select(sources, [], [], None if self._clients else left_s)[0]:
                if source is self._listener:
                    client, _ = self._listener.accept()
                    self._clients[client.fileno()] = client
                elif source is self._wake:
                    self._wake.recv(4096)
                    self._reap()
                elif not self._answer(source):
                    del self._clients[source.fileno()]
                    source.close()

    def _answer(self, client: socket.socket) -> bool:
        """Serve one request; False when the client is gone or talks nonsense."""
        try:
            data, fds, _, _ = socket.recv_fds(client, _MESSAGE_BYTES, 2)
        except OSError:
            return False
        try:
            request = json.loads(data) if data else {}
            if request.get("op") == "hello":
                reply = {"interpreter": sys.executable, "modules": self._modules, "pid": os.getpid()}
            elif request.get("op") == "leave":
                self._leaving = True
                return False
            elif request.get("op") == "fork" and len(fds) == 2:
                reply = {"pid": self._fork(request, fds[0], fds[1])}
            else:
                return False
            client.sendall(json.dumps(reply).encode() + b"\n")
            return True
        except (OSError, ValueError):
            return False
        finally:
            for fd in fds:
                os.close(fd)

    def _fork(self, request: dict[str, Any], control_fd: int, error_fd: int) -> int:
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid:
            self._keepers.add(pid)
            return pid
        try:
            signal.set_wakeup_fd(-1)
            os.setsid()
            os.dup2(error_fd, 1)
            os.dup2(error_fd, 2)
            close_descriptors((control_fd,))
            keeper.run(socket.socket(fileno=control_fd), request["marker"], request["group"])
        except BaseException as exc:  # noqa: BLE001 - nothing may return into the template's loop
            with contextlib.suppress(OSError):
                os.write(2, f"gangline: the keeper failed: {exc!r}\n".encode())
        finally:
            os._exit(0)

    def _reap(self) -> None:
        ended = False
        while True:
            try:
                pid, _ = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            ended = ended or pid in self._keepers
            self._keepers.discard(pid)
        if ended:
            end_all(self._strays, patience_s=5.0)

    def _strays(self) -> list[Proc]:
        """What killed keepers left behind: it came to us, and no keeper answers for it."""
        table = living()
        return [proc for child in table if child.ppid == os.getpid() and child.pid not in self._keepers
                for proc in (child, *descendants(child.pid, table))]


def connect(path: Path, *, patience_s: float = 2.0, on_start: Callable[[int], None] = lambda pid: None,
            ) -> socket.socket:
    """A connection to the machine's template, which is started when none runs; OSError when it cannot be.

    Whoever holds the lock beside the socket is the template, or hands socket and lock to one it starts: so
    there is one at most, and a request waits in its queue while it still imports. The socket is there
    within moments of the lock, so `patience_s` is short.
    """
    deadline = time.monotonic() + patience_s
    while True:
        with contextlib.suppress(OSError):
            return _connected(path)
        pid = _start(path)
        if pid is not None:
            on_start(pid)
        elif time.monotonic() > deadline:
            raise TimeoutError(f"the template at {path} does not answer")
        else:
            time.sleep(0.01)


def end(path: Path, *, patience_s: float = 10.0) -> None:
    """End the template behind a socket and wait until it is gone; nothing happens when none runs."""
    with contextlib.suppress(OSError), _connected(path) as client:
        client.settimeout(patience_s)
        client.sendall(json.dumps({"op": "leave"}).encode())
        while client.recv(4096):
            pass


def _connected(path: Path) -> socket.socket:
    client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        client.connect(str(path))
    except OSError:
        client.close()
        raise
    return client


def _start(path: Path) -> int | None:
    """The pid of a template started now; None when one runs or is being started."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        return None
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener, \
            open(f"{path}.log", "ab", buffering=0) as log:
        path.unlink(missing_ok=True)
        listener.bind(str(path))
        listener.listen(128)
        root = str(Path(__file__).parents[2])
        code = (f"import sys; {root!r} in sys.path or sys.path.append({root!r}); "
                "from gangline.node.template import main; main()")
        fds = (listener.fileno(), lock)
        pid = spawn([sys.executable, "-c", code, "--socket", str(path), "--fds", *map(str, fds)],
                    env={**os.environ, **ONE_THREAD}, output_fd=log.fileno(), keep=fds)
    os.close(lock)
    return pid


def main() -> None:
    """`template --socket PATH`: serve there; started by `connect`, which also hands over socket and lock."""
    parser = argparse.ArgumentParser(prog="python -m gangline.node.template")
    parser.add_argument("--socket", type=Path, required=True)
    parser.add_argument("--preload", help="modules to import, comma separated; default: torch, if installed")
    parser.add_argument("--fds", type=int, nargs=2, metavar=("LISTENER", "LOCK"), help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.fds is None:
        if asked.preload is not None:
            os.environ[PRELOAD_ENV] = asked.preload
        connect(asked.socket.absolute()).close()
        return
    for fd in asked.fds:
        os.set_inheritable(fd, False)
    os.chdir("/")
    set_name(NAME)
    listener = socket.socket(fileno=asked.fds[0])
    _preload(os.environ.get(PRELOAD_ENV, DEFAULT_PRELOAD))
    threads = len(os.listdir("/proc/self/task"))
    if threads > 1:
        sys.exit(f"gangline: the preloaded modules started {threads - 1} threads; ranks start cold")
    gc.collect()
    gc.freeze()  # forks share these pages as long as the collector does not touch them
    # The socket's file stays: whoever starts the next template replaces it, and by now it may be theirs.
    Template(listener).serve()


def _preload(names: str) -> None:
    for name in filter(None, (part.strip() for part in names.split(","))):
        if importlib.util.find_spec(name.partition(".")[0]) is None:
            continue
        try:
            importlib.import_module(name)
        except Exception as exc:  # noqa: BLE001 - a broken module must fail in the rank that wants it
            sys.stderr.write(f"gangline: cannot preload {name}: {exc!r}\n")


if __name__ == "__main__":
    main()
