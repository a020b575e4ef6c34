"""Watching a gang to its end: in a trigger's event loop, or in a thread beside a task that waits."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from airflow_gangline.relay import Relay

if TYPE_CHECKING:
    from airflow_gangline.hooks import Endpoint

WATCH_S = 25.0  # how long the server may hold one question
FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 30.0
STOP_S = 2.0

SUPERSEDED = "superseded"
REFUSED = "refused"

Say = Callable[[str], None]


async def follow(endpoint: Endpoint, gang: str, token: str, say: Say) -> dict[str, Any]:
    """{"gang", "state"} once the gang is final; news on the way goes to `say` as short lines.

    State is the gang's, or `superseded` when another owner acts for the slot now, or `refused` (with
    "text") when the server will not answer for it. A server that cannot be reached is waited for.
    """
    from gangline.model.errors import GanglineError, Superseded, Unavailable

    relay = Relay()
    pause_s = FIRST_PAUSE_S
    while True:
        try:
            return {"gang": gang, "state": await _watch(endpoint, gang, token, relay, say)}
        except Unavailable as exc:
            say(f"{exc}; asking again in {pause_s:.0f} s")
        except Superseded:
            return {"gang": gang, "state": SUPERSEDED}
        except GanglineError as exc:
            return {"gang": gang, "state": REFUSED, "text": str(exc)}
        await asyncio.sleep(pause_s)
        pause_s = min(LONGEST_PAUSE_S, 2 * pause_s)


async def _watch(endpoint: Endpoint, gang: str, token: str, relay: Relay, say: Say) -> str:
    cursor = 0
    async with await endpoint.aconnect() as client:
        while True:
            watched = await client.watch(gang, token, cursor, WATCH_S)
            for line in relay.lines(watched.view, time.monotonic()):
                say(line)
            if watched.view.state.final:
                return str(watched.view.state)
            cursor = watched.cursor


class Follower:
    """`follow` in a thread of its own, so that the thread that waits can be interrupted.

    The queue is the one kind that a signal handler may put into while the thread it interrupted is
    taking from it.
    """

    def __init__(self, news: SimpleQueue[Any], endpoint: Endpoint, gang: str, token: str, say: Say) -> None:
        self._news = news
        self._about = (endpoint, gang, token, say)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[dict[str, Any]] | None = None
        self._thread = threading.Thread(target=self._run, name=f"follow-{gang}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop watching; the gang goes on."""
        if self._loop is not None and self._task is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended by itself
                self._loop.call_soon_threadsafe(self._task.cancel)
        self._thread.join(STOP_S)

    def _run(self) -> None:
        try:
            self._news.put(asyncio.run(self._main()))
        except asyncio.CancelledError:
            return
        except Exception as exc:  # noqa: BLE001  it is raised again in the thread that waits
            self._news.put(exc)

    async def _main(self) -> dict[str, Any]:
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.ensure_future(follow(*self._about))
        return await self._task
