"""Reports on their way to the server: in order, kept until acknowledged, progress thinned out."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque

from gangline.model.errors import Bug, NotFound, Rejected, Unavailable
from gangline.model.gang import Progress
from gangline.model.orders import Advanced, RankExit, Report, Reports
from gangline.model.states import Cause
from gangline.node.link import Link

_BATCH = 16  # results may be a megabyte each
_BUG_TRIES = 20  # over some fifteen seconds, before a report the server fails on is given up
_PROGRESS_S = 0.5  # between two that are pushed
_PAUSES_S = (0.05, 1.0)

_LOG = logging.getLogger(__name__)

About = tuple[str, int, int]  # gang, attempt, generation


class Outbox:
    """Delivers every report at least once, in the order they were put in."""

    def __init__(self, link: Link, node: str, incarnation: str) -> None:
        self._link, self._path, self._incarnation = link, f"/v1/nodes/{node}/reports", incarnation
        self._waiting: deque[Report] = deque()
        self._progress: dict[About, Progress] = {}
        self._progress_s: dict[About, float] = {}
        self._news = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    def put(self, report: Report) -> None:
        self.settle((report.gang, report.attempt, report.generation))
        self._add(report)

    def advance(self, about: About, progress: Progress) -> None:
        """Keep the newest progress of an attempt; it leaves at most twice a second."""
        self._progress[about] = progress
        self._news.set()

    def settle(self, about: About) -> None:
        """Let progress that still waits leave before whatever comes next."""
        progress = self._progress.pop(about, None)
        if progress is not None:
            self._progress_s[about] = time.monotonic()
            gang, attempt, generation = about
            self._add(Advanced(gang=gang, attempt=attempt, generation=generation, progress=progress))

    def forget(self, about: About) -> None:
        self._progress.pop(about, None)
        self._progress_s.pop(about, None)

    def holds(self, about: About) -> bool:
        """Whether a report about this attempt is not acknowledged yet."""
        return any((one.gang, one.attempt, one.generation) == about for one in self._waiting)

    async def empty(self) -> None:
        """Return when everything put in so far is acknowledged."""
        await self._idle.wait()

    async def deliver(self) -> None:
        """Push for ever; `Conflict` or `NotFound` when the server wants no more of this supervisor."""
        pause_s, size, tries = _PAUSES_S[0], _BATCH, 0
        while True:
            await self._wait_for_news()
            batch = tuple(self._waiting)[:size]
            try:
                await self._push(batch)
            except Unavailable:
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 2, _PAUSES_S[1])
                continue
            except NotFound:
                raise
            except (Rejected, Bug) as exc:
                # One report that the server cannot take must not hold up the others for ever.
                alone, size, tries = size == 1, 1, tries + 1
                if not alone or (isinstance(exc, Bug) and tries < _BUG_TRIES):
                    await asyncio.sleep(pause_s)
                    pause_s = min(pause_s * 2, _PAUSES_S[1])
                    continue
                _LOG.error("the server refuses a report, it is dropped: %s: %s", exc, batch[0].kind)
                self._replace_result(batch[0])
            for _ in batch:
                self._waiting.popleft()
            if not self._waiting:
                self._idle.set()
            pause_s, size, tries = _PAUSES_S[0], _BATCH, 0

    def _replace_result(self, report: Report) -> None:
        """A rank whose result cannot be told has still ended: its gang must not wait for it."""
        if isinstance(report, RankExit) and report.result is not None:
            text = f"rank {report.rank} ended well, but the server could not take its result"
            self._waiting.append(report.model_copy(update={"result": None, "cause": Cause.USER, "text": text}))

    async def _push(self, batch: tuple[Report, ...]) -> None:
        await self._link.send("POST", self._path, Reports(incarnation=self._incarnation, reports=batch))

    async def _wait_for_news(self) -> None:
        while not self._waiting:
            self._news.clear()
            now_s = time.monotonic()
            due = [self._progress_s.get(about, 0.0) + _PROGRESS_S for about in self._progress]
            for about in [about for about in self._progress
                          if self._progress_s.get(about, 0.0) + _PROGRESS_S <= now_s]:
                self.settle(about)
            if self._waiting:
                return
            timeout_s = max(0.0, min(due) - now_s) if due else None
            with contextlib.suppress(TimeoutError):
                # Not wait_for: in Python 3.11 it loses a cancellation that meets the event.
                async with asyncio.timeout(timeout_s):
                    await self._news.wait()

    def _add(self, report: Report) -> None:
        self._waiting.append(report)
        self._idle.clear()
        self._news.set()
