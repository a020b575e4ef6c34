"""The supervisor's one connection to its server, and how long ago the server was heard."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx

from gangline.model.base import Wire
from gangline.model.errors import Bug, GanglineError, Unavailable

_CONNECT_S = 5.0
_REPLY_S = 30.0
_PAUSES_S = (0.05, 1.0)  # between tries: the first, and the longest


class Link:
    """JSON requests to a server by `unix:/path` or `http(s)://host:port`, with a node's token if it has one."""

    def __init__(self, url: str, token: str | None = None) -> None:
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        timeout = httpx.Timeout(_REPLY_S, connect=_CONNECT_S)
        limits = httpx.Limits(max_keepalive_connections=8, keepalive_expiry=60.0)
        if url.startswith("unix:"):
            transport = httpx.AsyncHTTPTransport(uds=url.removeprefix("unix:"), limits=limits)
            self._http = httpx.AsyncClient(transport=transport, base_url="http://gangline", timeout=timeout,
                                           headers=headers)
        else:
            self._http = httpx.AsyncClient(base_url=url, timeout=timeout, limits=limits, headers=headers)
        self.heard_s = time.monotonic()

    async def close(self) -> None:
        await self._http.aclose()

    async def send(self, method: str, path: str, body: Wire | Mapping[str, Any] | None = None, *,
                   wait_s: float = 0.0) -> dict[str, Any]:
        """One try. `Unavailable` when nobody answers, else the error that the server named.

        `wait_s` is how long the server may hold a long poll.
        """
        sent_s = time.monotonic()
        try:
            content = body.full() if isinstance(body, Wire) else body
        except ValueError as exc:
            raise Bug(f"what was to be sent to {path} cannot be written as JSON: {exc}") from None
        try:
            reply = await self._http.request(method, path, json=content, timeout=_REPLY_S + wait_s)
        except httpx.HTTPError as exc:
            raise Unavailable(f"the server does not answer: {type(exc).__name__} {exc}") from None
        try:
            answer = reply.json()
        except ValueError:
            answer = None
        if reply.status_code < 500 and isinstance(answer, dict):
            # The server had us at the latest when it read the request: a lease runs from there.
            self.heard_s = max(self.heard_s, sent_s)
        if reply.is_success and isinstance(answer, dict):
            return answer
        if isinstance(answer, dict) and "kind" in answer:
            raise GanglineError.from_wire(answer)
        kind = Unavailable if reply.status_code >= 500 else Bug
        raise kind(f"{method} {path} was answered by {reply.status_code}")

    async def insist(self, method: str, path: str, body: Wire | Mapping[str, Any] | None = None, *,
                     for_s: float | None = None) -> dict[str, Any]:
        """Like `send`, tried again while the server is unavailable; `for_s` None means for ever."""
        deadline_s = None if for_s is None else time.monotonic() + for_s
        pause_s = _PAUSES_S[0]
        while True:
            try:
                return await self.send(method, path, body)
            except Unavailable:
                if deadline_s is not None and time.monotonic() + pause_s > deadline_s:
                    raise
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, _PAUSES_S[1])

    @asynccontextmanager
    async def stream(self, path: str) -> AsyncIterator[httpx.Response]:
        """The body of a GET as it comes; the caller looks at the status."""
        try:
            async with self._http.stream("GET", path) as reply:
                yield reply
        except httpx.HTTPError as exc:
            raise Unavailable(f"the server does not answer: {type(exc).__name__} {exc}") from None
