"""Being asked to stop: SIGTERM, which every rank of a gang gets before its grace begins to run out."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from pathlib import Path
from types import FrameType
from typing import Any

from gangline.model.errors import Rejected
from gangline.runtime.group import any_rank
from gangline.runtime.info import membership


class _Ear:
    """Listens for SIGTERM in one process; whoever listened before still hears it."""

    def __init__(self) -> None:
        self.heard = False
        self.agreed = False
        self._before: Any = signal.getsignal(signal.SIGTERM)
        signal.signal(signal.SIGTERM, self._hear)

    def _hear(self, signum: int, frame: FrameType | None) -> None:
        self.heard = True
        if callable(self._before):
            self._before(signum, frame)

    def close(self) -> None:
        signal.signal(signal.SIGTERM, self._before or signal.SIG_DFL)


_ear: _Ear | None = None


def stop_requested() -> bool:
    """Whether this gang was asked to stop: then save, and return within the spec's `grace`.

    A gang is asked when it is preempted, resized, cancelled, or has reached its timeout. The first call
    begins to listen, and from then on SIGTERM no longer ends the process; call it before the first step.
    Once true it stays true. With a process group of torch it is collective and gives all ranks the same
    answer at the same call, so that they save the same step: every rank calls it equally often (it costs
    one small all-reduce). Without one each rank answers for itself.

    A rank that leaves with exit code 0 after it was true counts as stopped, not as done.

    Raises:
        Rejected: the first call is not made in the main thread, the only one that may listen.
    """
    ear = _listen()
    if not ear.agreed and any_rank(ear.heard):
        ear.agreed = True
        _note_down()
    return ear.agreed


def _listen() -> _Ear:
    global _ear
    if _ear is None:
        if threading.current_thread() is not threading.main_thread():
            raise Rejected("stop_requested() was first called outside the main thread", field="stop_requested",
                           fix="call it once in the main thread, before the others begin")
        _ear = _Ear()
    return _ear


def _deafen() -> None:
    """A forked child (a data loader, a pool's worker) must end when its parent ends it by SIGTERM."""
    global _ear
    if _ear is not None:
        _ear.close()
        _ear = None


os.register_at_fork(after_in_child=_deafen)


def _note_down() -> None:
    """Tells the supervisor that this rank means to leave, in case nobody of ours had asked it to."""
    member = membership()
    if member is not None:
        with contextlib.suppress(OSError):
            Path(os.environ["GANGLINE_INFO"]).with_name(f"rank-{member.rank}.stopped").touch(mode=0o600)
