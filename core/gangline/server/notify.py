"""Bells that wake waiting requests when a commit or a log touches what they wait for."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection, Container, Iterator

ANY_GANG = "gangs"
_GANG = "gang:"


def gang_key(gang: str) -> str:
    return f"{_GANG}{gang}"


def node_key(node: str) -> str:
    return f"node:{node}"


def log_key(gang: str, rank: int) -> str:
    return f"log:{gang}:{rank}"


class Bell:
    """Rung from outside; `clear` before reading, so that what happens while reading rings again."""

    def __init__(self) -> None:
        self._rung = asyncio.Event()
        self.dismissed = False  # nobody waits for the answer any more, or the server is leaving

    def ring(self) -> None:
        self._rung.set()

    def dismiss(self) -> None:
        self.dismissed = True
        self._rung.set()

    def clear(self) -> None:
        if not self.dismissed:
            self._rung.clear()

    async def wait(self, timeout_s: float) -> bool:
        """True when rung within the time; False when it passed or the waiter is dismissed."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._rung.wait()
        except TimeoutError:
            return False
        return not self.dismissed


class Notifier:
    """Who listens for what. Idle listeners cost nothing: no timer, no query, no thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._bells: dict[str, set[Bell]] = {}
        self._closed = False

    def committed(self, gangs: Collection[str], nodes: Collection[str]) -> None:
        """Wake the listeners of these gangs and nodes. From any thread, after the commit."""
        keys = [*map(gang_key, gangs), *map(node_key, nodes), *([ANY_GANG] if gangs else [])]
        self.ring(keys)

    def ring(self, keys: Collection[str]) -> None:
        """Wake the listeners of these keys. From any thread."""
        # A listener that registers after this look reads after it too, and so sees the change itself.
        heard = [key for key in keys if key in self._bells]
        if heard:
            with contextlib.suppress(RuntimeError):  # the loop has ended, and every waiter with it
                self._loop.call_soon_threadsafe(self._ring, heard)

    def told(self, gangs: Container[str]) -> None:
        """Wake the listeners of those gangs that are among these. From any thread."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._ring_those, gangs)

    @contextlib.contextmanager
    def listen(self, *keys: str) -> Iterator[Bell]:
        """A bell for these keys, while the block lasts. Only in the event loop."""
        bell = Bell()
        if self._closed:
            bell.dismiss()
        for key in keys:
            self._bells.setdefault(key, set()).add(bell)
        try:
            yield bell
        finally:
            for key in keys:
                bells = self._bells[key]
                bells.discard(bell)
                if not bells:
                    del self._bells[key]

    def close(self) -> None:
        """Dismiss every listener, now and from now on: the server is leaving."""
        self._closed = True
        for bells in self._bells.values():
            for bell in bells:
                bell.dismiss()

    @property
    def listeners(self) -> int:
        """How many bells hang."""
        return len({id(bell) for bells in self._bells.values() for bell in bells})

    def _ring(self, keys: list[str]) -> None:
        for key in keys:
            for bell in self._bells.get(key, ()):
                bell.ring()

    def _ring_those(self, gangs: Container[str]) -> None:
        # A reason may be that of a hundred thousand gangs: the listeners are looked at, not the gangs.
        self._ring([key for key in self._bells if key.startswith(_GANG) and key.removeprefix(_GANG) in gangs])
