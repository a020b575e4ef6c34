"""The embedded server of a home: found if it runs, started under a lock if it does not."""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import gangline.model
from gangline.client.address import parse_address, unusable_home
from gangline.client.http import START_FIX, Client
from gangline.client.record import ServerRecord, read_record
from gangline.model.errors import GanglineError, Unavailable

READY_S = 60.0
SETTLE_S = 10.0  # for a server that is just starting or leaving
LOOK_AGAIN_S = 0.05
LOG_TAIL_LINES = 12
LOG_KEPT_BYTES = 16 << 20

_ALLOWED = frozenset({"PATH", "HOME", "LANG", "TZ", "TMPDIR"})
_ALLOWED_PREFIXES = ("LC_", "SSL_", "CUDA_", "GANGLINE_")
# What a rank knows of its own gang, and how a client reaches some other server, is not the server's.
_DROPPED = frozenset({"GANGLINE_URL", "GANGLINE_TOKEN", "GANGLINE_TOKEN_FILE", "GANGLINE_GANG",
                      "GANGLINE_ATTEMPT", "GANGLINE_INFO", "GANGLINE_SUPERVISOR"})


def find(home: Path) -> ServerRecord | None:
    """The server of this home if one runs and answers; `Unavailable` if one runs and stays silent."""
    deadline = time.monotonic() + SETTLE_S
    while True:
        record = read_record(home)
        if record is None or not record.alive:
            return None
        if _answers(record):
            return record
        if time.monotonic() > deadline:
            raise Unavailable(f"the server of {home} (process {record.pid}) does not answer",
                              fix=f"look at {home / 'server.log'}; end it with: kill -9 {record.pid}")
        time.sleep(LOOK_AGAIN_S)


def find_or_start(home: Path, environ: Mapping[str, str]) -> ServerRecord:
    """The server of this home, started if there is none; many callers at once start one.

    Raises `Rejected` when the home cannot be used and `Unavailable`, with the last lines of its log,
    when the server does not come up.
    """
    record = find(home)
    if record is not None:
        return record
    _make_home(home)
    with _start_lock(home):
        return find(home) or _start(home, environ)


def _answers(record: ServerRecord) -> bool:
    with Client(parse_address(record.url)) as client:
        try:
            client.status()
        except Unavailable:
            return False
        except GanglineError:
            return True  # in words of another version, perhaps; that is for the caller to judge
        return True


def _start(home: Path, environ: Mapping[str, str]) -> ServerRecord:
    deadline = time.monotonic() + READY_S
    log = home / "server.log"
    start = _log_start(log)
    _spawn(home, log, environ, deadline)
    # Had it died because a server was started by hand at the same moment, that one will do.
    record = find(home)
    if record is None:
        lines = log.read_bytes()[start:].decode(errors="replace").splitlines()[-LOG_TAIL_LINES:]
        raise Unavailable(f"the server of {home} did not start: " + " | ".join(lines or ["it said nothing"]),
                          fix=f"see {log}")
    return record


def _spawn(home: Path, log: Path, environ: Mapping[str, str], deadline: float) -> None:
    """Start a server that is nobody's child; returns when it said that it is ready, or has died."""
    if not sys.executable:
        raise Unavailable("this interpreter does not know its own path, so it cannot start a server",
                          fix=START_FIX)
    ready_r, ready_w = os.pipe()
    try:
        argv = [sys.executable, "-P", "-m", "gangline.server", "--home", str(home), "--detach",
                "--ready-fd", str(ready_w)]
        with open(log, "ab") as out:
            first = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=out, cwd="/",
                                     env=server_environ(home, environ), start_new_session=True,
                                     close_fds=True, pass_fds=(ready_w,))
        os.close(ready_w)
        ready_w = -1
        first.wait()  # it leaves the server behind and ends at once
        # The server holds the other end of the pipe: a byte means ready, the end means it died.
        poll = select.poll()
        poll.register(ready_r, select.POLLIN)
        if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
            raise Unavailable(f"the server of {home} is not ready after {READY_S:.0f}s", fix=f"see {log}")
    finally:
        os.close(ready_r)
        if ready_w >= 0:
            os.close(ready_w)


def server_environ(home: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of a started server: an allow-list, so that nothing of a host process leaks in."""
    kept = {name: value for name, value in environ.items()
            if name not in _DROPPED and (name in _ALLOWED or name.startswith(_ALLOWED_PREFIXES))}
    kept["GANGLINE_HOME"] = str(home)
    root = Path(gangline.model.__file__).resolve().parents[2]
    if not _on_site_path(root):
        kept["PYTHONPATH"] = str(root)
    return kept


def _on_site_path(root: Path) -> bool:
    """Whether a fresh interpreter finds packages of `root` by itself, installed or by a .pth file."""
    for folder in {Path(sysconfig.get_path(name)) for name in ("purelib", "platlib")}:
        if folder == root:
            return True
        for pth in folder.glob("*.pth"):
            with contextlib.suppress(OSError, UnicodeDecodeError):
                if str(root) in pth.read_text().splitlines():
                    return True
    return False


def _make_home(home: Path) -> None:
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as exc:
        raise unusable_home(home, exc) from None


@contextlib.contextmanager
def _start_lock(home: Path) -> Iterator[None]:
    try:
        fd = os.open(home / "start.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as exc:
        raise unusable_home(home, exc) from None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def _log_start(log: Path) -> int:
    """Where the next server's lines begin, after setting aside a log that has grown too long."""
    try:
        size = log.stat().st_size
    except FileNotFoundError:
        return 0
    if size > LOG_KEPT_BYTES:
        os.replace(log, log.with_suffix(".log.1"))
        return 0
    return size
