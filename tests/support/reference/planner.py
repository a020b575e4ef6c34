"""One pass, gang by gang."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

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
from gangline.plan.policy import Policy
from gangline.plan.snapshot import UNKNOWN_MS, PendingGang, Snapshot
from reference.afterwards import grow_placed, grow_running, retire, warm_up
from reference.asking import Offers, Use, choices_of, is_single
from reference.forecasting import Set, could_ever_be, forecast, just_in_time
from reference.placing import Spot, complete, gpus_of, kept, place
from reference.preempting import Eviction, evict
from reference.turns import groups, next_of
from reference.world import Row, World


def reference_plan(snapshot: Snapshot, policy: Policy, now_ms: int) -> Plan:
    """What docs/planning.md says. Each waiting gang has an entry of its own, with its code and nothing else."""
    return _Pass(snapshot, policy, now_ms).run()


@dataclass
class _Wait:
    """Why a gang waits, as far as that is known before everything is decided."""

    gang: PendingGang
    code: WaitCode | None = None
    reserved: bool = False  # a reservation or a preemption was decided for it
    like: _Wait | None = None  # the gang that blocked it, unless it was looked at itself


class _Pass:
    def __init__(self, snapshot: Snapshot, policy: Policy, now_ms: int) -> None:
        self.snapshot, self.policy, self.now_ms = snapshot, policy, now_ms
        self.world = World(snapshot, policy, now_ms)
        self.use = Use(self.world)
        self.placed: dict[str, Spot] = {}
        self.waits: dict[str, _Wait] = {}
        self.releases: list[Release] = []
        self.reservations: list[Reservation] = []
        self.preemptions: list[Preemption] = []
        self.resizes: list[Resize] = []
        self.asked: Counter[str] = Counter()
        self.asked_for: dict[str, list[str]] = {}
        self.given_reservations = 0
        self.evicted_for = 0
        self.latest_claim_ms = 0
        self.looked = False  # whether any gang has had its turn

    def run(self) -> Plan:
        every = [gang for group in groups(self.world) for gang in group]
        for group in groups(self.world):
            put_off = self._round(list(group), every, may_put_off=True)
            self._round(put_off, every, may_put_off=False)
        grow_placed(self.world, self.use, self.placed)
        grown = grow_running(self.world, self.use)
        self.resizes += [grown] if grown else []
        return self._plan()

    def _round(self, left: list[PendingGang], every: list[PendingGang], *, may_put_off: bool) -> list[PendingGang]:
        """Give each its turn; those put off are left."""
        put_off: list[PendingGang] = []
        while left:
            backfill = self.looked and self.given_reservations >= self.policy.reserve_first
            gang = next_of(self.world, self.use, left, backfill=backfill)
            left.remove(gang)
            if gang.gang in self.waits:
                continue  # one that asks for the same found nothing
            if self.policy.strict and self.waits:
                self.waits[gang.gang] = _Wait(gang, WaitCode.ORDER)
            elif may_put_off and self._borrows(gang):
                put_off.append(gang)
            else:
                self.looked = True
                self._turn(gang, [other for other in every
                                  if other.gang not in {*self.placed, *self.waits, gang.gang}])
        return put_off

    def _borrows(self, gang: PendingGang) -> bool:
        """By its first choice it would have more than its tenant's own quota."""
        choices = choices_of(self.world, gang)
        lending = any(tenant.cohort for tenant in self.world.snapshot.tenants)
        return lending and bool(choices) and not gang.held and not self.use.owns(gang.tenant, choices[0].gpus)

    def _turn(self, gang: PendingGang, later: list[PendingGang]) -> None:
        for row, gpus in self.world.held_rows(gang.held):
            self.use.add(gang.tenant, [(row.node.gpu.type, len(gpus))], -1)
        offers = Offers.of(self.world, self.use, gang)
        spot = self._repair(gang, offers) if gang.held else place(self.world, self.use, gang, offers)
        if spot is not None:
            self.placed[gang.gang] = spot
            self.world.start(gang, spot.members)
            self.use.add(gang.tenant, gpus_of(self.world, spot.members))
            return
        wait = self.waits[gang.gang] = _Wait(gang)
        if choices_of(self.world, gang) and not offers.choices:
            wait.code = WaitCode.QUOTA
        elif self._decide(wait, offers):
            return
        if not gang.held:
            self._block_alike(wait, offers, later)

    def _repair(self, gang: PendingGang, offers: Offers) -> Spot | None:
        keeps = kept(self.world, gang)
        spot = complete(self.world, self.use, gang, keeps, offers) if keeps else None
        given = {held.node for held in gang.held} - ({held.node for held in keeps} if spot else set())
        if given:
            self.world.give_back(gang, given)
            self.releases.append(Release(gang=gang.gang, nodes=tuple(sorted(given))))
        return spot if keeps else place(self.world, self.use, gang, offers)

    def _block_alike(self, wait: _Wait, offers: Offers, later: list[PendingGang]) -> None:
        gang = wait.gang
        for other in later:
            if other.signature != gang.signature or other.held or (offers.refused and other.tenant != gang.tenant):
                continue
            sooner = other.bound_ms < gang.bound_ms and self.now_ms + other.bound_ms <= self.latest_claim_ms
            if not sooner or wait.code is WaitCode.QUOTA:
                self.waits[other.gang] = _Wait(other, like=wait)

    def _decide(self, wait: _Wait, offers: Offers) -> bool:
        """Ask, preempt or reserve for a blocked gang; whether anything was decided."""
        gang, policy = wait.gang, self.policy
        found = forecast(self.world, gang, offers.choices)
        if found is not None and found.moving:
            self._move(wait, found)
            return True
        if policy.preempt and self.evicted_for < policy.preempt_first:
            eviction = evict(self.world, self.use, gang, offers.choices)
            if eviction is not None:
                self._evict(gang, eviction)
                wait.reserved = True
                return True
        waited = self.now_ms - gang.since_ms >= policy.reserve_after_ms
        if found is None or not waited or self.given_reservations >= policy.reserve_first:
            return False
        rows = just_in_time(self.world, gang, found)
        self._reserve(gang, [row for row in rows if row.in_service], found.start_ms)
        self.given_reservations += 1
        wait.reserved = True
        return True

    def _move(self, wait: _Wait, found: Set) -> None:
        gang, wait.code = wait.gang, WaitCode.CAPACITY
        virtual = [row for row in found.rows if row.virtual]
        asked = [row for row in virtual
                 if self.now_ms - gang.since_ms >= self.world.pools[row.node.pool].delay_ms]
        for row in asked:
            self.world.ask_for(row)
            self.asked[row.node.pool] += 1
        for pool in {row.node.pool for row in found.rows if row.new}:
            self.asked_for.setdefault(pool, []).append(gang.gang)
        start_ms = found.start_ms
        if asked and len(asked) == len(virtual):
            gpus = found.choice.asks[0].count if is_single(gang) else None
            start_ms = max(row.part_ready_ms(gpus or row.count) for row in found.rows)
        rows = [row for row in found.rows if not row.virtual]
        if is_single(gang):
            self._tell(gang, [row for row in rows if row.claim is None], start_ms)
            for row in rows:
                self.world.count_on(row, found.choice.asks[0].count, gang, start_ms)
        else:
            self._reserve(gang, rows, start_ms)

    def _reserve(self, gang: PendingGang, rows: list[Row], at_ms: int) -> None:
        new = self.world.claim(rows, gang, at_ms)
        if at_ms < UNKNOWN_MS:
            self.latest_claim_ms = max(self.latest_claim_ms, at_ms)
        self._tell(gang, new, at_ms)

    def _tell(self, gang: PendingGang, rows: list[Row], at_ms: int) -> None:
        nodes = tuple(row.node.name for row in sorted(rows, key=lambda row: row.index) if not row.new)
        if nodes:
            known_ms = None if at_ms == UNKNOWN_MS else at_ms
            self.reservations.append(Reservation(gang=gang.gang, nodes=nodes, at_ms=known_ms))

    def _evict(self, gang: PendingGang, eviction: Eviction) -> None:
        for run in eviction.ended:
            reclaim = run.priority >= gang.priority
            self.preemptions.append(Preemption(gang=run.gang, gangs=(gang.gang,), reclaim=reclaim))
            self.world.ending.add(run.gang)
            self.world.end(run, self.world.rows)
        for run, rows in eviction.shrunk:
            self.resizes.append(Resize(gang=run.gang, size=len(self.world.held_rows(run.holds)) - len(rows),
                                       nodes=tuple(row.node.name for row in rows), gangs=(gang.gang,)))
            self.world.shrunk.add(run.gang)
            self.world.end(run, rows)
        self.evicted_for += 1
        self._reserve(gang, eviction.used, eviction.at_ms)

    # What becomes of it.

    def _plan(self) -> Plan:
        asked = self.asked + Counter(warm_up(self.world))
        waiting = tuple(Waiting(gangs=(name,), code=self._code(wait), text="", short=0)
                        for name, wait in self.waits.items())
        return Plan(
            base=self.snapshot.version, now_ms=self.now_ms, waiting=waiting,
            placements=tuple(self._placement(name, spot) for name, spot in self.placed.items()),
            capacity=tuple(CapacityRequest(pool=pool, nodes=asked[pool], gangs=tuple(self.asked_for.get(pool, ())))
                           for pool in sorted(asked)),
            releases=tuple(self.releases), reservations=tuple(self.reservations),
            preemptions=tuple(sorted(self.preemptions, key=lambda each: each.gang)),
            resizes=tuple(sorted(self.resizes, key=lambda each: each.gang)), retirements=tuple(retire(self.world)))

    def _placement(self, gang: str, spot: Spot) -> Placement:
        nodes = [self.world.by_name[member.node].node for member in spot.members]
        zones, networks = {node.zone for node in nodes}, {(node.zone, node.fabric) for node in nodes}
        return Placement(gang=gang, nodes=spot.members, zone=zones.pop() if len(zones) == 1 else "",
                         fabric=networks.pop()[1] if len(networks) == 1 else None)

    def _code(self, wait: _Wait) -> WaitCode:
        if wait.like is not None:
            return self._code(wait.like)
        if wait.code is not None:
            return wait.code
        gang, every = wait.gang, choices_of(self.world, wait.gang)
        offers = Offers.of(self.world, self.use, gang)
        if not wait.reserved:
            if every and not offers.choices:
                return WaitCode.QUOTA
            if forecast(self.world, gang, offers.choices) is None:
                return WaitCode.UNAVAILABLE if could_ever_be(self.world, gang, every) else WaitCode.NEVER
        fits = place(self.world, self.use, gang, offers, heed_claims=False)
        rows = [] if fits is None else [self.world.by_name[member.node] for member in fits.members]
        return WaitCode.BUSY if all(self.world.open_to(row, gang) for row in rows) else WaitCode.RESERVED
