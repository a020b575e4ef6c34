"""`AsyncClient`: what a waiting coroutine needs of a server, without a thread of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Self, TypeVar

from gangline.client import api
from gangline.client.address import Address
from gangline.client.api import Call, EventPage
from gangline.client.http import RETRY_S, START_FIX
from gangline.client.lean import httpx
from gangline.client.retry import Retry
from gangline.client.transport import LIMITS, client_options, lost, read_reply, timeout
from gangline.model.errors import Conflict, Unavailable
from gangline.model.gang import GangView, LogChunk, Watched

T = TypeVar("T")


class AsyncClient:
    """A connection to one server for use inside one event loop. Same promises and errors as `Client`."""

    def __init__(self, address: Address, *, recover: Callable[[], Address] | None = None,
                 refusal: Conflict | None = None, retry_s: float = RETRY_S) -> None:
        self.address = address
        self._recover = recover
        self._refusal = refusal
        self._retry_s = retry_s
        self._reached = recover is not None
        self._http = _open(address)
        self._retired: list[httpx.AsyncClient] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, exc: BaseException | None,
                        trace: TracebackType | None) -> None:
        await self.close()

    async def close(self) -> None:
        """Give back the sockets; the client is of no use afterwards."""
        for http in (self._http, *self._retired):
            await http.aclose()

    async def observe(self, gang: str) -> GangView:
        """The gang of that id, or the one active gang of that name or prefix; `NotFound` otherwise."""
        return await self._send(api.observe(gang))

    async def watch(self, gang: str, token: str, cursor: int = 0, wait_s: float = 25.0) -> Watched:
        """News after `cursor`, waiting up to `wait_s` for some; renews the owner's claim.

        Raises `Superseded` when another owner acts for the slot now.
        """
        return await self._send(api.watch(gang, token, cursor, wait_s))

    async def events(self, gang: str, after: int = 0, wait_s: float = 0.0) -> EventPage:
        """Events of a gang after a cursor; needs no token."""
        return await self._send(api.events(gang, after, wait_s))

    async def logs(self, gang: str, rank: int = 0, attempt: int | None = None, offset: int = 0,
                   wait_s: float = 0.0) -> LogChunk:
        """A piece of one rank's log from a byte offset. Without `attempt`, of the latest one."""
        return await self._send(api.logs(gang, rank, attempt, offset, wait_s))

    async def cancel(self, gang: str, token: str | None = None, reason: str = "") -> GangView:
        """Ask for the end of a gang. Without a token a person asks; an outdated token changes nothing."""
        return await self._send(api.cancel(gang, token, reason))

    async def _send(self, call: Call[T]) -> T:
        if self._refusal is not None and not call.always:
            raise self._refusal
        retry = Retry(call, self._retry_s)
        recover: Callable[[], Address] | None = None
        while True:
            try:
                if recover is not None:
                    self._move(await asyncio.to_thread(recover))
                return await self._once(call)
            except Unavailable as exc:
                if not self._reached:
                    raise
                await asyncio.sleep(retry.pause_s(exc))
                recover = self._recover

    async def _once(self, call: Call[T]) -> T:
        try:
            response = await self._http.request(call.method, call.path, params=dict(call.query),
                                                json=call.body, timeout=timeout(call))
        except httpx.TransportError as exc:
            raise lost(self.address, exc, START_FIX) from exc
        self._reached = True
        return read_reply(call, response)

    def _move(self, address: Address) -> None:
        if address != self.address:
            self._retired.append(self._http)  # other tasks may still be in a call on it
            self._http, self.address = _open(address), address


def _open(address: Address) -> httpx.AsyncClient:
    transport = None
    if address.socket:
        transport = httpx.AsyncHTTPTransport(uds=address.socket, limits=LIMITS, verify=False)
    return httpx.AsyncClient(transport=transport, limits=LIMITS, **client_options(address))
