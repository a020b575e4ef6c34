"""A server's hold on its home: one process per home, by a lock the kernel gives back when it dies."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from gangline.client.address import unusable_home
from gangline.client.record import read_record
from gangline.model.errors import Conflict

LEAVING_S = 15.0  # how long a server that is on its way out may still hold the home
_LOOK_AGAIN_S = 0.05


@contextlib.contextmanager
def held_home(home: Path) -> Iterator[None]:
    """The home made private and held for as long as the block lasts.

    Raises `Rejected` when the home cannot be used, `Conflict` when another server holds it.
    """
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        home.chmod(0o700)
        fd = os.open(home / "server.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as exc:
        raise unusable_home(home, exc) from None
    try:
        _lock(fd, home)
        yield
    finally:
        os.close(fd)


def _lock(fd: int, home: Path) -> None:
    until_s = time.monotonic() + LEAVING_S
    while True:
        try:
            return fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pass
        record = read_record(home)
        if record is not None and record.alive:
            raise Conflict(f"a server already runs for {home}: process {record.pid} at {record.url}",
                           fix="use it, or end it with: gangline stop")
        if time.monotonic() > until_s:
            raise Conflict(f"another process holds {home / 'server.lock'}",
                           fix="end the server that is starting or leaving there")
        time.sleep(_LOOK_AGAIN_S)
