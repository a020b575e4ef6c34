"""When a call that failed for want of a server is made again, and how long to pause before."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from gangline.client.api import Call
from gangline.model.errors import Unavailable

FIRST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 1.0


class Unsent(Unavailable):
    """No connection was made, so the server cannot have acted on the call."""


@dataclass(slots=True)
class Retry:
    """The tries of one call: repeats it with growing pauses until `for_s` seconds have passed."""

    call: Call[Any]
    for_s: float
    _pause_s: float = FIRST_PAUSE_S
    _began_s: float = field(default_factory=time.monotonic)

    def pause_s(self, error: Unavailable) -> float:
        """Seconds to pause before the next try; raises `error` when there must not be one."""
        if not (self.call.repeat or isinstance(error, Unsent)):
            raise error
        if time.monotonic() + self._pause_s > self._began_s + self.for_s:
            raise error
        pause_s, self._pause_s = self._pause_s, min(LONGEST_PAUSE_S, 2 * self._pause_s)
        return pause_s
