from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable

from fastapi import Request
from starlette.types import Message

from gangline.server.notify import Notifier, gang_key
from gangline.server.waits import hold


class Caller:
    """A request whose client can leave."""

    def __init__(self) -> None:
        self.left = asyncio.Event()
        self.request = Request({"type": "http", "method": "GET", "path": "/", "headers": []}, self._receive)

    async def _receive(self) -> Message:
        await self.left.wait()
        return {"type": "http.disconnect"}


class Number:
    """A value that is news from the moment it is not None, and how often it was read."""

    def __init__(self) -> None:
        self.value: int | None = None
        self.reads = 0
        self.was_read = asyncio.Event()

    async def read(self) -> int | None:
        self.reads += 1
        self.was_read.set()
        return self.value


def run(main: Callable[[Notifier], Awaitable[None]]) -> None:
    async def inside() -> None:
        async with asyncio.timeout(20):
            await main(Notifier(asyncio.get_running_loop()))

    asyncio.run(inside())


def test_a_touch_from_another_thread_wakes_only_who_listens_for_it() -> None:
    async def main(notifier: Notifier) -> None:
        ours, theirs = Number(), Number()
        waits = [asyncio.create_task(hold(Caller().request, notifier, (gang_key(name),), 15, number.read))
                 for name, number in (("g-1", ours), ("g-2", theirs))]
        await ours.was_read.wait()
        await theirs.was_read.wait()
        ours.value = 7
        threading.Thread(target=notifier.committed, args=({"g-1"}, set())).start()
        assert await waits[0] == 7
        assert (ours.reads, theirs.reads) == (2, 1)
        notifier.close()
        assert await waits[1] is None
        assert notifier.listeners == 0

    run(main)


def test_a_change_while_reading_is_not_missed() -> None:
    async def main(notifier: Notifier) -> None:
        number = Number()

        async def read() -> int | None:
            seen = await number.read()
            if number.reads == 1:
                number.value = 1  # changed after it was looked at, before anybody waits
                notifier.committed({"g-1"}, set())
            return seen

        assert await hold(Caller().request, notifier, (gang_key("g-1"),), 15, read) == 1

    run(main)


def test_a_touch_without_news_goes_on_waiting_until_the_time_is_over() -> None:
    async def main(notifier: Notifier) -> None:
        number = Number()
        wait = asyncio.create_task(hold(Caller().request, notifier, (gang_key("g-1"),), 0.2, number.read))
        await number.was_read.wait()
        notifier.committed({"g-1"}, set())
        assert await wait is None
        assert number.reads == 2

    run(main)


def test_a_client_that_leaves_frees_its_wait() -> None:
    async def main(notifier: Notifier) -> None:
        number, caller = Number(), Caller()
        wait = asyncio.create_task(hold(caller.request, notifier, (gang_key("g-1"),), 60, number.read))
        await number.was_read.wait()
        assert notifier.listeners == 1
        caller.left.set()
        assert await wait is None
        assert notifier.listeners == 0

    run(main)


def test_a_closed_notifier_holds_nobody() -> None:
    async def main(notifier: Notifier) -> None:
        notifier.close()
        assert await hold(Caller().request, notifier, ("k",), 60, Number().read) is None

    run(main)
