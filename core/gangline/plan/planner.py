"""The planner: one pass over a snapshot. docs/planning.md says by which rules."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from gangline.plan.board import Board
from gangline.plan.demand import Demand
from gangline.plan.extras import grow_placed, grow_running, retire, warm_up
from gangline.plan.fleet import Ints
from gangline.plan.forecast import Forecast, forecast, just_in_time
from gangline.plan.outcome import (
    CapacityRequest,
    Placement,
    Plan,
    Preemption,
    Release,
    Reservation,
    Resize,
    WaitCode,
    Waiting,
)
from gangline.plan.place import Offers, Spot, place
from gangline.plan.policy import Order, Policy
from gangline.plan.preempt import Eviction, evict
from gangline.plan.reasons import Asked, explain
from gangline.plan.repair import complete, kept
from gangline.plan.snapshot import UNKNOWN_MS, PendingGang, Snapshot
from gangline.plan.turns import Turns

__all__ = ["Decision", "decide", "plan"]


def plan(snapshot: Snapshot, policy: Policy, now_ms: int) -> Plan:
    """What to do now: whole gangs to place, nodes to ask for and to keep, whom to preempt, why the others wait.

    The outcome depends on the values alone: neither the order of nodes nor that of gangs changes it.
    """
    return decide(snapshot, policy, now_ms).plan()


def decide(snapshot: Snapshot, policy: Policy, now_ms: int) -> Decision:
    """One pass without its reasons; `Decision.plan()` adds them."""
    made = Decision(Board(snapshot, policy, now_ms))
    made.run()
    return made


@dataclass(slots=True)
class Decision:
    """The decisions of one pass, gathered gang by gang."""

    board: Board
    placements: list[Placement] = field(default_factory=list)
    releases: list[Release] = field(default_factory=list)
    reservations: list[Reservation] = field(default_factory=list)
    preemptions: dict[str, Preemption] = field(default_factory=dict)
    resizes: list[Resize] = field(default_factory=list)
    asked: dict[str, list[str]] = field(default_factory=dict)  # pool -> gangs asked for
    asked_rows: dict[str, int] = field(default_factory=dict)
    blocked: list[Asked] = field(default_factory=list)
    spots: dict[str, Spot] = field(default_factory=dict)  # of elastic gangs placed
    due_ms: int = UNKNOWN_MS
    reserved: int = 0  # gangs that nodes are kept for
    evicted: int = 0  # gangs that others were preempted for

    def run(self) -> None:
        board = self.board
        queue = board.snapshot.queue
        turns = Turns(queue, board.policy, board.usage, board.now_ms, self._borrows if board.usage.lending else None)
        self.due_ms = turns.due_ms()
        for position in turns:
            self._turn(position, turns)
            if self.reserved >= board.policy.reserve_first and board.policy.backfill is Order.SHORTEST:
                turns.shortest_first()
            if board.policy.strict and self.blocked:
                self._block([queue.gangs[at] for at in turns.drop_all()], WaitCode.ORDER)
        self._afterwards()

    def _borrows(self, position: int) -> bool:
        """Whether the gang would use by its first choice what its tenant does not own; not asked of repairs."""
        board, queue = self.board, self.board.snapshot.queue
        gang = queue.gangs[position]
        choices = board.demand(gang, int(queue.kind[position])).choices
        return bool(choices) and not gang.held and not board.usage.owns(gang.tenant, choices[0].gpus)

    def _turn(self, position: int, turns: Turns) -> None:
        board = self.board
        gang = board.snapshot.queue.gangs[position]
        demand = board.demand(gang, turns.kind(position))
        if gang.held:  # it is placed anew with what it keeps, or gives all back
            board.usage.add(gang.tenant, board.usage.gpus_of(gang.held), -1)
        offers = Offers.of(board, gang, demand)
        spot = self._repair(gang, demand, offers) if gang.held else place(board, gang, demand, offers)
        if spot is not None:
            self._start(gang, spot)
        elif demand.choices and not offers.choices:
            self._block([gang], WaitCode.QUOTA)
            if not gang.held:
                self._drop_alike(position, turns, WaitCode.QUOTA, same_tenant=True)
        elif not self._wait(gang, demand, offers) and not gang.held:
            self._drop_alike(position, turns, None, same_tenant=offers.refused)

    def _repair(self, gang: PendingGang, demand: Demand, offers: Offers) -> Spot | None:
        """Members that include every held node that still serves; without one, any that fit."""
        keeps = kept(self.board, gang, demand)
        spot = complete(self.board, gang, demand, keeps, offers) if keeps else None
        kept_nodes = {self.board.map.names[keep.row] for keep in keeps} if spot is not None else set()
        given = tuple(sorted({held.node for held in gang.held} - kept_nodes))
        if given:
            self.releases.append(Release(gang=gang.gang, nodes=given))
            self.board.give_back(gang, given)
        return spot if keeps else place(self.board, gang, demand, offers)

    def _start(self, gang: PendingGang, spot: Spot) -> None:
        board, rows = self.board, spot.rows
        if not gang.single:
            board.take_whole(rows, gang, spot.gone)
        elif spot.kept:
            board.retake_part(rows[0], spot.members[0].gpus, gang)
        else:
            board.take_part(rows[0], spot.members[0].gpus, gang)
        if gang.most > gang.nodes:
            self.spots[gang.gang] = spot
        zone, fabric = board.map.network_of(rows)
        self.placements.append(Placement(gang=gang.gang, nodes=spot.members, zone=zone, fabric=fabric))

    def _block(self, gangs: list[PendingGang], code: WaitCode | None, found: Forecast | None = None,
               asked: int = 0) -> None:
        if gangs:
            self.blocked.append(Asked(gangs, code, found, asked))

    def _drop_alike(self, position: int, turns: Turns, code: WaitCode | None, *, same_tenant: bool) -> None:
        """Nothing was decided for the gang: later ones that ask for the same will fare no better."""
        board, queue = self.board, self.board.snapshot.queue
        least_bound_ms = 0
        if code is None and board.horizon_ms:  # a shorter one may be through before a claim begins
            least_bound_ms = min(queue.gangs[position].bound_ms, board.horizon_ms - board.now_ms + 1)
        self.blocked[-1].alike.extend(turns.drop_alike(position, least_bound_ms, same_tenant=same_tenant))

    def _wait(self, gang: PendingGang, demand: Demand, offers: Offers) -> bool:
        """Keep, ask or preempt for a blocked gang; whether anything was decided."""
        board = self.board
        room = self.reserved < board.policy.reserve_first
        evicts = self._may_evict(gang)
        if not room and not evicts and not (board.may_grow and self._could_move(demand)):
            self._block([gang], None)
            return False
        found = forecast(board, gang, demand, offers.choices)
        if found is not None and found.moving:
            self._move(gang, demand, found)
            return True
        eviction = evict(self, gang, demand, offers) if evicts else None
        if eviction is not None:
            self._evict(gang, eviction)
            return True
        left = room and self._waited(gang)
        self._block([gang], None, found if left else None)
        if found is None or not left:
            return False
        self.reserved += 1
        chosen = found.rows
        if not demand.single and not demand.block and len(found.choice.needs) == 1 and found.start_ms < UNKNOWN_MS:
            chosen = just_in_time(board, found, found.choice.needs[0])
        rows = chosen[board.in_service[chosen]]
        self._reserve(gang, rows[board.claim[rows] < 0], found.start_ms)
        board.keep(rows, gang, found.start_ms)
        return True

    def _may_evict(self, gang: PendingGang) -> bool:
        board, policy = self.board, self.board.policy
        return (policy.preempt and self.evicted < policy.preempt_first
                and (gang.priority > board.least_priority or board.usage.limited))

    def _waited(self, gang: PendingGang) -> bool:
        """Whether it has waited for as long as the policy demands before it keeps nodes for a gang."""
        due_ms = gang.since_ms + self.board.policy.reserve_after_ms
        if due_ms > self.board.now_ms:
            self.due_ms = min(self.due_ms, due_ms)
        return due_ms <= self.board.now_ms

    def _could_move(self, demand: Demand) -> bool:
        """Whether some row that boots or could be asked for would do and is not kept for anybody."""
        board = self.board
        loose = ~board.in_service & (board.coming_ms < UNKNOWN_MS) & (board.claim < 0)
        return bool(loose.any()) and any(bool((loose & need.mask).any())
                                         for choice in demand.choices for need in choice.needs)

    def _move(self, gang: PendingGang, demand: Demand, found: Forecast) -> None:
        board = self.board
        virtual = found.rows[board.virtual[found.rows]]
        asked = virtual[[self._unmet_long_enough(gang, row) for row in virtual]] if len(virtual) else virtual
        start_ms = found.start_ms
        if len(asked):
            board.ask(asked)
            for row in asked:
                pool = board.map.values[row].pool
                self.asked_rows[pool] = self.asked_rows.get(pool, 0) + 1
            if len(asked) == len(virtual):
                start_ms = int(board.available()[found.rows].max()) if not demand.single else int(
                    max(board.coming_ms[found.rows].max(), board.now_ms))
        for pool in {board.map.values[row].pool for row in found.rows if board.map.virtual[row]
                     and not board.virtual[row]}:
            self.asked.setdefault(pool, []).append(gang.gang)
        rows = found.rows[~board.virtual[found.rows]]
        self._block([gang], WaitCode.CAPACITY, Forecast(found.choice, found.rows, start_ms, found.level, found.subtree,
                                                        moving=True), len(asked))
        self._reserve(gang, rows[~board.map.virtual[rows] & (board.claim[rows] < 0)], start_ms)
        if demand.single and len(rows):
            board.count_on(int(rows[0]), found.choice.asks[0].count, gang, start_ms)
        elif not demand.single:
            board.keep(rows, gang, start_ms)

    def _unmet_long_enough(self, gang: PendingGang, row: int) -> bool:
        pool = self.board.map.pools[int(self.board.map.pool[row])]
        due_ms = gang.since_ms + pool.delay_ms
        if due_ms > self.board.now_ms:
            self.due_ms = min(self.due_ms, due_ms)
        return due_ms <= self.board.now_ms

    def _reserve(self, gang: PendingGang, rows: Ints, at_ms: int) -> None:
        if len(rows):
            self.reservations.append(Reservation(
                gang=gang.gang, nodes=tuple(self.board.map.names[row] for row in np.sort(rows)),
                at_ms=None if at_ms >= UNKNOWN_MS else at_ms))

    def _evict(self, gang: PendingGang, eviction: Eviction) -> None:
        now_ms = self.board.now_ms
        for victim in eviction.victims:
            self.preemptions[victim.gang] = Preemption(
                gang=victim.gang, gangs=(gang.gang,), reclaim=victim.priority >= gang.priority)
            for held in victim.holds:
                self.board.cut_short(held, now_ms + victim.grace_ms)
        for shrink in eviction.shrinks:
            self.resizes.append(Resize(gang=shrink.run.gang, size=shrink.size, gangs=(gang.gang,),
                                       nodes=tuple(held.node for held in shrink.given)))
            for held in shrink.given:
                self.board.cut_short(held, now_ms + shrink.run.grace_ms)
        self.evicted += 1
        rows = eviction.rows[self.board.in_service[eviction.rows]]
        self._block([gang], None, Forecast(eviction.choice, eviction.rows, eviction.start_ms, eviction.level,
                                           eviction.subtree, moving=False))
        self._reserve(gang, rows, eviction.start_ms)
        self.board.keep(rows, gang, eviction.start_ms)

    def _afterwards(self) -> None:
        board = self.board
        if self.spots:
            self.placements = grow_placed(board, self.placements, self.spots)
        if not len(board.snapshot.queue):
            grown, due_ms = grow_running(board)
            self.resizes += [grown] if grown is not None else []
            self.due_ms = min(self.due_ms, due_ms)

    def plan(self) -> Plan:
        """The plan, with a reason for every wait."""
        return self._as_plan(explain(self.board, self.blocked, tuple(self.preemptions), self.placements))

    def bare_plan(self) -> Plan:
        """The plan without its reasons."""
        return self._as_plan(())

    def _as_plan(self, waiting: tuple[Waiting, ...]) -> Plan:
        board = self.board
        asked = dict(self.asked_rows)
        for pool, more in warm_up(board).items():
            asked[pool] = asked.get(pool, 0) + more
        retirements, idle_due_ms = retire(board)
        due_ms = min(self.due_ms, idle_due_ms)
        return Plan(
            base=board.snapshot.version, now_ms=board.now_ms, placements=tuple(self.placements),
            capacity=tuple(CapacityRequest(pool=pool, nodes=count, gangs=tuple(self.asked.get(pool, ())))
                           for pool, count in sorted(asked.items())),
            releases=tuple(self.releases), reservations=tuple(self.reservations),
            preemptions=tuple(self.preemptions[victim] for victim in sorted(self.preemptions)),
            resizes=tuple(sorted(self.resizes, key=lambda resize: resize.gang)), retirements=retirements,
            waiting=waiting, due_ms=None if due_ms >= UNKNOWN_MS else due_ms)
