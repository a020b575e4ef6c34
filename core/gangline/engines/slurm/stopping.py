"""Ending jobs: their supervisors are asked first, and what is left after the grace is killed."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

from gangline.engines.slurm.programs import Programs
from gangline.model.errors import GanglineError, Rejected

_LOG = logging.getLogger(__name__)


@dataclass(slots=True)
class Stopping:
    """Ends jobs by id. Should this process die during a grace, whoever asks again begins a new one."""

    programs: Programs
    _timers: dict[str, threading.Timer] = field(init=False, default_factory=dict)
    _lock: threading.Lock = field(init=False, default_factory=threading.Lock)

    def stop(self, ids: Sequence[str], grace_s: float) -> None:
        for id in ids:
            if grace_s <= 0:
                self._kill(id)
                continue
            self._scancel("--state=PENDING", id)  # nobody is there to be asked
            self._scancel("--signal=TERM", id)
            self._kill_after(id, grace_s)

    def _kill_after(self, id: str, grace_s: float) -> None:
        with self._lock:
            if id in self._timers:
                return  # the grace that was given first counts
            timer = self._timers[id] = threading.Timer(grace_s, self._end, (id,))
            timer.name, timer.daemon = f"slurm-grace-{id}", True
            timer.start()

    def _end(self, id: str) -> None:
        try:
            self._kill(id)
        except GanglineError as exc:
            _LOG.warning("job %s could not be killed after its grace: %s", id, exc)
        finally:
            with self._lock:
                del self._timers[id]

    def _kill(self, id: str) -> None:
        """SIGKILL to its steps, then the end of the job; Slurm alone would first wait its own KillWait."""
        self._scancel("--signal=KILL", id)
        self._scancel(id)

    def _scancel(self, *args: str) -> None:
        with contextlib.suppress(Rejected):  # over already
            self.programs.run("scancel", *args)
