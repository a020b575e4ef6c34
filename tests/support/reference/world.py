"""Rows, leases and claims: what a pass writes its decisions on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from gangline.model.gpu import GpuAsk
from gangline.plan.outcome import NodeChoice
from gangline.plan.policy import Policy
from gangline.plan.snapshot import UNKNOWN_MS, Held, NodeState, PendingGang, PoolState, RunningGang, Snapshot
from gangline.plan.topology import LEAF, Levels, growth_path, network_of, padded, subtree_keys

SPARE = ""  # spares are claimed for whoever is in repair
ACTING_MS = 10_000


@dataclass
class Lease:
    """One GPU of a row. `going`: its gang is ending, or gave it back in this pass."""

    gang: str | None
    until_ms: int
    going: bool = False


@dataclass
class Claim:
    gang: str
    at_ms: int
    until_ms: int


@dataclass(eq=False)
class Row:
    """A node, or one a pool could add. `subtree[level]` is the index of the first row of its subtree."""

    node: NodeState
    index: int
    virtual: bool
    there_ms: int | None  # when it is in service: now, when it has booted, or never
    subtree: tuple[int, ...] = ()
    leases: dict[int, Lease] = field(default_factory=dict)
    claim: Claim | None = None
    new: bool = False  # a pool was asked for it in this pass

    @property
    def count(self) -> int:
        return self.node.gpu.count

    @property
    def in_service(self) -> bool:
        return self.node.usable

    @property
    def free(self) -> list[int]:
        return [gpu for gpu in range(self.count) if gpu not in self.leases]

    @property
    def whole(self) -> bool:
        return self.in_service and not self.leases

    @property
    def ready_ms(self) -> int | None:
        """When all of it is free for a gang that has claimed nothing; None for never."""
        return self.part_ready_ms(self.count)

    def part_ready_ms(self, gpus: int) -> int | None:
        """When so many of its GPUs are free for a gang that has claimed nothing; None for never."""
        if self.there_ms is None or gpus > self.count:
            return None
        ends = sorted(self.leases[gpu].until_ms if gpu in self.leases else 0 for gpu in range(self.count))
        return max(self.there_ms, ends[gpus - 1], self.claim.until_ms if self.claim else 0)

    def coming_at(self, ready_ms: int) -> bool:
        """It boots or is virtual, and no lease and no claim puts it off."""
        return not self.in_service and ready_ms == self.there_ms

    def leased_only_by(self, gangs: set[str]) -> bool:
        """Whether all that is leased of it is going or held by those gangs."""
        return all(lease.going or lease.gang in gangs for lease in self.leases.values())

    def gpus_of(self, gang: str) -> int:
        return sum(lease.gang == gang for lease in self.leases.values())


class World:
    """A snapshot by rows, in topology order."""

    def __init__(self, snapshot: Snapshot, policy: Policy, now_ms: int) -> None:
        self.snapshot, self.policy, self.now_ms = snapshot, policy, now_ms
        self.pools = {pool.name: pool for pool in snapshot.pools}
        self.rows = self._sorted_rows()
        self.by_name = {row.node.name: row for row in self.rows}
        self.types = {row.node.gpu.type for row in self.rows}
        self.ending = {run.gang for run in snapshot.running if run.ending}
        self.shrunk: set[str] = set()
        self._lease_what_is_held()
        whole = [row.subtree[LEAF] for row in self.rows if row.whole]
        self.leaf_whole = {leaf: whole.count(leaf) for leaf in {row.subtree[LEAF] for row in self.rows}}
        self._set_spares_aside()

    def _sorted_rows(self) -> list[Row]:
        nodes = [node for node in self.snapshot.nodes if not node.gone]
        taken = {node.name for node in nodes}
        rows = [Row(node, 0, False, self._there_ms(node)) for node in nodes]
        for pool in self.pools.values():
            rows += [Row(node, 0, True, self.now_ms + pool.boot_ms + ACTING_MS if self.policy.capacity else None)
                     for node in _addable(pool, nodes, taken)]
        depths: dict[object, int] = {}
        for row in rows:
            depths[network_of(row.node)] = max(2, len(row.node.path), depths.get(network_of(row.node), 2))
        self.levels = Levels(max(depths.values(), default=2))
        rows.sort(key=lambda row: (*network_of(row.node), padded(row.node, depths[network_of(row.node)]),
                                   row.node.domain or "", row.node.name))
        first: dict[object, int] = {}
        for index, row in enumerate(rows):
            row.index = index
            keys = subtree_keys(row.node, self.levels, depths[network_of(row.node)])
            row.subtree = tuple(first.setdefault((level, key), index) for level, key in enumerate(keys))
        return rows

    def _there_ms(self, node: NodeState) -> int | None:
        if node.usable:
            return self.now_ms
        return max(node.usable_ms, self.now_ms) if node.usable_ms > 0 else None

    def _lease_what_is_held(self) -> None:
        for row in self.rows:
            taken = [] if row.virtual else [gpu for gpu in range(row.count) if gpu not in row.node.free_gpus]
            row.leases = {gpu: Lease(None, UNKNOWN_MS) for gpu in taken}
        for run in self.snapshot.running:
            ends_ms = UNKNOWN_MS if run.ends_by_ms is None else run.ends_by_ms
            for row, gpus in self.held_rows(run.holds):
                row.leases |= {gpu: Lease(run.gang, ends_ms, run.ending) for gpu in gpus}
        for gang in self.snapshot.pending:
            for row, gpus in self.held_rows(gang.held):
                row.leases |= {gpu: Lease(gang.gang, UNKNOWN_MS) for gpu in gpus}

    def held_rows(self, holds: Iterable[Held]) -> list[tuple[Row, tuple[int, ...]]]:
        """Leases on nodes that are there."""
        return [(self.by_name[held.node], held.gpus) for held in holds if held.node in self.by_name]

    def _set_spares_aside(self) -> None:
        for pool in self.pools.values():
            whole = [row for row in self.rows if row.whole and row.node.pool == pool.name]
            for row in whole[max(0, len(whole) - pool.spares):]:
                row.claim = Claim(SPARE, UNKNOWN_MS, UNKNOWN_MS)

    # Who may take what.

    def meets(self, gang: PendingGang, ask: GpuAsk, row: Row) -> bool:
        """Whether the row could ever give the gang that, busy or not."""
        node = row.node
        pool = self.pools.get(node.pool)
        return (node.gpu.type == ask.type and node.gpu.count >= ask.count
                and gang.zone in (None, node.zone) and gang.pool in (None, node.pool) and node.name not in gang.exclude
                and (not gang.rdma or (node.fabric is not None and pool is not None and pool.rdma))
                and (gang.domain_size is None or node.domain is not None))

    def open_to(self, row: Row, gang: PendingGang) -> bool:
        claim = row.claim
        if claim is None or claim.gang == gang.gang or (claim.gang == SPARE and gang.held):
            return True
        return claim.at_ms != UNKNOWN_MS and self.now_ms + gang.bound_ms <= claim.at_ms

    def price(self, row: Row) -> int:
        pool = self.pools.get(row.node.pool)
        return 0 if pool is None else pool.price_nano_per_gpu_hour * pool.gpu.count

    # What a pass does to rows.

    def start(self, gang: PendingGang, members: tuple[NodeChoice, ...]) -> None:
        """Lease the members to the gang; what it held there is part of it."""
        for member in members:
            row = self.by_name[member.node]
            row.leases |= {gpu: Lease(gang.gang, ends_ms(gang, self.now_ms)) for gpu in member.gpus}

    def give_back(self, gang: PendingGang, nodes: set[str]) -> None:
        """Free from the next pass on."""
        for row, gpus in self.held_rows(gang.held):
            if row.node.name in nodes:
                row.leases |= {gpu: Lease(gang.gang, self.now_ms, going=True) for gpu in gpus}

    def claim(self, rows: list[Row], gang: PendingGang, at_ms: int) -> list[Row]:
        """Keep the rows for the gang from then on; the rows that nobody had claimed."""
        new = [row for row in rows if row.claim is None]
        for row in rows:
            until_ms = ends_ms(gang, at_ms)
            if row.claim is None:
                row.claim = Claim(gang.gang, at_ms, until_ms)
            else:
                row.claim.until_ms = max(row.claim.until_ms, until_ms)
        return new

    def count_on(self, row: Row, gpus: int, gang: PendingGang, at_ms: int) -> None:
        """GPUs of a row that is coming are as good as leased."""
        row.leases |= {gpu: Lease(gang.gang, ends_ms(gang, at_ms)) for gpu in row.free[:gpus]}

    def ask_for(self, row: Row) -> None:
        row.virtual, row.new = False, True
        row.there_ms = self.now_ms + self.pools[row.node.pool].boot_ms

    def end(self, run: RunningGang, rows: list[Row]) -> None:
        """The gang leaves the rows within its grace."""
        for row in rows:
            for lease in row.leases.values():
                if lease.gang == run.gang:
                    lease.going, lease.until_ms = True, min(lease.until_ms, self.now_ms + run.grace_ms)


def ends_ms(gang: PendingGang, start_ms: int) -> int:
    """When a gang that starts then gives its nodes back, as far as anything says."""
    return min(start_ms + gang.bound_ms, UNKNOWN_MS)


def _addable(pool: PoolState, nodes: list[NodeState], taken: set[str]) -> list[NodeState]:
    path = growth_path(pool.name, (node.path for node in nodes if node.pool == pool.name and not node.gone))
    names = (f"{pool.name}+{index}" for index in range(1, pool.most + len(taken) + 1))
    new = [name for name in names if name not in taken][:max(0, pool.most - pool.nodes)]
    return [NodeState(name=name, pool=pool.name, gpu=pool.gpu, zone=pool.zone, fabric=pool.fabric, path=path,
                      usable=False, emulated=pool.emulated) for name in new]
