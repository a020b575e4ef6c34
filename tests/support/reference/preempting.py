"""Whom to preempt for a blocked gang."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gangline.plan.snapshot import PendingGang, RunningGang
from reference.asking import Choice, Use, block_of, enough, is_single, meeting, widest
from reference.world import Row, World


@dataclass(frozen=True)
class Eviction:
    """`ended` end whole, `shrunk` give up rows; the gang then has `used`, from `at_ms` on."""

    value: tuple[int, ...]
    ended: list[RunningGang]
    shrunk: list[tuple[RunningGang, list[Row]]]
    used: list[Row]
    at_ms: int


def evict(world: World, use: Use, gang: PendingGang, choices: list[Choice]) -> Eviction | None:
    """The cheapest way to make room; None when there is none, or when enough is being freed already."""
    options: list[Eviction] = []
    for choice in choices:
        usable = [row for row in world.rows if row.in_service and row.claim is None
                  and any(world.meets(gang, need.ask, row) for need in choice.needs)]
        places = ([[row] for row in usable] if is_single(gang)
                  else _by_subtree(usable, widest(world, gang)))
        victims = _victims(world, use, gang, choice)
        for rows in places:
            room = _Room(world, gang, choice, rows)
            if room.enough_without(set(), set()):
                return None
            allowed = [option for option in room.make(victims) if is_single(gang) or use.allows(
                gang.tenant, [(row.node.gpu.type, row.count) for row in option.used])]
            options += allowed[:1]
    return min(options, key=lambda option: option.value, default=None)


def _by_subtree(rows: list[Row], level: int) -> list[list[Row]]:
    return [[row for row in rows if row.subtree[level] == subtree]
            for subtree in sorted({row.subtree[level] for row in rows})]


def _victims(world: World, use: Use, gang: PendingGang, choice: Choice) -> list[RunningGang]:
    policy, now_ms = world.policy, world.now_ms
    found = [run for run in world.snapshot.running
             if run.preemptible and run.gang not in world.ending | world.shrunk
             and now_ms - run.since_ms >= policy.min_runtime_ms
             and (not run.preempted_ms or now_ms - run.preempted_ms >= policy.cool_down_ms)
             and (run.priority < gang.priority
                  or (run.priority == gang.priority and use.may_reclaim(gang.tenant, run.tenant, choice)))]
    return sorted(found, key=lambda run: (run.priority, cost_of(world, run), -run.since_ms, run.gang))


def cost_of(world: World, run: RunningGang) -> int:
    """Work that would be lost: GPUs * ms."""
    saved_ms = run.since_ms if run.saved_ms is None else run.saved_ms
    return max(0, world.now_ms - saved_ms) * sum(len(gpus) for _, gpus in world.held_rows(run.holds))


@dataclass(frozen=True)
class _Room:
    """The usable rows of one subtree, or one row for a single."""

    world: World
    gang: PendingGang
    choice: Choice
    rows: list[Row]

    def make(self, victims: list[RunningGang]) -> list[Eviction]:
        """What could be done: elastic gangs shrink, else gangs end."""
        here = [run for run in victims if any(row.gpus_of(run.gang) for row in self.rows)]
        elastic = [run for run in here if 0 < run.least < len(self._rows_of(run))]
        given = {run.gang: self._rows_of(run)[run.least:] for run in elastic}
        found = []
        for candidates, shrink in ((elastic, True), (here, False)):
            def left(some: list[RunningGang], shrink: bool = shrink) -> set[Row]:
                return {row for run in some for row in given[run.gang]} if shrink else set(self.rows)

            chosen = _least(candidates, lambda some, left=left: self.enough_without({r.gang for r in some}, left(some)))
            if chosen is not None:
                used = self._used({run.gang for run in chosen}, left(chosen))
                found.append(self._eviction(chosen, used, shrink=shrink))
        return found

    def _rows_of(self, run: RunningGang) -> list[Row]:
        return sorted((row for row, _ in self.world.held_rows(run.holds)), key=lambda row: row.index)

    def enough_without(self, gangs: set[str], left: set[Row]) -> bool:
        """Whether there would be enough, had those gangs left those rows."""
        if is_single(self.gang):
            (row,) = self.rows
            leaving = gangs if row in left else set()
            going = sum(lease.going or lease.gang in leaving for lease in row.leases.values())
            return len(row.free) + going >= self.choice.asks[0].count
        rows = self._freed(gangs, left)
        return enough(self.choice, meeting(self.world, self.gang, self.choice, rows), block_of(self.gang))

    def _freed(self, gangs: set[str], left: set[Row]) -> list[Row]:
        return [row for row in self.rows if row.leased_only_by(gangs if row in left else set())]

    def _used(self, gangs: set[str], left: set[Row]) -> list[Row]:
        """Need by need: rows to be had first, then by row."""
        if is_single(self.gang):
            return self.rows
        taken: list[Row] = []
        for need, rows in zip(self.choice.needs, meeting(self.world, self.gang, self.choice, self._freed(gangs, left)),
                              strict=True):
            order = sorted((row for row in rows if row not in taken),
                           key=lambda row: (not row.leased_only_by(set()), row.index))
            order = order if self.gang.domain_size is None else _in_blocks(order, self.gang.domain_size)
            taken += order[:need.size]
        return taken

    def _eviction(self, chosen: list[RunningGang], used: list[Row], *, shrink: bool) -> Eviction:
        world = self.world
        place = self.rows[0].index if is_single(self.gang) else self.rows[0].subtree[widest(world, self.gang)]
        cost = 0 if shrink else sum(cost_of(world, run) for run in chosen)
        value = (max(run.priority for run in chosen), cost, len(chosen), self.choice.rank, place)
        given = [(run, [row for row in self._rows_of(run) if row in used]) for run in chosen] if shrink else []
        return Eviction(value, [] if shrink else chosen, given, used,
                        world.now_ms + max(run.grace_ms for run in chosen))


def _in_blocks(rows: list[Row], block: int) -> list[Row]:
    """Whole blocks, domain by domain, in the order in which the domains come."""
    kept: list[Row] = []
    for domain in dict.fromkeys(row.subtree[0] for row in rows):
        mine = [row for row in rows if row.subtree[0] == domain]
        kept += mine[:len(mine) // block * block]
    return kept


def _least(candidates: list[RunningGang],
           enough_after: Callable[[list[RunningGang]], bool]) -> list[RunningGang] | None:
    """Candidates in order until they are enough, then, last added first, without those not needed."""
    chosen: list[RunningGang] = []
    while not chosen or not enough_after(chosen):
        if len(chosen) == len(candidates):
            return None
        chosen.append(candidates[len(chosen)])
    for run in reversed(list(chosen)):
        rest = [other for other in chosen if other is not run]
        if rest and enough_after(rest):
            chosen = rest
    return chosen
