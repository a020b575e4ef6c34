"""Following a gang to its end: progress, logs, and what Ctrl-C and SIGTERM mean meanwhile."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING

from gangline.cli.app import INTERRUPTED
from gangline.cli.feed import Feed, LogEnd, Lost, News, Signalled
from gangline.cli.render_follow import changes, log_line, status_line
from gangline.cli.screen import Screen
from gangline.client.tail import LogLine, attempt_over
from gangline.model.errors import GanglineError, Unavailable
from gangline.model.gang import Ensured, GangView

if TYPE_CHECKING:
    from gangline.client.http import Client

MAX_FOLLOWED_RANKS = 16
TERMINATED = 128 + signal.SIGTERM
_LAST_LINES_S = 10.0
_TICK_S = 1.0
_CANCEL_S = 0.5  # what "at once" allows a request that is on its way
_HOLD_S = 25.0
_LIVE_HOLD_S = 2.0  # somebody looks at the progress on a terminal


@dataclass(frozen=True, slots=True)
class Ending:
    """How following ended: the gang's last view, or the exit status of leaving before that."""

    view: GangView | None
    interrupted: bool = False
    left_with: int = 0


class Follower:
    """Follows one gang in the main thread. The first Ctrl-C cancels the gang, the second leaves at
    once; SIGTERM leaves the gang to itself."""

    def __init__(self, client: Client, ensured: Ensured, screen: Screen, ranks: tuple[int, ...] = ()) -> None:
        self._client = client
        self._gang = ensured.gang
        self._token = ensured.token
        self._screen = screen
        self._ranks = ranks
        self._feed = Feed(client, ensured.gang)
        self._view: GangView | None = None
        self._reading = 0
        self._interrupts = 0
        self._cancelled = threading.Event()
        self._final_s: float | None = None

    def run(self) -> Ending:
        """Follow until the gang is over, or the person leaves.

        Raises:
            GanglineError: the server cannot be followed any more; the gang goes on.
        """
        with _signals(self._feed):
            self._feed.watch(self._token, _LIVE_HOLD_S if self._screen.live else _HOLD_S)
            try:
                return self._loop()
            finally:
                self._screen.close()

    def _loop(self) -> Ending:
        while True:
            item = self._feed.next(_TICK_S if self._screen.live or self._final_s is not None else None)
            match item:
                case News(view):
                    self._news(view)
                case LogLine():
                    self._screen.log(log_line(item.rank, item.text, self._world_size()))
                case LogEnd():
                    self._feed.open_logs -= 1
                case Signalled(number):
                    leaving = self._signalled(number)
                    if leaving is not None:
                        return leaving
                case Lost(error):
                    self._lost(error)
                case None:
                    pass
            if self._over():
                return Ending(self._view, interrupted=self._interrupts > 0)
            if self._view is not None and self._final_s is None:
                self._screen.keep(status_line(self._view, int(time.time() * 1000)))

    def _news(self, view: GangView) -> None:
        for line in changes(self._view, view, waits=not self._screen.live):  # the line in place says why
            self._screen.say(line)
        self._view = view
        self._read_logs(view)
        if view.state.final and self._final_s is None:
            self._final_s = time.monotonic()

    def _read_logs(self, view: GangView) -> None:
        for attempt in view.attempts:
            # Ranks are those of the newest attempt; one that came and went unseen kept its size.
            if attempt.number > self._reading and view.ranks:
                self._reading = attempt.number
                for rank in self._followed(view):
                    self._feed.log(rank, attempt.number)

    def _followed(self, view: GangView) -> list[int]:
        known = [r.rank for r in view.ranks]
        if self._ranks:
            return [rank for rank in self._ranks if rank in known]
        if len(known) <= MAX_FOLLOWED_RANKS:
            return known
        if self._reading == 1:
            self._screen.say(f"{len(known)} ranks: showing the log of rank 0; --rank N shows others")
        return known[:1]

    def _world_size(self) -> int:
        return len(self._view.ranks) if self._view else 1

    def _over(self) -> bool:
        if self._final_s is None:
            return False
        return self._feed.open_logs == 0 or time.monotonic() - self._final_s > _LAST_LINES_S

    def _lost(self, error: GanglineError) -> None:
        if self._view is not None and attempt_over(self._view, self._reading):
            return  # only the rest of a log is missing
        hint = f"the gang goes on; follow it with: gangline logs -f {self._gang}"
        if isinstance(error, Unavailable):
            error.fix = f"{error.fix}; {hint}" if error.fix else hint
        raise error

    def _signalled(self, number: int) -> Ending | None:
        if number == signal.SIGTERM:
            self._screen.say(f"detached; {self._gang} goes on. Follow it with: gangline logs -f "
                             f"{self._gang}; cancel it with: gangline cancel {self._gang}")
            return Ending(self._view, left_with=TERMINATED)
        self._interrupts += 1
        if self._interrupts > 1:
            heard = self._cancelled.wait(_CANCEL_S)
            now = "is stopping" if heard else "was not told to stop yet"
            self._screen.say(f"left; {self._gang} {now}. Make sure with: gangline cancel {self._gang}")
            return Ending(self._view, interrupted=True, left_with=INTERRUPTED)
        self._screen.say(f"cancelling {self._gang}; Ctrl-C again leaves at once")
        threading.Thread(target=self._cancel, daemon=True).start()
        return None

    def _cancel(self) -> None:
        try:
            self._client.cancel(self._gang, self._token, "Ctrl-C")
            self._cancelled.set()
        except GanglineError as error:
            self._feed.put(Lost(error))


@contextlib.contextmanager
def _signals(feed: Feed) -> Iterator[None]:
    """Turn Ctrl-C and SIGTERM into items of the feed."""

    def handle(number: int, _frame: FrameType | None) -> None:
        feed.put(Signalled(number))

    old = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
