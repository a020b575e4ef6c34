"""A real server in a thread: real store, real loop, real sockets. Its nodes are played by the tests."""

from __future__ import annotations

import asyncio
import base64
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from gangline.client import Client
from gangline.client.address import parse_address
from gangline.model.fleet import Fleet
from gangline.model.gang import Ensured, Submission
from gangline.model.orders import (
    Empty,
    Hello,
    LogPiece,
    Order,
    OrderPhase,
    Orders,
    Poll,
    RankExit,
    Ready,
    Reports,
    Started,
    Welcome,
)
from gangline.model.spec import GangSpec
from gangline.model.states import Cause
from gangline.scheduler.loop import Loop
from gangline.server.app import create_app
from gangline.server.guard import Guard
from gangline.server.listener import Listener
from gangline.server.notify import Notifier
from gangline.server.sockets import bind_tcp, bind_unix
from gangline.server.state import ServerState, now_ms
from gangline.server.stopping import leave_when_idle
from gangline.service import fleet as fleet_service
from gangline.store import Store

FLEET = Fleet.parse({"pools": [{"name": "p", "gpu": "H100:8", "min": 2, "max": 4, "boot": "1h",
                                "emulated": True, "price_per_gpu_hour": "2.50"}]})


class Running:
    """A server that answers at `url` (unix) and `http` (TCP), and its insides for looking at."""

    state: ServerState
    url: str
    http: str

    def __init__(self, home: Path, *, token: str | None = None, hosts: tuple[str, ...] = (),
                 idle_s: float = 3600) -> None:
        self.home = home
        self._token, self._hosts, self._idle_s = token, frozenset(hosts), idle_s
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._main()))
        self._thread.start()
        assert self._ready.wait(20)

    async def _main(self) -> None:
        store = Store.open(f"sqlite:///{self.home / 'gangline.db'}")
        fleet_service.sync_fleet(store, FLEET, now_ms=now_ms())
        sock, path = bind_unix(self.home)
        tcp, host = bind_tcp("127.0.0.1:0")
        self.url, self.http = f"unix:{path}", f"http://{host}:{tcp.getsockname()[1]}"
        self.clock = asyncio.get_running_loop()
        loop = Loop(store=store, fleet=FLEET, engines={}, volumes_root=self.home / "volumes",
                    now_ms=now_ms)
        self.state = ServerState(store=store, home=self.home, url=self.url, version="1", loop=loop,
                                 notifier=Notifier(self.clock), fleet=FLEET)
        self.state.blobs.clean()
        store.on_commit.append(self.state.committed)
        app = create_app(self.state)
        listeners = [Listener(Guard(app), sock, self.state.leave),
                     Listener(Guard(app, hosts=self._hosts, token=self._token), tcp, self.state.leave)]
        loop.start()
        try:
            async with asyncio.TaskGroup() as tasks:
                for listener in listeners:
                    tasks.create_task(listener.run_until_left())
                    await listener.ready.wait()
                idle = tasks.create_task(leave_when_idle(self.state, self._idle_s))
                self._ready.set()
                await self.state.leave.wait()
                self.state.notifier.close()
                idle.cancel()
        finally:
            await self.state.end_loop(nodes=False)
            self.state.pool.shutdown()
            store.close()
            path.unlink()

    def client(self) -> Client:
        return Client(parse_address(self.url), retry_s=0)

    def raw(self) -> httpx.Client:
        """Plain HTTP over TCP, for what a well-behaved client never sends."""
        return httpx.Client(base_url=self.http, trust_env=False, timeout=20)

    def in_loop(self, look: Callable[[], Any]) -> Any:
        """What `look` returns in the server's own thread."""
        async def call() -> Any:
            return look()

        return asyncio.run_coroutine_threadsafe(call(), self.clock).result(20)

    def ended(self, timeout_s: float = 20) -> bool:
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def stop(self) -> None:
        if self._thread.is_alive():
            self.clock.call_soon_threadsafe(self.state.leave.set)
        assert self.ended()


