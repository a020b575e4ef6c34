"""The fleet as a struct of arrays: one row per node, sorted so that every subtree is a run of rows.

`FleetMap` is what nodes are: it changes when nodes come or go. `FleetState` is what is free and until
when: deltas are written into it, it is never rebuilt from objects.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from gangline.model.gpu import GpuAsk
from gangline.plan.lines import Lines
from gangline.plan.members import Members
from gangline.plan.snapshot import (
    UNKNOWN_MS,
    Held,
    NodeState,
    PendingGang,
    PoolState,
    RunningGang,
    Signature,
)
from gangline.plan.topology import (
    DOMAIN,
    LEAF,
    Key,
    Levels,
    Network,
    growth_path,
    network_of,
    padded,
    subtree_keys,
    subtree_name,
)

if TYPE_CHECKING:
    from gangline.plan.demand import Demand
    from gangline.plan.leases import Leases
    from gangline.plan.never import Misfit

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
DOWN_MS = 1 << 61  # out of service: nothing says that it will ever take work again
_MEMBERS = 64  # pairs of ask and role whose members are kept
_MASKS = 512  # eligibility masks kept; there are about as many as kinds of demand


@dataclass(frozen=True, slots=True)
class Wanted:
    """What makes a node eligible for a need, busy or not: the key of a mask."""

    ask: GpuAsk
    rdma: bool
    zone: str | None
    pool: str | None
    exclude: frozenset[str]
    domain: bool = False  # it must know its NVLink domain


class FleetMap:
    """The nodes of a fleet, and those its pools could still add, by row.

    Rows are sorted by (emulated, realm, zone, fabric, switch path, NVLink domain, name). `ids[level]` numbers
    the subtrees of a level by row, so a smaller id is an earlier run; `starts[level]` has one more entry
    than there are subtrees. `lines` has the rows of each smallest subtree: of `first_level`;
    `around[level]` is the subtree around each of these. Rows of nodes that a pool could add are `virtual`,
    named "pool+1" and so on.
    """

    def __init__(self, nodes: Iterable[NodeState], pools: Iterable[PoolState]) -> None:
        self.pools = tuple(sorted(pools, key=lambda pool: pool.name))
        real = [node for node in nodes if not node.gone]
        rows = [(node, False) for node in real] + [(node, True) for node in _virtual(self.pools, real)]
        depths: dict[Network, int] = {}
        for node, _ in rows:
            depths[network_of(node)] = max(2, len(node.path), depths.get(network_of(node), 2))
        self.levels = Levels(max(depths.values(), default=2))
        rows.sort(key=lambda row: (*network_of(row[0]), padded(row[0], depths[network_of(row[0])]),
                                   row[0].domain or "", row[0].name))
        self.values: tuple[NodeState, ...] = tuple(node for node, _ in rows)
        self.names = [node.name for node in self.values]
        self.row = {name: row for row, name in enumerate(self.names)}
        self.size = len(rows)
        self.virtual = np.fromiter((virtual for _, virtual in rows), np.bool_, self.size)
        self._describe()
        self._nest([subtree_keys(node, self.levels, depths[network_of(node)]) for node in self.values])
        self._masks: dict[Wanted, Bools] = {}
        self.demands: dict[Signature, Demand] = {}  # kept by `demand.demand_of`
        self.misfits: dict[Signature, Misfit | None] = {}  # kept by `never.misfit`
        self._members: dict[tuple[GpuAsk, str], Members] = {}
        self.leases: Leases | None = None  # kept by `Leases.of`

    def _describe(self) -> None:
        nodes, n = self.values, self.size
        types = sorted({node.gpu.type for node in nodes})
        self.types = {name: index for index, name in enumerate(types)}
        self.type_of = [node.gpu.type for node in nodes]
        self.type = np.fromiter((self.types[node.gpu.type] for node in nodes), np.int64, n)
        self.count = np.fromiter((node.gpu.count for node in nodes), np.int64, n)
        self.widest = int(self.count.max(initial=1))
        ranges = {int(count): tuple(range(int(count))) for count in np.unique(self.count)}
        self.all_gpus = [ranges[node.gpu.count] for node in nodes]
        self.mixed = len(np.unique(self.count)) > 1
        pool_index = {pool.name: index for index, pool in enumerate(self.pools)}
        self.pool_index = pool_index
        self.pool = np.fromiter((pool_index.get(node.pool, -1) for node in nodes), np.int64, n)
        self.emulated = np.fromiter((node.emulated for node in nodes), np.bool_, n)
        prices = [pool.price_nano_per_gpu_hour * pool.gpu.count for pool in self.pools] or [0]
        self.price = np.asarray(prices, np.int64)[np.maximum(self.pool, 0)] if n else np.zeros(0, np.int64)
        rdma = {pool.name for pool in self.pools if pool.rdma}
        self.rdma = np.fromiter((node.fabric is not None and node.pool in rdma for node in nodes), np.bool_, n)
        self.knows_domain = np.fromiter((node.domain is not None for node in nodes), np.bool_, n)

    def _nest(self, keys: Sequence[tuple[Key, ...]]) -> None:
        self.ids: list[Ints] = []
        self.starts: list[Ints] = []
        self.keys: list[list[Key]] = []
        for level in range(self.levels.count):
            mine = [key[level] for key in keys]
            first = np.fromiter((row == 0 or mine[row] != mine[row - 1] for row in range(self.size)),
                                np.bool_, self.size)
            self.ids.append(np.cumsum(first) - 1)
            starts = np.flatnonzero(first)
            self.starts.append(np.append(starts, self.size))
            self.keys.append([mine[row] for row in starts])
        # Without NVLink domains the domain level says the same as the leaf level.
        self.first_level = DOMAIN if bool(self.knows_domain.any()) else LEAF
        self.lines = Lines(self.ids[self.first_level], self.starts[self.first_level], self.count)
        # Where the subtrees of the next smaller level begin in each subtree, and the end.
        self._inner: list[list[int]] = [[]] + [
            [*ids[starts[:-1]].tolist(), len(inner)]
            for ids, starts, inner in zip(self.ids, self.starts[1:], self.keys, strict=False)]
        smallest = self.starts[self.first_level][:-1]
        self.around: list[list[int]] = [ids[smallest].tolist() for ids in self.ids]

    def members(self, ask: GpuAsk, role: str) -> Members:
        """Whole rows as members of gangs."""
        found = self._members.get((ask, role))
        if found is None:
            if len(self._members) >= _MEMBERS:
                self._members.clear()
            found = self._members[ask, role] = Members(self.names, self.all_gpus, ask, role)
        return found

    @cached_property
    def totals(self) -> dict[str, int]:
        """The GPUs of each type, in service or not; nodes that pools could add do not count."""
        sums = np.bincount(self.type[~self.virtual], weights=self.count[~self.virtual], minlength=len(self.types))
        return {kind: int(sums[index]) for kind, index in self.types.items()}

    def network_of(self, rows: Sequence[int]) -> tuple[str, str | None]:
        """The zone of the rows, "" if they span several, and their fabric, None if they span several or have none."""
        first, last = self.values[min(rows)], self.values[max(rows)]
        zone = first.zone if first.zone == last.zone else ""
        return zone, first.fabric if zone and first.fabric == last.fabric else None

    def children(self, level: int, subtree: int) -> tuple[int, int]:
        """The subtrees of the next smaller level inside one: from, to."""
        return self._inner[level][subtree], self._inner[level][subtree + 1]

    def name_of(self, level: int, subtree: int) -> str:
        """How a person calls a subtree."""
        return subtree_name(self.levels, level, self.keys[level][subtree])

    def mask(self, wanted: Wanted) -> Bools:
        """The rows that could ever meet a need, busy or not, there or not yet. Never write into it."""
        found = self._masks.get(wanted)
        if found is None:
            if len(self._masks) >= _MASKS:
                self._masks.clear()
            found = self._mask(wanted)
            # Equal masks are one object, so that what is counted by them is counted once.
            same = (mask for mask in tuple(self._masks.values()) if np.array_equal(mask, found))
            found = self._masks[wanted] = next(same, found)
        return found

    def _mask(self, wanted: Wanted) -> Bools:
        mask: Bools = (self.type == self.types.get(wanted.ask.type, -1)) & (self.count >= wanted.ask.count)
        if wanted.pool is not None:
            mask &= self.pool == self.pool_index.get(wanted.pool, -2)
        if wanted.zone is not None:
            zones = [pool_key[1] == wanted.zone for pool_key in self.keys[self.levels.zone]]
            mask &= np.asarray(zones, np.bool_)[self.ids[self.levels.zone]] if self.size else mask
        if wanted.rdma:
            mask &= self.rdma
        if wanted.domain:
            mask &= self.knows_domain
        for name in wanted.exclude:
            if name in self.row:
                mask[self.row[name]] = False
        return mask


def _virtual(pools: Iterable[PoolState], nodes: Sequence[NodeState]) -> list[NodeState]:
    """The nodes that pools could still add, as they would be."""
    taken = {node.name for node in nodes}
    by_pool: dict[str, list[NodeState]] = {}
    for node in nodes:
        by_pool.setdefault(node.pool, []).append(node)
    made = []
    for pool in pools:
        path = growth_path(pool.name, (node.path for node in by_pool.get(pool.name, ())))
        names = (name for index in range(1, pool.most + len(taken) + 1)
                 if (name := f"{pool.name}+{index}") not in taken)
        made += [NodeState(name=next(names), pool=pool.name, gpu=pool.gpu, zone=pool.zone,
                           fabric=pool.fabric, path=path, usable=False, emulated=pool.emulated,
                           realm=pool.realm)
                 for _ in range(max(0, pool.most - pool.nodes))]
    return made


@dataclass(slots=True)
class FleetState:
    """Which GPUs are leased and until when, and which nodes are in service, by row of the map.

    `until[row, gpu]` is when a lease of that GPU ends: 0 when none holds it, UNKNOWN_MS when nothing says
    when, and -1 for GPUs the node does not have. `base[row]` is 0 for a node in service, when a booting
    one is expected (> 0), or DOWN_MS. `free` and `busy_until` are derived: the number of GPUs not leased,
    and when the last lease ends. `idle[row]` is since when nothing is leased (0: not known).

    `lent` has the rows of which others, whom nobody here can name, hold GPUs too: how many, and which stand
    for those. They are as if leased until nobody knows when, and give way to leases, which are certain.
    """

    map: FleetMap
    until: Ints
    base: Ints
    idle: Ints
    lent: dict[int, list[int]] = field(default_factory=dict)
    free: Ints = field(init=False)
    busy_until: Ints = field(init=False)

    def __post_init__(self) -> None:
        self.free = (self.until == 0).sum(axis=1)
        self.busy_until = self.until.max(axis=1, initial=0)

    @staticmethod
    def empty(fleet_map: FleetMap) -> FleetState:
        """Every node in service and free; those that are not there yet are of no use now."""
        until = np.where(np.arange(fleet_map.widest)[None, :] < fleet_map.count[:, None], 0, -1)
        return FleetState(fleet_map, until.astype(np.int64), np.where(fleet_map.virtual, DOWN_MS, 0),
                          np.zeros(fleet_map.size, np.int64))

    @staticmethod
    def of(nodes: Iterable[NodeState], pools: Iterable[PoolState], pending: Iterable[PendingGang] = (),
           running: Iterable[RunningGang] = ()) -> FleetState:
        """The state that these values describe."""
        nodes = tuple(nodes)
        state = FleetState.empty(FleetMap(nodes, pools))
        for node in nodes:
            if node.gone:
                continue
            row = state.map.row[node.name]
            state.serve(row, usable=node.usable, usable_ms=node.usable_ms)
            state.idle[row] = node.idle_ms
            state.hold(row, [g for g in range(node.gpu.count) if g not in node.free_gpus], UNKNOWN_MS)
        for gang in running:
            for held in gang.holds:
                state.hold_named(held, UNKNOWN_MS if gang.ends_by_ms is None else gang.ends_by_ms)
        for waiting in pending:
            for held in waiting.held:
                state.hold_named(held, UNKNOWN_MS)
        return state

    def copy(self) -> FleetState:
        """A state of its own over the same map."""
        return FleetState(self.map, self.until.copy(), self.base.copy(), self.idle.copy(),
                          {row: list(gpus) for row, gpus in self.lent.items()})

    def hold(self, row: int, gpus: Sequence[int], until_ms: int) -> None:
        """Lease GPUs until then. Repeating it with another instant moves the end."""
        if gpus:
            if row in self.lent:
                self.lent[row][1:] = [gpu for gpu in self.lent[row][1:] if gpu not in gpus]
            self.until[row, list(gpus)] = max(1, until_ms)
            self._derive(row)

    def hold_named(self, held: Held, until_ms: int) -> None:
        """`hold` for a node by name; one that is not there any more is passed over."""
        row = self.map.row.get(held.node)
        if row is not None:
            self.hold(row, held.gpus, until_ms)

    def release(self, row: int, gpus: Sequence[int], now_ms: int) -> None:
        """End leases of GPUs."""
        if gpus:
            self.until[row, list(gpus)] = 0
            self._derive(row)
            if self.busy_until[row] == 0:
                self.idle[row] = now_ms

    def hold_whole(self, rows: Ints, until_ms: int) -> None:
        """`hold` of all GPUs of many rows at once."""
        self.until[rows] = np.where(self.until[rows] < 0, -1, max(1, until_ms))
        self.free[rows], self.busy_until[rows] = 0, max(1, until_ms)

    def release_whole(self, rows: Ints, now_ms: int) -> None:
        """`release` of all GPUs of many rows at once."""
        self.until[rows] = np.minimum(self.until[rows], 0)
        self.free[rows], self.busy_until[rows], self.idle[rows] = self.map.count[rows], 0, now_ms

    def serve(self, row: int, *, usable: bool, usable_ms: int = 0) -> None:
        """Whether the node takes work, and if not, when it is expected to (0: nothing says)."""
        self.base[row] = 0 if usable else (usable_ms if usable_ms > 0 else DOWN_MS)

    def lend(self, row: int, count: int) -> None:
        """Others hold so many GPUs of the node."""
        if count or row in self.lent:
            for gpu in self.lent.pop(row, [0])[1:]:
                self.until[row, gpu] = 0
            if count:
                self.lent[row] = [count]
            self._derive(row)

    def _stand_in(self, row: int) -> None:
        """Chooses which GPUs stand for those of others: the last that no lease holds."""
        count, *gpus = self.lent[row]
        free = [int(gpu) for gpu in np.flatnonzero(self.until[row] == 0)]
        new = free[max(0, len(free) - (count - len(gpus))):] if count > len(gpus) else []
        self.until[row, new] = UNKNOWN_MS
        self.lent[row] = [count, *gpus, *new]

    def _derive(self, row: int) -> None:
        if row in self.lent:
            self._stand_in(row)
        self.free[row] = np.count_nonzero(self.until[row] == 0)
        self.busy_until[row] = self.until[row].max()

    def free_gpus(self, row: int) -> tuple[int, ...]:
        """The indices nobody leases."""
        return tuple(int(gpu) for gpu in np.flatnonzero(self.until[row] == 0))

    def nodes(self) -> tuple[NodeState, ...]:
        """The nodes as values, in row order; those that are not there yet are left out."""
        return tuple(self.node(row) for row in range(self.map.size) if not self.map.virtual[row])

    def node(self, row: int) -> NodeState:
        """The node of a row as a value."""
        base = int(self.base[row])
        return replace(self.map.values[row], free_gpus=self.free_gpus(row), usable=base == 0,
                       usable_ms=base if 0 < base < DOWN_MS else 0, idle_ms=int(self.idle[row]))
