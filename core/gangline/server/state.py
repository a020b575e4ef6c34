"""What the handlers of one server share."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import time
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import ParamSpec, Protocol, TypeVar

from gangline.model.errors import Rejected, Unavailable
from gangline.model.fleet import Fleet
from gangline.model.inventory import FleetChanges
from gangline.model.spec import GangSpec
from gangline.scheduler.planning import Planning
from gangline.server.blobs import BlobStore
from gangline.server.logs import LogStore
from gangline.server.notify import Notifier
from gangline.service import feasible
from gangline.service.picture import Picture
from gangline.store import Store

P = ParamSpec("P")
T = TypeVar("T")

_ID_ALPHABET = "abcdefghijklmnopqrstuvwxyz234567"


class SchedulerLoop(Protocol):
    """What a server needs of the loop it hosts."""

    picture: Picture
    planning: Planning

    def start(self) -> None:
        """Begin to keep the world agreeing with the plan."""

    def stop(self) -> None:
        """End after the pass in progress; nodes and gangs go on."""

    def adopt(self, fleet: Fleet, *, dry_run: bool = False) -> FleetChanges:
        """Follow another fleet from the next pass on."""

    def close(self) -> None:
        """Ask no engine any more. The last call."""

    def shutdown_nodes(self) -> None:
        """End every supervisor with all it runs. Called after `stop`."""


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def new_gang_id() -> str:
    return "g-" + "".join(secrets.choice(_ID_ALPHABET) for _ in range(12))


def new_token() -> str:
    return secrets.token_urlsafe(24)


def volumes_root(home: Path, fleet: Fleet) -> Path:
    """Where volumes are: on every node, too."""
    return home / "volumes" if fleet.volumes is None else Path(fleet.volumes)


@dataclass(slots=True, kw_only=True)
class ServerState:
    """One server's store, files, bells and clock. Handlers read it; `watchers` and `used_s` they count."""

    store: Store
    home: Path
    url: str
    version: str
    loop: SchedulerLoop
    notifier: Notifier
    fleet: Fleet
    fleet_path: str | None = None
    now_ms: Callable[[], int] = now_ms
    new_id: Callable[[], str] = new_gang_id
    new_token: Callable[[], str] = new_token
    started_ms: int = field(default_factory=now_ms)
    pid: int = field(default_factory=os.getpid)
    pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(16, "request"))
    blobs: BlobStore = field(init=False)
    logs: LogStore = field(init=False)
    leave: asyncio.Event = field(default_factory=asyncio.Event)  # set: the server is to exit
    entry: asyncio.Lock = field(default_factory=asyncio.Lock)  # held while new gangs come in
    reloading: asyncio.Lock = field(default_factory=asyncio.Lock)
    ending: asyncio.Lock = field(default_factory=asyncio.Lock)
    loop_ended: bool = False
    stopping: bool = False
    watchers: int = 0
    used_s: float = field(default_factory=time.monotonic)  # when a client last asked or a gang last changed

    def __post_init__(self) -> None:
        self.loop.planning.on_told.append(self.notifier.told)
        self.blobs = BlobStore(self.home / "blobs")
        self.logs = LogStore(self.home / "logs")

    @property
    def volumes_root(self) -> Path:
        return volumes_root(self.home, self.fleet)

    async def call(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a blocking function in a worker thread."""
        return await asyncio.get_running_loop().run_in_executor(self.pool, partial(function, *args, **kwargs))

    def committed(self, gangs: Collection[str], nodes: Collection[str]) -> None:
        """What the store calls after each commit, in any thread."""
        if gangs:
            self.used_s = time.monotonic()
        self.notifier.committed(gangs, nodes)

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Count a client that waits for news, for as long as the block lasts."""
        self.watchers += 1
        try:
            yield
        finally:
            self.watchers -= 1
            self.used_s = time.monotonic()

    async def end_loop(self, *, nodes: bool) -> None:
        """Stop the loop, once however often asked; with `nodes`, end every supervisor too."""
        async with self.ending:
            if not self.loop_ended:
                self.loop_ended = True
                await self.call(self.loop.stop)
            if nodes:
                await self.call(self.loop.shutdown_nodes)

    def judge(self) -> Callable[[GangSpec], Rejected | None]:
        """Tells why this fleet can never run a spec, if so."""
        return feasible.judge(lambda: self.loop.picture.inventory, self.fleet)

    def refuse_when_stopping(self) -> None:
        if self.stopping:
            raise Unavailable("the server is stopping", fix="try again in a few seconds")