class PlayedNode:
    """One node as its supervisor would speak for it, over HTTP."""

    def __init__(self, server: Running, name: str, incarnation: str = "i-1") -> None:
        self.name, self.incarnation = name, incarnation
        transport = httpx.HTTPTransport(uds=server.url.removeprefix("unix:"))
        self.http = httpx.Client(transport=transport, base_url="http://gangline", timeout=60)
        self.seen = ""

    def post(self, what: str, body: Any) -> Any:
        reply = self.http.post(f"/v1/nodes/{self.name}/{what}", json=body)
        assert reply.status_code == 200, reply.text
        return reply.json()

    def hello(self) -> Welcome:
        greeting = Hello(node=self.name, incarnation=self.incarnation, pid=1, start_time=1.0, boot_id="b",
                         address="127.0.1.1")
        return Welcome.parse(self.post("hello", greeting.full()))

    def poll(self, wait_s: float = 20) -> Orders:
        asked = Poll(incarnation=self.incarnation, seen=self.seen, wait_s=wait_s)
        orders = Orders.parse(self.post("poll", asked.full()))
        self.seen = orders.digest
        return orders

    def next_order(self, phase: OrderPhase) -> Order:
        while True:
            for order in self.poll().orders:
                if order.phase is phase:
                    return order

    def report(self, *reports: Any) -> int:
        sent = Reports(incarnation=self.incarnation, reports=reports)
        return int(self.post("reports", sent.full())["applied"])

    def log(self, order: Order, offset: int, data: bytes, rank: int = 0) -> Any:
        piece = LogPiece(gang=order.gang, attempt=order.attempt, generation=order.generation, rank=rank,
                         offset=offset, data_b64=base64.b64encode(data).decode())
        return self.post("logs", {"pieces": [piece.full()]})

    def bring_to_run(self) -> Order:
        order = self.next_order(OrderPhase.ASSEMBLE)
        about = {"gang": order.gang, "attempt": order.attempt, "generation": order.generation}
        self.report(Ready(**about))
        order = self.next_order(OrderPhase.START)
        self.report(Started(**about))
        return order

    def finish(self, order: Order, exit_code: int = 0, result: Any = None) -> None:
        about = {"gang": order.gang, "attempt": order.attempt, "generation": order.generation}
        cause = Cause.USER if exit_code else Cause.SUCCESS
        assert order.task is not None
        self.report(*(RankExit(**about, rank=rank.rank, exit_code=exit_code, cause=cause, text="it ended",
                               result=result) for rank in order.task.ranks))
        self.next_order(OrderPhase.STOP)
        self.report(Empty(**about))


@pytest.fixture(scope="session")
def new_home(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Path]:
    """Homes whose database is made already: making one is slow and not what is tested here."""
    made = tmp_path_factory.mktemp("made") / "gangline.db"
    Store.open(f"sqlite:///{made}").close()

    def make() -> Path:
        home = tmp_path_factory.mktemp("h")
        shutil.copy(made, home / "gangline.db")
        return home

    return make


@pytest.fixture(scope="session")
def any_server(new_home: Callable[[], Path]) -> Iterator[Running]:
    """One server for all tests that leave it as it was."""
    server = Running(new_home())
    yield server
    server.stop()


@pytest.fixture
def start_server(new_home: Callable[[], Path]) -> Iterator[Callable[..., Running]]:
    started: list[Running] = []

    def start(**options: Any) -> Running:
        started.append(Running(options.pop("home", None) or new_home(), **options))
        return started[-1]

    yield start
    for server in started:
        server.stop()


@pytest.fixture
def server(start_server: Callable[..., Running]) -> Running:
    return start_server()


@pytest.fixture
def client(server: Running) -> Iterator[Client]:
    with server.client() as client:
        yield client


@pytest.fixture
def play_node() -> Iterator[Callable[..., PlayedNode]]:
    nodes: list[PlayedNode] = []

    def play(server: Running, name: str = "p-1", incarnation: str = "i-1") -> PlayedNode:
        nodes.append(PlayedNode(server, name, incarnation))
        nodes[-1].hello()
        return nodes[-1]

    yield play
    for node in nodes:
        node.http.close()


@pytest.fixture
def waiting_gang(submission: Callable[..., Submission]) -> Callable[..., tuple[Ensured, int]]:
    """A gang that waits for nodes to boot, once the plan has said so, and the cursor after that."""
    def make(client: Client, slot: str = "dep/run/step", **spec: Any) -> tuple[Ensured, int]:
        ensured = client.ensure(submission(slot, size=3, **spec))
        cursor, wait_s = 0, 20.0
        while (page := client.events(ensured.gang, cursor, wait_s)).events:
            cursor = page.cursor
            if client.observe(ensured.gang).wait is not None:
                wait_s = 0.5  # the passes that follow may word it anew while nodes are being asked for
        return ensured, cursor

    return make


@pytest.fixture
def submission() -> Callable[..., Submission]:
    def make(slot: str = "dep/run/step", epoch: int = 0, **spec: Any) -> Submission:
        given = {"name": "sft", "gpu": "H100:8", "ranks_per_node": 1, "command": ("true",),
                 "on_orphan": "keep"}
        return Submission(slot=slot, epoch=epoch, spec=GangSpec.parse({**given, **spec}))

    return make
