"""Long polls: read, and if there is no news wait for a bell; a client that leaves frees its wait."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar

from fastapi import Request

from gangline.server.notify import Bell, Notifier

T = TypeVar("T")

LONGEST_WAIT_S = 60.0


async def hold(request: Request, notifier: Notifier, keys: tuple[str, ...], wait_s: float,
               read: Callable[[], Awaitable[T | None]]) -> T | None:
    """What `read` returns once it is not None; None when `wait_s` passed or nobody waits any more.

    `read` runs once at first and once for every time that one of `keys` was touched.
    """
    clock = asyncio.get_running_loop()
    until_s = clock.time() + min(wait_s, LONGEST_WAIT_S)
    with notifier.listen(*keys) as bell:
        news = await read()
        if news is not None or wait_s <= 0:
            return news
        async with _noticing_departure(request, bell):
            while await bell.wait(until_s - clock.time()):
                bell.clear()
                news = await read()
                if news is not None:
                    return news
    return None


@contextlib.asynccontextmanager
async def _noticing_departure(request: Request, bell: Bell) -> AsyncIterator[None]:
    async def listen() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass
        bell.dismiss()

    listener = asyncio.create_task(listen())
    try:
        yield
    finally:
        listener.cancel()
