"""The reference planner: one pass over a snapshot, in plain Python, right rather than fast."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar, cast

from gangline.plan.board import UNKNOWN_MS, Board, Spot
from gangline.plan.demand import Demand
from gangline.plan.explain import waits_for_capacity, waits_for_others, waits_in_vain
from gangline.plan.forecast import forecast
from gangline.plan.growth import Growth, growth
from gangline.plan.never import misfit, never_fits
from gangline.plan.outcome import CapacityRequest, NodeChoice, Placement, Plan, Release, Reservation, Waiting
from gangline.plan.place import complete, place
from gangline.plan.snapshot import Held, PendingGang, Policy, Snapshot

__all__ = ["misfit", "never_fits", "plan", "queue_order"]

Found = TypeVar("Found")


def plan(snapshot: Snapshot, policy: Policy, now_ms: int) -> Plan:
    """What to do now: whole gangs to place, nodes to ask for, nodes to keep, and why the others wait.

    Gangs are taken by priority, gangs in repair first among equals, then by submission, then by id. The
    outcome depends on the values alone: neither the order of nodes nor that of gangs changes it.
    """
    return _Pass(Board(snapshot, policy, now_ms)).run()


def queue_order(gang: PendingGang) -> tuple[int, bool, int, str]:
    """Sorts gangs as a pass takes them."""
    return -gang.priority, not gang.held, gang.submitted_ms, gang.gang


class _Pass:
    """The decisions of one pass, gathered gang by gang."""

    def __init__(self, board: Board) -> None:
        self.board = board
        self.placements: list[Placement] = []
        self.releases: list[Release] = []
        self.reservations: list[Reservation] = []
        self.waiting: list[Waiting] = []
        self.asked: dict[str, int] = {}
        self.asked_for: dict[str, list[str]] = {}
        self.unreserved = board.policy.reserve_first
        self.too_long_ms: dict[tuple[object, bool], int] = {}  # demand -> the shortest limit that did not fit
        self.known: dict[tuple[object, ...], tuple[int, object]] = {}

    def run(self) -> Plan:
        for gang in sorted(self.board.snapshot.pending, key=queue_order):
            demand = self.board.demand(gang)
            members = self._repair(demand) if gang.held else self._place(demand)
            if members is None:
                self._wait(demand)
            else:
                self._start(gang, members)
        capacity = tuple(CapacityRequest(pool=pool, nodes=count, gangs=tuple(self.asked_for[pool]))
                         for pool, count in sorted(self.asked.items()))
        return Plan(base=self.board.snapshot.version, now_ms=self.board.now_ms,
                    placements=tuple(self.placements), capacity=capacity, releases=tuple(self.releases),
                    reservations=tuple(self.reservations), waiting=tuple(self.waiting))

    def _repair(self, demand: Demand) -> tuple[NodeChoice, ...] | None:
        """Members that include every held node that still serves; without one, any that fit."""
        gang = demand.gang
        kept = [h for h in gang.held if _keeps(self.board, demand, h)]
        kept = kept[:1] if demand.single else kept
        if kept:
            members = complete(self.board, demand, kept)
            names = {h.node for h in kept} if members is not None else set()
            self._release(gang, names)
            return members
        self._release(gang, set())
        return self._place(demand)

    def _release(self, gang: PendingGang, kept: set[str]) -> None:
        names = tuple(sorted({h.node for h in gang.held} - kept))
        if names:
            self.releases.append(Release(gang=gang.gang, nodes=names))
            self.board.release(gang, names)

    def _start(self, gang: PendingGang, members: tuple[NodeChoice, ...]) -> None:
        spots = [self.board.by_name[m.node] for m in members]
        self.board.take(members, gang)
        zones, fabrics = {s.node.zone for s in spots}, {s.node.fabric for s in spots}
        self.placements.append(Placement(
            gang=gang.gang, nodes=members, zone=zones.pop() if len(zones) == 1 else "",
            fabric=fabrics.pop() if len(fabrics) == 1 else None))

    def _place(self, demand: Demand, *, heed_claims: bool = True) -> tuple[NodeChoice, ...] | None:
        """`place`, unless a gang of the same demand did not fit: what is free only shrinks in a pass."""
        limit_ms = UNKNOWN_MS if demand.gang.limit_ms is None else demand.gang.limit_ms
        key = _signature(demand.gang), heed_claims
        if limit_ms >= self.too_long_ms.get(key, UNKNOWN_MS + 1):
            return None
        members = place(self.board, demand, heed_claims=heed_claims)
        if members is None:
            self.too_long_ms[key] = limit_ms if heed_claims else 0
        return members

    def _wait(self, demand: Demand) -> None:
        found = self._remember(growth, demand)
        if found is not None:
            self._ask(demand, found)
            return
        expected = self._remember(forecast, demand)
        if expected is None:
            wrong = misfit(demand.gang, self.board.snapshot)
            self.waiting.append(waits_in_vain(self.board, demand, wrong))
            return
        without_claims = self._place(demand, heed_claims=False) if self.board.claimed else None
        self.waiting.append(waits_for_others(self.board, demand, expected, without_claims))
        if self.unreserved > 0:
            self.unreserved -= 1
            self._reserve(demand.gang, [s for s in expected.spots if s.claim is None], expected.at_ms)
            # Nodes on their way are only hoped for: claiming them here would make a later gang, which
            # they complete, ask for yet another one in every pass.
            self.board.keep([s for s in expected.spots if s.node.usable], demand.gang, expected.free_ms)

    def _remember(self, find: Callable[[Board, Demand], Found | None], demand: Demand) -> Found | None:
        """What `find` found for the same demand, as long as nothing was decided since."""
        if demand.gang.held:
            return find(self.board, demand)
        key = find.__name__, _signature(demand.gang)
        known = self.known.get(key)
        if known is None or known[0] != self.board.changes:
            known = self.known[key] = (self.board.changes, find(self.board, demand))
        return cast("Found | None", known[1])

    def _ask(self, demand: Demand, found: Growth) -> None:
        gang = demand.gang
        self.waiting.append(waits_for_capacity(gang, found))
        for spot in found.new:
            self.board.grow(spot)
            self.asked[spot.node.pool] = self.asked.get(spot.node.pool, 0) + 1
        for pool in {s.node.pool for s in found.spots if s.grown}:
            self.asked_for.setdefault(pool, []).append(gang.gang)
        self._reserve(gang, found.spots, found.ready_ms)
        if demand.single:
            self.board.keep_part(found.spots[0], found.choice.asks[0].count, gang, found.ready_ms)
        else:
            self.board.keep(found.spots, gang, found.ready_ms)

    def _reserve(self, gang: PendingGang, spots: Iterable[Spot], at_ms: int) -> None:
        nodes = tuple(s.node.name for s in sorted(spots, key=lambda s: s.order) if not s.grown)
        if nodes:
            self.reservations.append(Reservation(
                gang=gang.gang, nodes=nodes, at_ms=None if at_ms == UNKNOWN_MS else at_ms))


def _keeps(board: Board, demand: Demand, held: Held) -> bool:
    """Whether a held node still serves: in service, still what the gang asks for, and whole if it must be."""
    spot = board.by_name.get(held.node)
    if spot is None or not spot.node.usable or not demand.eligible(spot.node):
        return False
    if demand.single:
        return any(c.asks[0].type == spot.node.gpu.type and c.asks[0].count == len(held.gpus)
                   for c in demand.choices)
    return (len({*held.gpus, *spot.free}) == spot.count
            and any(need.met_by(spot.node) for c in demand.choices for need in c.needs))


def _signature(gang: PendingGang) -> tuple[object, ...]:
    """Equal for gangs that ask for the same, whoever they are."""
    return gang.roles, gang.rdma, gang.zone, gang.pool, gang.within, gang.exclude
