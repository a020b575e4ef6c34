"""The sure end of a set of processes, however fast they fork."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterable

from gangline.node.proc import Proc, send

Find = Callable[[], Iterable[Proc]]

_PAUSE_S = (0.001, 0.05)  # between looks: the first, and the longest


def end_all(find: Find, *, patience_s: float | None = None) -> int:
    """SIGKILL all that `find` finds until it finds nothing; the number of processes ended.

    They are frozen first: a frozen process cannot fork, so once a look finds no new one the set is whole.
    Gives up after `patience_s` (None: never) with processes left, which only an uninterruptible one brings
    about; the caller looks again.
    """
    deadline = None if patience_s is None else time.monotonic() + patience_s
    ended: set[tuple[int, int]] = set()
    pause_s = _PAUSE_S[0]
    while True:
        frozen = _freeze(find)
        if not frozen:
            return len(ended)
        for proc in frozen.values():
            send(proc, signal.SIGKILL)
        ended |= frozen.keys()
        if deadline is not None and time.monotonic() > deadline:
            return len(ended)
        time.sleep(pause_s)
        pause_s = min(pause_s * 2, _PAUSE_S[1])


def _freeze(find: Find) -> dict[tuple[int, int], Proc]:
    frozen: dict[tuple[int, int], Proc] = {}
    while True:
        fresh = [proc for proc in find() if proc.identity not in frozen]
        if not fresh:
            return frozen
        for proc in fresh:
            send(proc, signal.SIGSTOP)
            frozen[proc.identity] = proc
