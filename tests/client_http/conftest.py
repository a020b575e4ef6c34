"""A small real server that answers as a test tells it to."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response

from gangline.client.address import Address, parse_address


class Answering:
    """Serves prepared answers in order, the last one for ever, and keeps what was asked."""

    def __init__(self, socket: Path) -> None:
        self.address: Address = parse_address(f"unix:{socket}")
        self.asked: list[tuple[str, str, Any]] = []
        self.answers: list[tuple[int, Any]] = [(200, {})]
        self._socket = socket
        self._app = FastAPI()
        self._app.add_api_route("/{path:path}", self._answer, methods=["GET", "HEAD", "POST", "PUT"])
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None

    async def _answer(self, path: str, request: Request) -> Response:
        body = await request.body()
        query = f"?{request.url.query}" if request.url.query else ""
        kind = request.headers.get("content-type", "")
        self.asked.append((request.method, f"/{path}{query}",
                           await request.json() if kind == "application/json" else body))
        status, answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return Response(status_code=status) if answer is None else JSONResponse(answer, status)

    def start(self) -> None:
        config = uvicorn.Config(self._app, uds=str(self._socket), lifespan="off", log_config=None, ws="none")
        self._server = uvicorn.Server(config)
        ready = threading.Event()
        began = self._server.startup

        async def startup(sockets: Any = None) -> None:
            await began(sockets)
            ready.set()

        self._server.startup = startup  # type: ignore[method-assign]
        self._thread = threading.Thread(target=lambda: asyncio.run(self._server.serve()))  # type: ignore[union-attr]
        self._thread.start()
        assert ready.wait(20)

    def stop(self) -> None:
        if self._server is not None and self._thread is not None:
            self._server.should_exit = True
            self._thread.join(20)
            self._server = self._thread = None


@pytest.fixture
def answering(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Answering]:
    server = Answering(tmp_path_factory.mktemp("a") / "s.sock")
    server.start()
    yield server
    server.stop()
