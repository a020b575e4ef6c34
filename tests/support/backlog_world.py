"""A big fleet and a big backlog in one process: the service and its loop, with an engine that does nothing."""

from __future__ import annotations

import itertools
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import psutil

from gangline.engines.base import Sight
from gangline.model.errors import GanglineError
from gangline.model.fleet import Fleet
from gangline.model.gang import Submission
from gangline.model.node import NodeView
from gangline.model.spec import GangSpec
from gangline.model.states import GangState
from gangline.scheduler.loop import Loop
from gangline.server.interpreter import share_fairly
from gangline.service import explaining, feasible, submit, views
from gangline.service import fleet as fleet_service
from gangline.store import Store

NODES_PER_LEAF, LEAVES_PER_SPINE = 16, 8
BATCH = 200


class IdleEngine:
    """Nodes that are there and never change."""

    name = "local"

    def observe(self) -> Sight:
        return Sight()

    def provision(self, nodes: Collection[NodeView]) -> None: ...
    def release(self, nodes: Collection[NodeView]) -> None: ...
    def on_change(self, callback: Callable[[], None]) -> None: ...
    def close(self) -> None: ...


def big_fleet(nodes: int) -> Fleet:
    """So many emulated H100:8 nodes in one pool, 16 on a leaf, 8 leaves on a spine."""
    return Fleet.parse({
        "pools": [{"name": "p", "gpu": "H100:8", "min": nodes, "max": nodes, "emulated": True, "fabric": "ib",
                   "rdma": {"kind": "infiniband", "gbps": 400}}],
        "nodes": [{"name": f"n{i:05d}", "pool": "p", "path": [
            f"s{i // (NODES_PER_LEAF * LEAVES_PER_SPINE):03d}", f"l{i // NODES_PER_LEAF:04d}"]} for i in range(nodes)]})


@dataclass(slots=True)
class Times:
    """How long each kind of request took, in milliseconds."""

    taken_ms: dict[str, list[float]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def of(self, what: str) -> Iterator[None]:
        began_s = time.perf_counter()
        yield
        with self._lock:
            self.taken_ms.setdefault(what, []).append(1000 * (time.perf_counter() - began_s))

    def percentile(self, what: str, share: float) -> float:
        found = sorted(self.taken_ms[what])
        return found[min(len(found) - 1, int(share * len(found)))]


class Backlog:
    """A store in a file, a fleet in it, and a loop that runs."""

    def __init__(self, home: Path, nodes: int) -> None:
        self.store = Store.open(f"sqlite:///{home / 'gangline.db'}")
        fleet = big_fleet(nodes)
        fleet_service.sync_fleet(self.store, fleet, now_ms=now_ms())
        with self.store.transaction() as tx:
            for node in tx.nodes.all():
                tx.nodes.joined(node.name, "i")
        self.fleet = fleet
        self.times = Times()
        self.loop = Loop(store=self.store, fleet=fleet, engines={"local": IdleEngine()}, volumes_root=home / "v",
                         now_ms=now_ms)
        self._ids = itertools.count(1)
        self.gangs: list[str] = []
        self._random = Random(7)
        share_fairly()

    def close(self) -> None:
        self.loop.stop()
        self.store.close()

    def submit(self, specs: Sequence[dict[str, Any]]) -> None:
        """One batch, as the server takes it in."""
        submissions = [Submission(slot=f"load/{next(self._ids)}", spec=GangSpec.parse(
            {"command": ["true"], "ranks_per_node": 1, "on_orphan": "keep", **spec})) for spec in specs]
        judge = feasible.judge(lambda: self.loop.picture.inventory, self.fleet)
        with self.times.of("submit"):
            ensured = submit.ensure_many(
                self.store, submissions, now_ms=now_ms(), new_id=lambda: f"g-{next(self._ids):012d}",
                new_token=lambda: "t", refusal=judge)
        self.gangs += [one.gang for one in ensured]

    def fill(self, singles: int, gangs: int) -> None:
        """Submits a backlog of singles and, between them, gangs of 2 to 16 nodes with rdma."""
        left = singles
        each = max(1, singles // max(1, gangs)) if gangs else singles
        specs: list[dict[str, Any]] = []
        for _ in range(max(1, gangs)):
            take = min(each, left)
            left -= take
            specs += [{"name": f"eval-{self._random.randint(0, 20)}", "gpu": "H100:8"}] * take
            if gangs:
                size = self._random.choice((2, 4, 8, 16))
                specs.append({"name": f"train-{size}", "size": size, "gpu": "H100:8", "rdma": True, "timeout": "4h"})
        specs += [{"name": "eval-0", "gpu": "H100:8"}] * left
        for start in range(0, len(specs), BATCH):
            self.submit(specs[start:start + BATCH])

    def ask_once(self) -> None:
        """What people and pipelines ask meanwhile: observe, explain and cancel some gang."""
        gang = self._random.choice(self.gangs)
        with self.times.of("observe"):
            view = views.observe(self.store, gang, now_ms=now_ms())
        planning = self.loop.planning
        if view.state is GangState.QUEUED:
            with self.times.of("explain"):
                explaining.explain(self.loop.picture, planning.policy, planning.last.reservations, gang, view.wait,
                                   now_ms=now_ms())
        if self._random.random() < 0.2:
            with self.times.of("cancel"):
                submit.cancel(self.store, gang, None, "enough", now_ms=now_ms())

    @contextmanager
    def asking(self, pause_s: float = 0.05) -> Iterator[None]:
        """Asks in another thread for as long as the block lasts."""
        over = threading.Event()
        failed: list[BaseException] = []

        def ask() -> None:
            while not over.wait(pause_s):
                if self.gangs:
                    try:
                        self.ask_once()
                    except GanglineError as exc:
                        failed.append(exc)

        thread = threading.Thread(target=ask)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
        assert not failed, failed[0]


_BEGAN_NS = time.time_ns()
_SLOWER = 100


def now_ms() -> int:
    """A clock that goes slowly: nobody plays the nodes, and no gang must be late to start."""
    return (_BEGAN_NS + (time.time_ns() - _BEGAN_NS) // _SLOWER) // 1_000_000


def resident_mib() -> float:
    return float(psutil.Process().memory_info().rss) / 2**20


@contextmanager
def backlog(nodes: int) -> Iterator[Backlog]:
    """A backlog's world in a folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        world = Backlog(Path(folder), nodes)
        try:
            yield world
        finally:
            world.close()
