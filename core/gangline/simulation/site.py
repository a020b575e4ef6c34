"""`Site`: the fleet, the queue and what runs during a replay, changed in place by deltas.

A pass sees it as a `Snapshot`. Every change is checked: no GPU is leased twice, none of a node that is
out of service is, and nothing is given back that was not held.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from gangline.model.errors import Bug
from gangline.plan.fleet import FleetMap, FleetState
from gangline.plan.queue import Queue
from gangline.plan.snapshot import UNKNOWN_MS, Held, NodeState, PendingGang, Promise, RunningGang, Snapshot
from gangline.simulation.world import World


class Site:
    """What a pass plans from. `used` counts leased GPUs, `gpus` those of the nodes that are there."""

    def __init__(self, world: World) -> None:
        self.pools = world.pools
        self.tenants = world.tenants
        self.fleet = FleetState.of(world.nodes, world.pools)
        self.fleet.idle[:] = 1  # since the first instant: 0 would say that nobody knows
        self.queue = Queue()
        self.running: dict[str, RunningGang] = {}
        self.used = 0
        self.version = 0
        self._promised: dict[str, Promise] = {}
        self._tuple: tuple[RunningGang, ...] | None = None
        self.gpus = sum(node.gpu.count for node in world.nodes)

    @property
    def map(self) -> FleetMap:
        return self.fleet.map

    def snapshot(self) -> Snapshot:
        """The picture of this instant; it is stale as soon as anything changes."""
        if self._tuple is None:
            self._tuple = tuple(self.running.values())
        self.version += 1
        return Snapshot(version=self.version, fleet=self.fleet, pools=self.pools, queue=self.queue,
                        running=self._tuple, tenants=self.tenants)

    # What runs

    def start(self, gang: RunningGang, kept: tuple[Held, ...]) -> None:
        """A gang begins to run on what it holds, `kept` of it from before."""
        until_ms = UNKNOWN_MS if gang.ends_by_ms is None else gang.ends_by_ms
        rows = self._whole_rows(gang.holds, gang.gang)
        if rows is not None and not kept and self._all_free(rows):
            self.fleet.hold_whole(rows, until_ms)
            self.used += int(self.map.count[rows].sum())
        else:
            self._hold_each(gang, kept, until_ms)
        self.running[gang.gang] = gang
        self._tuple = None

    def _whole_rows(self, holds: Sequence[Held], gang: str) -> NDArray[np.int64] | None:
        """The rows, when a gang of several nodes holds all of each and none twice."""
        if len(holds) < 2:
            return None
        rows = np.fromiter((self._row(held.node, gang) for held in holds), np.int64, len(holds))
        sizes = np.fromiter((len(held.gpus) for held in holds), np.int64, len(holds))
        return rows if (sizes == self.map.count[rows]).all() and len(np.unique(rows)) == len(rows) else None

    def _all_free(self, rows: NDArray[np.int64]) -> bool:
        return bool(((self.fleet.free[rows] == self.map.count[rows]) & (self.fleet.base[rows] == 0)).all())

    def _hold_each(self, gang: RunningGang, kept: tuple[Held, ...], until_ms: int) -> None:
        """`start` node by node: of parts, of gangs that hold some already, and to say what is wrong."""
        own = {held.node: set(held.gpus) for held in kept}
        for held in gang.holds:
            row = self._row(held.node, gang.gang)
            taken = np.flatnonzero(self.fleet.until[row, list(held.gpus)] != 0)
            if taken.size and not {held.gpus[at] for at in taken} <= own.get(held.node, set()):
                raise Bug(f"{gang.gang} was placed on GPUs of {held.node} that another gang holds")
            if self.fleet.base[row] != 0:
                raise Bug(f"{gang.gang} was placed on {held.node}, which is out of service")
            self.used += len(held.gpus) - taken.size
            self.fleet.hold(row, held.gpus, until_ms)
        left = set(own) - {held.node for held in gang.holds}
        if left:
            raise Bug(f"{gang.gang} was placed without {min(left)}, which it holds and did not give back")

    def change(self, gang: RunningGang) -> None:
        """Another value for a gang that runs on; its leases end when it now says so."""
        until_ms = UNKNOWN_MS if gang.ends_by_ms is None else gang.ends_by_ms
        if until_ms != self.running[gang.gang].ends_by_ms:
            for held in gang.holds:
                self.fleet.hold(self._row(held.node, gang.gang), held.gpus, until_ms)
        self.running[gang.gang] = gang
        self._tuple = None

    def end(self, gang: str, kept: tuple[Held, ...], now_ms: int) -> None:
        """A gang runs no more. It goes on holding `kept`, nobody knows for how long."""
        ended = self.running.pop(gang)
        stays = {held.node for held in kept}
        self.give_back(gang, (held for held in ended.holds if held.node not in stays), now_ms)
        for held in kept:
            self.fleet.hold_named(held, UNKNOWN_MS)
        self._tuple = None

    def give_back(self, gang: str, holds: Iterable[Held], now_ms: int) -> None:
        """Leases end."""
        holds = tuple(holds)
        rows = self._whole_rows(holds, gang)
        if rows is not None and not self.fleet.free[rows].any():
            self.fleet.release_whole(rows, now_ms)
            self.used -= int(self.map.count[rows].sum())
            return
        for held in holds:
            row = self._row(held.node, gang)
            if not self.fleet.until[row, list(held.gpus)].all():
                raise Bug(f"{gang} gives back GPUs of {held.node} that nobody leases")
            self.fleet.release(row, held.gpus, now_ms)
            self.used -= len(held.gpus)

    def _row(self, node: str, gang: str) -> int:
        row = self.map.row.get(node)
        if row is None or self.map.virtual[row]:
            raise Bug(f"{gang} was placed on {node}, which is not there")
        return row

    # What waits

    def wait(self, gangs: Iterable[PendingGang]) -> None:
        """Gangs begin to wait, or change while they do."""
        self.queue.update(gangs, ())

    def leave(self, gangs: Iterable[str]) -> None:
        """Gangs wait no more."""
        gangs = tuple(gangs)
        self.queue.update((), gangs)
        for gang in gangs:
            self._promised.pop(gang, None)

    def promise(self, promises: dict[str, Promise]) -> None:
        """What the last plan promised; gangs it says nothing of are promised nothing any more."""
        if promises == self._promised:
            return
        changed = [replace(gang, promise=promises.get(name)) for name in {**promises, **self._promised}
                   if promises.get(name) != self._promised.get(name) and (gang := self.queue.get(name)) is not None]
        self._promised = promises
        self.queue.update(changed, ())

    # What there is

    def serve(self, node: str, *, usable: bool, now_ms: int) -> bool:
        """Takes a node into service or out of it; whether that changed anything."""
        row = self.map.row.get(node)
        if row is None or self.map.virtual[row] or (self.fleet.base[row] == 0) == usable:
            return False
        self.fleet.serve(row, usable=usable)
        self.fleet.idle[row] = now_ms
        return True

    def add(self, pool: str, count: int, usable_ms: int) -> tuple[str, ...]:
        """So many nodes that the pool could add begin to boot; their names."""
        free = [self.map.values[row] for row in np.flatnonzero(self.map.virtual) if self.map.values[row].pool == pool]
        if len(free) < count:
            raise Bug(f"pool {pool} was asked for {count} nodes and can add {len(free)}")
        new = [replace(node, usable_ms=max(1, usable_ms), free_gpus=tuple(range(node.gpu.count)))
               for node in free[:count]]
        self._refit(new, frozenset())
        return tuple(node.name for node in new)

    def remove(self, nodes: Iterable[str]) -> None:
        """Idle nodes leave."""
        gone = frozenset(nodes)
        for name in gone:
            if self.fleet.busy_until[self._row(name, "a pool")] != 0:
                raise Bug(f"{name} was given back while a gang holds it")
        self._refit([], gone)

    def _refit(self, new: list[NodeState], gone: frozenset[str]) -> None:
        """The same fleet with nodes more or fewer; leases and idle times stay what they are."""
        old, kept = self.fleet, [node for node in self.fleet.nodes() if node.name not in gone]
        nodes = [*kept, *new]
        self.pools = tuple(replace(pool, nodes=sum(node.pool == pool.name for node in nodes)) for pool in self.pools)
        self.fleet = FleetState.of(nodes, self.pools)
        for node in kept:
            was, row = old.map.row[node.name], self.map.row[node.name]
            self.fleet.until[row, :node.gpu.count] = old.until[was, :node.gpu.count]
            self.fleet.busy_until[row] = old.busy_until[was]
        self.gpus = sum(node.gpu.count for node in nodes)
