"""A real HTTP server that supervisors of an engine under test call, driven by a test instead of a store.

Every job is admitted with a token of its own; a call with another one is answered 401. What is ordered
follows by itself: ranks start once every node is ready, and end when the test says so.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from gangline.engines.base import Job
from gangline.model.gang import NodeShare
from gangline.model.orders import Order, OrderPhase, Orders, RankOrder, Task

LEASE_S = 20.0
POLL_S = 10.0
DEADLINE_S = 60.0


@dataclass(frozen=True)
class Call:
    """One request, as it came."""

    node: str
    what: str  # hello, poll, reports, logs
    authorization: str
    body: dict[str, Any]


@dataclass
class Guest:
    """A job whose supervisors may call, and what they have said."""

    job: Job
    token: str
    command: tuple[str, ...]
    env: dict[str, str]
    calls: list[Call] = field(default_factory=list)
    over: bool = False

    @property
    def hellos(self) -> dict[str, dict[str, Any]]:
        """The hello of each node; a node that said it twice fails the test that asks."""
        found: dict[str, dict[str, Any]] = {}
        for call in self.calls:
            if call.what == "hello":
                assert call.node not in found, f"two supervisors of {self.job.name} came from {call.node}"
                found[call.node] = call.body
        return found

    def reported(self, kind: str) -> set[str]:
        """The nodes that reported something of that kind."""
        return {call.node for call in self.calls if call.what == "reports"
                for report in call.body["reports"] if report["kind"] == kind}

    @property
    def nodes(self) -> set[str]:
        return {part.node for part in self.job.nodes}


class Hub:
    """Listens on `address`; `url` is where supervisors find it."""

    def __init__(self, address: str = "127.0.0.1") -> None:
        self.changed = threading.Condition()
        self.guests: dict[str, Guest] = {}  # by token
        self.strangers: list[Call] = []
        self.gone = False
        self._server = _Server((address, 0), _handler(self))
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), name="hub", daemon=True)
        self._thread.start()
        self.url = f"http://{address}:{self._server.server_address[1]}"

    def close(self) -> None:
        with self.changed:
            self.gone = True
            self.changed.notify_all()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def admit(self, job: Job, token: str, command: tuple[str, ...], env: dict[str, str]) -> Guest:
        with self.changed:
            return self.guests.setdefault(token, Guest(job, token, command, env))

    def wait(self, until: Callable[[], Any], what: str, within_s: float = DEADLINE_S) -> Any:
        """The condition's value once it is true; fails with what was heard when it does not come true."""
        with self.changed:
            if not self.changed.wait_for(until, within_s):
                heard = {guest.job.name: [(call.node, call.what) for call in guest.calls][-20:]
                         for guest in self.guests.values()}
                raise AssertionError(f"waited {within_s:g} s for {what}; heard: {heard}; strangers: {self.strangers}")
            return until()

    def end(self, guest: Guest) -> None:
        """The attempt is over: its supervisors end what runs, say so, and leave."""
        with self.changed:
            guest.over = True
            self.changed.notify_all()

    def take(self, call: Call) -> dict[str, Any] | None:
        """The answer to a call; None for a stranger."""
        with self.changed:
            guest = self.guests.get(call.authorization.removeprefix("Bearer "))
            if guest is None or call.node not in guest.nodes:
                self.strangers.append(call)
                return None
            guest.calls.append(call)
            self.changed.notify_all()
            match call.what:
                case "hello":
                    return {"lease_s": LEASE_S, "poll_s": POLL_S}
                case "poll":
                    return self._poll(guest, call)
                case "reports":
                    return {"applied": len(call.body["reports"])}
                case _:
                    return {"stored": len(call.body["pieces"]), "gaps": []}

    def _poll(self, guest: Guest, call: Call) -> dict[str, Any]:
        seen, wait_s = call.body.get("seen", ""), call.body.get("wait_s", POLL_S)
        self.changed.wait_for(lambda: self.gone or _orders(guest, call.node).digest != seen, wait_s)
        return _orders(guest, call.node).full()


def _orders(guest: Guest, node: str) -> Orders:
    if guest.over and node in guest.reported("empty"):
        return Orders(digest="over")
    phase = OrderPhase.ASSEMBLE
    if guest.over:
        phase = OrderPhase.STOP
    elif guest.reported("ready") == guest.nodes:
        phase = OrderPhase.START
    task = None if guest.over else _task(guest, node)
    order = Order(gang=guest.job.gang, attempt=guest.job.attempt, generation=1, phase=phase, task=task)
    return Orders(digest=hashlib.sha256(order.model_dump_json().encode()).hexdigest(), orders=(order,))


def _task(guest: Guest, node: str) -> Task:
    parts = guest.job.nodes
    rank = [part.node for part in parts].index(node)
    gpus = tuple(range(parts[rank].gpus))
    return Task(
        name="conformance", slot="", tenant="default", command=guest.command, env=guest.env, node_rank=rank,
        ranks=(RankOrder(rank=rank, local_rank=0, gpus=gpus),), world_size=len(parts),
        nodes=tuple(NodeShare(node=part.node, address="127.0.0.1", gpus=tuple(range(part.gpus)), gpu_type="H100")
                    for part in parts),
        master_addr="127.0.0.1", master_port=29500)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128


def _handler(hub: Hub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}")
            parts = self.path.strip("/").split("/")
            node, what = (parts[2], parts[3]) if len(parts) == 4 else ("", self.path)
            answer = hub.take(Call(node, what, self.headers.get("Authorization", ""), body))
            data = json.dumps(answer or {"kind": "rejected", "message": "an unknown token"}).encode()
            with contextlib.suppress(OSError):  # a supervisor that was killed waits for no answer
                self.send_response(200 if answer is not None else 401)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:
            return

    return Handler
