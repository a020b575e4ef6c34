"""`Turn`: one after another, in the order of asking."""

from __future__ import annotations

import threading
from collections import deque
from types import TracebackType

from gangline.model.errors import Bug


class Turn:
    """A lock that is handed to whoever has waited longest.

    A plain lock goes to whoever is awake, so a thread that takes it again and again, as the loop does,
    would keep the others out. Bug when its holder asks for it again.
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._taken = False
        self._holder: int | None = None
        self._waiting: deque[threading.Lock] = deque()

    @property
    def waiting(self) -> int:
        """How many wait for it."""
        return len(self._waiting)

    def __enter__(self) -> None:
        me = threading.get_ident()
        if self._holder == me:
            raise Bug("a transaction was opened inside another one")
        with self._guard:
            gate = None
            if self._taken:
                gate = threading.Lock()
                gate.acquire()
                self._waiting.append(gate)
            self._taken = True
        if gate is not None:
            gate.acquire()
        self._holder = me

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None,
                 trace: TracebackType | None) -> None:
        self._holder = None
        with self._guard:
            if self._waiting:
                self._waiting.popleft().release()
            else:
                self._taken = False
