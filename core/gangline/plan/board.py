"""The working state of one pass: what is still free, what is on its way, what is reserved."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from gangline.plan.demand import Choice, Demand, Need, demand_of
from gangline.plan.outcome import NodeChoice
from gangline.plan.snapshot import NodeState, PendingGang, Policy, PoolState, Snapshot
from gangline.plan.topology import Key, Level, Order, growth_path, subtree_keys, topology_order

UNKNOWN_MS = 1 << 62  # later than any instant: nothing says when


@dataclass(slots=True)
class Hold:
    """GPUs of a spot that a gang leases from `since_ms` until `ends_ms`."""

    gang: str
    gpus: tuple[int, ...]
    since_ms: int
    ends_ms: int


@dataclass(slots=True)
class Claim:
    """The gang a spot is kept for, from `at_ms` to `until_ms`."""

    gang: str
    at_ms: int
    until_ms: int


@dataclass(slots=True, eq=False)
class Spot:
    """One node during a pass. `soon` are GPUs that come free at `soon_ms`: booting or just released."""

    node: NodeState
    keys: tuple[Key, ...]
    order: Order
    free: list[int]
    soon: list[int] = field(default_factory=list)
    soon_ms: int = 0
    holds: list[Hold] = field(default_factory=list)
    claim: Claim | None = None
    grown: bool = False  # asked of its pool in this pass: it has no name yet

    @property
    def count(self) -> int:
        return self.node.gpu.count

    @property
    def whole(self) -> bool:
        return len(self.free) == self.node.gpu.count

    @property
    def whole_soon(self) -> bool:
        """Whole once what is on its way has come."""
        return bool(self.soon) and len(self.free) + len(self.soon) == self.node.gpu.count

    @property
    def down(self) -> bool:
        """Drained or unhealthy: nothing says that it will ever take work again."""
        return not self.node.usable and self.node.usable_ms == 0 and not self.grown


class Board:
    """A snapshot that one pass writes its decisions on, so that no gang is offered what another got."""

    def __init__(self, snapshot: Snapshot, policy: Policy, now_ms: int) -> None:
        self.snapshot, self.policy, self.now_ms = snapshot, policy, now_ms
        self.pools = {pool.name: pool for pool in snapshot.pools}
        self.room = {pool.name: max(0, pool.most - pool.nodes) for pool in snapshot.pools}
        self.grown: list[Spot] = []
        self.claimed = False  # whether any spot is kept for a gang
        self.changes = 0  # grows with every decision, so that what was found before one is known as old
        self.names = {r.gang: (r.name, r.slot) for r in snapshot.running}
        self.names |= {p.gang: (p.name, p.slot) for p in snapshot.pending}
        self.spots = sorted((_spot(n, now_ms) for n in snapshot.nodes if not n.gone), key=lambda s: s.order)
        self.by_name = {spot.node.name: spot for spot in self.spots}
        self._paths: dict[str, tuple[str, ...]] = {}
        self._matching: dict[tuple[object, ...], list[Spot]] = {}
        self.kinds = tuple(sorted({spot.node.emulated for spot in self.spots}))  # real nodes first
        self._types = {n.gpu.type for n in snapshot.nodes} | {p.gpu.type for p in snapshot.pools}
        self._rdma = {pool.name for pool in snapshot.pools if pool.rdma}
        self._hold_running()

    def demand(self, gang: PendingGang) -> Demand:
        return demand_of(gang, self._types, self._rdma)

    def matching(self, demand: Demand, need: Need) -> list[Spot]:
        """Spots of any condition that could ever meet the need, in topology order, grown ones last."""
        gang = demand.gang
        key = (need.ask, gang.zone, gang.pool, gang.exclude, gang.rdma)
        found = self._matching.get(key)
        if found is None:
            found = [s for s in self.spots if need.met_by(s.node) and demand.eligible(s.node)]
            self._matching[key] = found
        if not self.grown:
            return found
        return found + [s for s in self.grown if need.met_by(s.node) and demand.eligible(s.node)]

    def open_to(self, spot: Spot, gang: PendingGang) -> bool:
        """Whether the gang may take GPUs of the spot now: unclaimed, its own, or left again in time."""
        claim = spot.claim
        if claim is None or claim.gang == gang.gang:
            return True
        return (gang.limit_ms is not None and claim.at_ms != UNKNOWN_MS
                and self.now_ms + gang.limit_ms <= claim.at_ms)

    def potential(self, demand: Demand) -> list[Spot]:
        """The nodes that pools could still add for the gang, soonest first, then cheapest, then by name."""
        gang = demand.gang
        pools = [p for p in self.snapshot.pools if self.room[p.name] > 0 and gang.pool in (None, p.name)
                 and gang.zone in (None, p.zone)]
        asks = {need.ask for choice in demand.choices for need in choice.needs}
        return [spot for pool in sorted(pools, key=lambda p: (p.boot_ms, node_price(p), p.name))
                if any(a.type == pool.gpu.type and a.count <= pool.gpu.count for a in asks)
                for spot in self._potential(pool, gang.nodes) if demand.eligible(spot.node)]

    def _potential(self, pool: PoolState, most: int) -> list[Spot]:
        if pool.name not in self._paths:
            self._paths[pool.name] = growth_path(pool, self.snapshot.nodes)
        first = sum(spot.node.pool == pool.name for spot in self.grown) + 1
        ready_ms = self.now_ms + pool.boot_ms
        spots = []
        for index in range(first, first + min(most, self.room[pool.name])):
            node = NodeState(name=f"{pool.name}+{index}", pool=pool.name, gpu=pool.gpu, zone=pool.zone,
                             fabric=pool.fabric, path=self._paths[pool.name], usable=False,
                             usable_ms=ready_ms, emulated=pool.emulated)
            spots.append(Spot(node, subtree_keys(node), topology_order(node), [],
                              soon=list(range(pool.gpu.count)), soon_ms=ready_ms, grown=True))
        return spots

    def grow(self, spot: Spot) -> None:
        """Ask its pool for a potential spot; from now on it is on its way."""
        self.changes += 1
        self.room[spot.node.pool] -= 1
        self.grown.append(spot)

    def keep(self, spots: Iterable[Spot], gang: PendingGang, at_ms: int) -> None:
        """Let nobody else take the spots, as the gang is expected to start on them at `at_ms`.

        On a spot that another gang claimed it comes after that one, so whoever is next waits for both.
        """
        self.changes += 1
        self.claimed = True
        until_ms = _until_ms(gang, at_ms)
        for spot in spots:
            if spot.claim is None:
                spot.claim = Claim(gang.gang, at_ms, until_ms)
            else:
                spot.claim.until_ms = max(spot.claim.until_ms, until_ms)

    def keep_part(self, spot: Spot, count: int, gang: PendingGang, at_ms: int) -> None:
        """Count on `count` GPUs of a node on its way for the gang; others may count on the rest."""
        self.changes += 1
        gpus = (*spot.soon, *spot.free)[:count]
        spot.soon = [g for g in spot.soon if g not in gpus]
        spot.free = [g for g in spot.free if g not in gpus]
        spot.holds.append(Hold(gang.gang, gpus, at_ms, _until_ms(gang, at_ms)))

    def take(self, choices: Iterable[NodeChoice], gang: PendingGang) -> None:
        """Lease the chosen GPUs to the gang."""
        self.changes += 1
        ends_ms = _until_ms(gang, self.now_ms)
        for choice in choices:
            spot = self.by_name[choice.node]
            spot.free = [g for g in spot.free if g not in choice.gpus]
            spot.holds = [h for h in spot.holds if h.gang != gang.gang]
            spot.holds.append(Hold(gang.gang, choice.gpus, self.now_ms, ends_ms))

    def release(self, gang: PendingGang, names: Iterable[str]) -> None:
        """Give back what the gang held on those nodes; it is free in the next pass, not in this one."""
        self.changes += 1
        wanted = frozenset(names)
        for held in gang.held:
            spot = self.by_name.get(held.node)
            if held.node not in wanted or spot is None:
                continue
            spot.holds = [h for h in spot.holds if h.gang != gang.gang]
            if spot.node.usable:
                spot.soon, spot.soon_ms = sorted({*spot.soon, *held.gpus}), self.now_ms

    def _hold_running(self) -> None:
        for run in self.snapshot.running:
            ends_ms = UNKNOWN_MS if run.ends_by_ms is None else max(run.ends_by_ms, self.now_ms)
            for held in run.holds:
                if held.node in self.by_name:
                    self.by_name[held.node].holds.append(Hold(run.gang, held.gpus, run.since_ms, ends_ms))
        for gang in self.snapshot.pending:
            for held in gang.held:
                if held.node in self.by_name:
                    self.by_name[held.node].holds.append(
                        Hold(gang.gang, held.gpus, gang.submitted_ms, UNKNOWN_MS))


def node_price(pool: PoolState) -> int:
    """Nano-units an hour for one whole node."""
    return pool.price_nano_per_gpu_hour * pool.gpu.count


def counts_by_subtree(candidates: list[list[Spot]], level: Level) -> dict[Key, list[int]]:
    """How many spots of each list every subtree of the level has."""
    counts: dict[Key, list[int]] = {}
    for index, spots in enumerate(candidates):
        for spot in spots:
            row = counts.get(spot.keys[level])
            if row is None:
                row = counts[spot.keys[level]] = [0] * len(candidates)
            row[index] += 1
    return counts


def assign_roles(demand: Demand, choice: Choice, chosen: dict[Need, list[Spot]]) -> tuple[NodeChoice, ...]:
    """The members in node-rank order: roles in order, topology order inside a role. Whole nodes only."""
    left = {need.ask: sorted(spots, key=lambda s: s.order) for need, spots in chosen.items()}
    members = []
    for role, ask in zip(demand.gang.roles, choice.asks, strict=True):
        mine, left[ask] = left[ask][:role.size], left[ask][role.size:]
        members += [NodeChoice(node=s.node.name, gpus=tuple(range(s.count)), ask=ask, role=role.name)
                    for s in mine]
    return tuple(members)


def _until_ms(gang: PendingGang, start_ms: int) -> int:
    """When a gang that starts at `start_ms` gives its nodes back; UNKNOWN_MS without a limit."""
    if gang.limit_ms is None or start_ms == UNKNOWN_MS:
        return UNKNOWN_MS
    return start_ms + gang.limit_ms


def _spot(node: NodeState, now_ms: int) -> Spot:
    free = sorted(node.free_gpus) if node.usable else []
    spot = Spot(node, subtree_keys(node), topology_order(node), free)
    if not node.usable and node.usable_ms > 0:
        spot.soon, spot.soon_ms = list(range(node.gpu.count)), max(node.usable_ms, now_ms)
    return spot
