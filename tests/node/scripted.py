"""A real HTTP server on a unix socket with the node routes, driven by a test instead of a store."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import socketserver
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

from gangline.model.errors import Conflict, GanglineError, NotFound
from gangline.model.orders import Hello, Order, Orders, Poll, Report, Reports

DEADLINE_S = 30.0


class Script:
    """What the server answers, and all it was told; every change wakes whoever waits for a condition."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.url = f"unix:{path}"
        self.changed = threading.Condition()
        self.hellos: list[Hello] = []
        self.orders: dict[str, tuple[Order, ...]] = {}
        self.reports: list[Report] = []
        self.logs: dict[tuple[str, int, int], bytes] = {}
        self.gaps: list[str] = []  # log pieces that came out of order
        self.blobs: dict[str, bytes] = {}
        self.saves: list[dict[str, Any]] = []
        self.saved: list[dict[str, Any]] = []
        self.published: dict[int, int] = {}
        self.lease_s = 20.0
        self.deposed: set[str] = set()  # incarnations
        self._server: _Server | None = None

    # -- the test's side -----------------------------------------------------------------------------

    def start(self) -> None:
        self.path.unlink(missing_ok=True)
        self._server = _Server(self)
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def running(self) -> bool:
        return self._server is not None

    def stop(self) -> None:
        """Go away as a killed server does: no reply to whoever waits, nothing listens."""
        assert self._server is not None
        server, self._server = self._server, None
        server.shutdown()
        server.cut()
        self.path.unlink(missing_ok=True)
        with self.changed:
            self.changed.notify_all()

    def wait(self, until: Callable[[], Any], what: str, within_s: float = DEADLINE_S) -> Any:
        """The condition's value once it is true; fails with what did happen when it does not come true."""
        with self.changed:
            if not self.changed.wait_for(until, within_s):
                raise AssertionError(f"waited {within_s} s for {what}; reports: {self.reports}; logs: "
                                     f"{ {key: text[-2000:] for key, text in self.logs.items()} }")
            return until()

    def order(self, node: str, *orders: Order) -> None:
        with self.changed:
            self.orders[node] = orders
            self.changed.notify_all()

    def of(self, kind: str, gang: str, **fields: Any) -> list[Any]:
        return [report for report in self.reports if report.kind == kind and report.gang == gang
                and all(getattr(report, name) == value for name, value in fields.items())]

    def wait_report(self, kind: str, gang: str, count: int = 1, within_s: float = DEADLINE_S,
                    **fields: Any) -> list[Any]:
        self.wait(lambda: len(self.of(kind, gang, **fields)) >= count, f"{count} {kind} {fields} of {gang}",
                  within_s)
        return self.of(kind, gang, **fields)

    def log(self, gang: str, rank: int, attempt: int = 1) -> str:
        return self.logs.get((gang, attempt, rank), b"").decode()

    # -- the supervisor's side -----------------------------------------------------------------------

    def hello(self, node: str, body: dict[str, Any]) -> dict[str, Any]:
        self.hellos.append(Hello.parse(body))
        return {"lease_s": self.lease_s, "poll_s": 10.0}

    def poll(self, node: str, body: dict[str, Any], server: _Server) -> dict[str, Any]:
        poll = Poll.parse(body)
        self.changed.wait_for(lambda: self._digest(node) != poll.seen or server.gone
                              or poll.incarnation in self.deposed, poll.wait_s)
        if poll.incarnation in self.deposed:
            raise Conflict("another supervisor serves this node")
        return Orders(digest=self._digest(node), orders=self.orders.get(node, ())).full()

    def report(self, node: str, body: dict[str, Any]) -> dict[str, Any]:
        reports = Reports.parse(body)
        self.reports += reports.reports
        return {"applied": len(reports.reports)}

    def take_logs(self, node: str, body: dict[str, Any]) -> dict[str, Any]:
        for piece in body["pieces"]:
            key = (piece["gang"], piece["attempt"], piece["rank"])
            have, data = self.logs.get(key, b""), base64.b64decode(piece["data_b64"])
            if piece["offset"] > len(have):
                self.gaps.append(f"{key}: {piece['offset']} after {len(have)}")
            self.logs[key] = have[:piece["offset"]] + data
        return {"stored": len(body["pieces"])}

    def open_save(self, body: dict[str, Any]) -> dict[str, Any]:
        same = [n for n, save in enumerate(self.saves) if save["key"] == body["key"]]
        if not same:
            self.saves.append(body)
            same = [len(self.saves) - 1]
        return {"save": same[0], "directory": f"versions/{same[0]}"}

    def report_save(self, body: dict[str, Any]) -> dict[str, Any]:
        self.saved.append(body)
        return self.save_state(body["save"])

    def save_state(self, save: int) -> dict[str, Any]:
        if save >= len(self.saves):
            raise NotFound(f"no save {save}")
        return {"save": save, "published": self.published.get(save), "missing_ranks": [], "error": None}

    def _digest(self, node: str) -> str:
        orders = [order.full() for order in self.orders.get(node, ())]
        return hashlib.sha256(json.dumps(orders, sort_keys=True).encode()).hexdigest()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_GET(self) -> None:
        script, parts = self.server.script, self.path.strip("/").split("/")
        if parts[1] == "blobs":
            self._reply_bytes(script.blobs.get(parts[2]))
        else:
            self._reply(lambda: script.save_state(int(parts[2])))

    def do_POST(self) -> None:
        script, parts = self.server.script, self.path.strip("/").split("/")
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        match parts[1:]:
            case ["nodes", node, "hello"]:
                self._reply(lambda: script.hello(node, body))
            case ["nodes", node, "poll"]:
                self._reply(lambda: script.poll(node, body, self.server))
            case ["nodes", node, "reports"]:
                self._reply(lambda: script.report(node, body))
            case ["nodes", node, "logs"]:
                self._reply(lambda: script.take_logs(node, body))
            case ["saves", "open"]:
                self._reply(lambda: script.open_save(body))
            case _:
                self._reply(lambda: script.report_save(body))

    def _reply(self, answer: Callable[[], dict[str, Any]]) -> None:
        status, body = 200, {}
        with self.server.script.changed:
            if self.server.gone:
                self.close_connection = True
                return
            try:
                body = answer()
            except GanglineError as exc:
                status, body = exc.http_status, exc.to_wire()
            self.server.script.changed.notify_all()
        if not self.server.gone:
            self._send(status, json.dumps(body).encode())

    def _reply_bytes(self, data: bytes | None) -> None:
        if data is None:
            self._send(404, json.dumps(NotFound("no such blob").to_wire()).encode())
        else:
            self._send(200, data)

    def _send(self, status: int, data: bytes) -> None:
        with contextlib.suppress(OSError):
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    def address_string(self) -> str:
        return "unix"

    def log_message(self, format: str, *args: Any) -> None:
        pass


class _Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(self, script: Script) -> None:
        self.script, self.gone = script, False
        self._open: set[Any] = set()
        super().__init__(str(script.path), _Handler)

    def get_request(self) -> tuple[Any, Any]:
        request, address = super().get_request()
        self._open.add(request)
        return request, address

    def shutdown_request(self, request: Any) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    def cut(self) -> None:
        with self.script.changed:
            self.gone = True
        self.server_close()
        for request in list(self._open):
            with contextlib.suppress(OSError):
                request.shutdown(2)

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # a supervisor that was killed in mid-sentence


def until(condition: Callable[[], Any], what: str, within_s: float = DEADLINE_S) -> Any:
    """Wait for what only the kernel can tell, looking often."""
    deadline = time.monotonic() + within_s
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {within_s} s for {what}")
        time.sleep(0.005)
    return value


