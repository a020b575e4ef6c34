"""What ranks print, carried to the server as it grows."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
from pathlib import Path

from gangline.model.errors import Bug, GanglineError, Unavailable
from gangline.model.orders import LogPiece
from gangline.node.link import Link
from gangline.node.outbox import About

_PIECE_BYTES = 256 * 1024
_PIECES = 8
_LOOK_S = (0.1, 0.25)  # between looks: while something grows, and while nothing does
_TAIL_BYTES = 32 * 1024
_LINE_CHARS = 2000


class _Log:
    """One rank's file and how much of it the server has."""

    def __init__(self, about: About, rank: int, path: Path) -> None:
        self.about, self.rank, self.path, self.sent_bytes = about, rank, path, 0

    def unsent(self) -> LogPiece | None:
        try:
            with self.path.open("rb") as file:
                file.seek(self.sent_bytes)
                data = file.read(_PIECE_BYTES)
        except OSError:
            return None
        if not data:
            return None
        gang, attempt, generation = self.about
        return LogPiece(gang=gang, attempt=attempt, generation=generation, rank=self.rank,
                        offset=self.sent_bytes, data_b64=base64.b64encode(data).decode())


class LogPump:
    """Carries every rank's log, each in order, from files that only ever grow."""

    def __init__(self, link: Link, node: str) -> None:
        self._link, self._path = link, f"/v1/nodes/{node}/logs"
        self._logs: dict[tuple[About, int], _Log] = {}
        self._look = asyncio.Event()
        self._round = asyncio.Condition()

    def add(self, about: About, rank: int, path: Path) -> None:
        self._logs[about, rank] = _Log(about, rank, path)
        self._look.set()

    def look(self) -> None:
        """Something was surely written: do not wait for the next look."""
        self._look.set()

    def drop(self, about: About) -> None:
        for key in [key for key in self._logs if key[0] == about]:
            del self._logs[key]

    async def drained(self, about: About, *, within_s: float) -> bool:
        """Wait until the server has every byte written so far; False when it takes too long."""
        self._look.set()
        try:
            async with asyncio.timeout(within_s), self._round:
                await self._round.wait_for(lambda: not self._behind(about))
        except TimeoutError:
            return False
        return True

    async def deliver(self) -> None:
        """Carry for ever."""
        while True:
            grew = await self._carry()
            async with self._round:
                self._round.notify_all()
            if grew is None:
                await asyncio.sleep(_LOOK_S[1])
            elif not grew:
                await self._pause()

    async def _pause(self) -> None:
        self._look.clear()
        timeout_s = _LOOK_S[1] if self._logs else None
        with contextlib.suppress(TimeoutError):
            # Not wait_for: in Python 3.11 it loses a cancellation that meets the event.
            async with asyncio.timeout(timeout_s):
                await self._look.wait()

    async def _carry(self) -> bool | None:
        """Whether anything was sent; None when the server did not take it."""
        pieces = [(log, piece) for log in list(self._logs.values()) if (piece := log.unsent()) is not None]
        for start in range(0, len(pieces), _PIECES):
            part = pieces[start:start + _PIECES]
            try:
                answer = await self._link.send("POST", self._path, {"pieces": [piece.full() for _, piece in part]})
            except (Unavailable, Bug):
                return None
            except GanglineError:
                answer = {}  # the server wants no more of this attempt's log
            has = {(gap["gang"], gap["attempt"], gap["rank"]): int(gap["have"]) for gap in answer.get("gaps", ())}
            for log, piece in part:
                end = piece.offset + len(base64.b64decode(piece.data_b64))
                # A server that lost the end of a log, with its disk or its life, is sent it again.
                log.sent_bytes = has.get((piece.gang, piece.attempt, piece.rank), end)
        if pieces and not any(len(piece.data_b64) * 3 // 4 >= _PIECE_BYTES for _, piece in pieces):
            await asyncio.sleep(_LOOK_S[0])  # let lines gather into one request; one that lags does not wait
        return bool(pieces)

    def _behind(self, about: About) -> bool:
        return any(log.sent_bytes < _size_bytes(log.path)
                   for key, log in self._logs.items() if key[0] == about)


def last_lines(path: Path, count: int) -> tuple[str, ...]:
    """The last lines of a log that say something, each cut to a readable length."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, _size_bytes(path) - _TAIL_BYTES))
            text = file.read().decode(errors="replace")
    except OSError:
        return ()
    # A progress bar rewrites its line: what it said last is the line.
    lines = [line.rstrip().rpartition("\r")[2][:_LINE_CHARS] for line in text.split("\n")]
    while lines and not lines[-1]:
        lines.pop()
    return tuple(lines[-count:])


def _size_bytes(path: Path) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0
