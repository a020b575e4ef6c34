"""One uvicorn server on one socket that we bound, without its signals, ticks and logs."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator

import uvicorn

from gangline.server.asgi import App

KEEP_ALIVE_S = 75
GRACE_S = 5


class Listener(uvicorn.Server):
    """Serves an app until `exit` is set. An idle one does nothing at all, where uvicorn's own ticks."""

    def __init__(self, app: App, sock: socket.socket, leave: asyncio.Event) -> None:
        super().__init__(uvicorn.Config(
            app, lifespan="off", ws="none", log_config=None, access_log=False, proxy_headers=False,
            server_header=False, date_header=False, timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=GRACE_S))
        self._sock = sock
        self._leave = leave
        self.ready = asyncio.Event()

    async def run_until_left(self) -> None:
        await self.serve(sockets=[self._sock])

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready.set()

    async def main_loop(self) -> None:
        await self.on_tick(0)
        await self._leave.wait()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield  # the composition root owns the signals
