"""Threads that wait on a server and put what comes into one queue, so that one loop can act on it all."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gangline.client.tail import LogLine, tail, tail_attempt
from gangline.model.errors import GanglineError
from gangline.model.gang import GangView

if TYPE_CHECKING:
    from gangline.client.http import Client


@dataclass(frozen=True, slots=True)
class News:
    """The gang as it is now."""

    view: GangView


@dataclass(frozen=True, slots=True)
class LogEnd:
    """A log that was followed is over."""

    rank: int


@dataclass(frozen=True, slots=True)
class Lost:
    """A thread could not go on."""

    error: GanglineError


@dataclass(frozen=True, slots=True)
class Signalled:
    """The process got a signal."""

    number: int


Item = News | LogLine | LogEnd | Lost | Signalled


class Feed:
    """The queue and the threads that fill it. They are daemons: leaving does not wait for them."""

    def __init__(self, client: Client, gang: str) -> None:
        self._client = client
        self._gang = gang
        self._items: queue.SimpleQueue[Item] = queue.SimpleQueue()
        self.open_logs = 0

    def put(self, item: Item) -> None:
        """Add an item; safe in a signal handler."""
        self._items.put(item)

    def next(self, timeout_s: float | None = None) -> Item | None:
        """The next item, or None after `timeout_s` seconds without one."""
        try:
            return self._items.get(timeout=timeout_s)
        except queue.Empty:
            return None

    def watch(self, token: str, hold_s: float) -> None:
        """Bring `News` for the owner of that token until the gang is over.

        What happens is brought at once; progress, which is no event, every `hold_s` seconds.
        """
        self._start(lambda: self._watch(token, hold_s))

    def log(self, rank: int, attempt: int) -> None:
        """Bring the lines of a rank in one attempt until that is over, then `LogEnd`."""
        self._log(rank, lambda: tail_attempt(self._client, self._gang, rank, attempt, follow=True))

    def log_all_attempts(self, rank: int, attempt: int | None) -> None:
        """Bring a rank's lines until the gang (or the attempt given) is over, then `LogEnd`."""
        self._log(rank, lambda: tail(self._client, self._gang, rank, attempt=attempt))

    def _log(self, rank: int, lines: Callable[[], Iterator[LogLine]]) -> None:
        self.open_logs += 1

        def read() -> None:
            try:
                for line in lines():
                    self.put(line)
            finally:
                self.put(LogEnd(rank))

        self._start(read)

    def _watch(self, token: str, hold_s: float) -> None:
        cursor = 0
        while True:
            watched = self._client.watch(self._gang, token, cursor, hold_s)
            cursor = watched.cursor
            self.put(News(watched.view))
            if watched.view.state.final:
                return

    def _start(self, work: Callable[[], None]) -> None:
        def guarded() -> None:
            try:
                work()
            except GanglineError as error:
                self.put(Lost(error))

        threading.Thread(target=guarded, daemon=True).start()
