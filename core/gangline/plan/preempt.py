"""Whom to preempt for a blocked gang: the cheapest whole gangs that are enough, and no more."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gangline.plan.board import Board
from gangline.plan.demand import Choice, Demand
from gangline.plan.fleet import Bools, Ints
from gangline.plan.leases import Leases
from gangline.plan.place import Offers
from gangline.plan.room import Room
from gangline.plan.snapshot import Held, PendingGang, RunningGang

if TYPE_CHECKING:
    from gangline.plan.planner import Decision

_NEVER = np.iinfo(np.int64).max  # the place of who may not be preempted
_GOES = -1  # the place of who leaves anyway


@dataclass(frozen=True, slots=True)
class Shrink:
    """An elastic gang that gives up nodes."""

    run: RunningGang
    size: int
    given: tuple[Held, ...]


@dataclass(frozen=True, slots=True)
class Eviction:
    """Who makes room, and the rows that this frees for the gang, from `start_ms` on."""

    victims: tuple[RunningGang, ...]
    shrinks: tuple[Shrink, ...]
    choice: Choice
    rows: Ints
    start_ms: int
    level: int
    subtree: int


_Value = tuple[int, int, int, int, int]  # highest priority, cost, number of victims, rank of the choice, place


def evict(decision: Decision, gang: PendingGang, demand: Demand, offers: Offers) -> Eviction | None:
    """What makes room for the gang; None when nothing may, or when enough is being freed already."""
    board = decision.board
    if gang.priority <= board.least_priority and not board.usage.limited:
        return None
    search = _Search(decision, gang, demand)
    scenes = [_Scene.of(search, choice) for choice in offers.choices]
    look = _on_rows if demand.single else _in_subtrees
    if any(scene.coming() for scene in scenes):
        return None
    for scene in scenes:
        look(scene)
    return None if search.best is None else search.best[1]


class _Search:
    """The search for one gang: who may be preempted, by rank, and the best that was found so far.

    Victims are numbers of running gangs. Their rank is the lowest priority, then the least work that would be lost,
    then the latest start, then the id.
    """

    def __init__(self, decision: Decision, gang: PendingGang, demand: Demand) -> None:
        self.board, self.gang, self.demand = decision.board, gang, demand
        board = self.board
        self.leases = leases = Leases.of(board.snapshot)
        self.going = leases.ending.copy()
        self.going[self._numbers(decision.preemptions)] = True
        self.cost = np.maximum(0, board.now_ms - leases.saved_ms) * leases.total
        self.victims = self._rank(self._may(decision))
        self.usable: Bools = board.in_service & (board.claim < 0)
        given = np.zeros(board.map.size, np.int64)
        given[list(board.given_back)] = list(board.given_back.values())
        leaves = self.going[leases.run]
        size = board.map.size
        self.free_after: Ints = board.free + given + np.bincount(
            leases.row[leaves], leases.gpus[leaves], size).astype(np.int64)
        held = given + np.bincount(leases.row, leases.gpus, size).astype(np.int64)
        self.leased: Bools = (given > 0) | (np.bincount(leases.row, minlength=size) > 0)
        self.clears: Bools = board.free + held == board.map.count  # what this pass placed on a row stays
        self.best: tuple[_Value, Eviction] | None = None
        self._leaving: dict[str, dict[str, int]] | None = None

    def _numbers(self, gangs: Iterable[str]) -> list[int]:
        return [self.leases.number[gang] for gang in gangs if gang in self.leases.number]

    def _may(self, decision: Decision) -> Bools:
        """Who may be preempted, and is not spared for now: that may change with time."""
        board, leases, policy = self.board, self.leases, self.board.policy
        highest = self.gang.priority if board.usage.limited else self.gang.priority - 1
        may = leases.preemptible & (leases.priority <= highest) & ~self.going
        may[self._numbers(resize.gang for resize in decision.resizes)] = False
        again_ms = np.where(leases.preempted_ms > 0, leases.preempted_ms + policy.cool_down_ms, 0)
        spared_ms = np.maximum(leases.since_ms + policy.min_runtime_ms, again_ms)
        spared = may & (spared_ms > board.now_ms)
        if spared.any():
            decision.due_ms = min(decision.due_ms, int(spared_ms[spared].min()))
        may &= ~spared
        return may

    def _rank(self, may: Bools) -> Ints:
        leases = self.leases
        found = leases.by_name[may[leases.by_name]]
        return found[np.lexsort((-leases.since_ms[found], self.cost[found], leases.priority[found]))]

    def victims_of(self, choice: Choice) -> Ints:
        """Those of lower priority, and those whose tenant gives back what it borrowed."""
        lower = self.leases.priority[self.victims] < self.gang.priority
        if lower.all():
            return self.victims
        tenants = [self.leases.running[victim].tenant for victim in self.victims.tolist()]
        gives = {tenant: self.board.usage.reclaims(self.gang.tenant, tenant, choice.gpus, self.leaving())
                 for tenant in set(tenants)}
        return self.victims[lower | np.asarray([gives[tenant] for tenant in tenants], np.bool_)]

    def leaving(self) -> dict[str, dict[str, int]]:
        """What gangs hold that are ending, by tenant and type."""
        if self._leaving is None:
            self._leaving = {}
            for number in np.flatnonzero(self.going).tolist():
                run = self.leases.running[number]
                use = self._leaving.setdefault(run.tenant, {})
                for kind, count in self.board.usage.gpus_of(run.holds):
                    use[kind] = use.get(kind, 0) + count
        return self._leaving

    def beaten(self, bound: _Value) -> bool:
        """Nothing of at least this value is better than what was found."""
        return self.best is not None and self.best[0] <= bound

    def allowed(self, rows: Ints) -> bool:
        values, counts = self.board.map.values, self.board.map.count
        return self.board.usage.allows(self.gang.tenant, [(values[row].gpu.type, int(counts[row])) for row in rows])

    def offer(self, choice: Choice, place: int, level: int, chosen: Sequence[int], rows: Ints, *, ends: bool) -> None:
        """Keeps an option if it is the best so far."""
        runs = [self.leases.running[victim] for victim in chosen]
        cost = int(self.cost[list(chosen)].sum()) if ends else 0
        value = (max(run.priority for run in runs), cost, len(runs), choice.rank, place)
        if self.beaten(value):
            return
        used = set(rows.tolist())
        shrinks = () if ends else tuple(_shrink(run, used, self.board) for run in runs)
        start_ms = self.board.now_ms + max(run.grace_ms for run in runs)
        self.best = value, Eviction(tuple(runs) if ends else (), shrinks, choice, rows, start_ms, level,
                                    int(self.board.map.ids[level][rows[0]]))


@dataclass(frozen=True, slots=True)
class _Scene:
    """A choice: the rows that would do, those to be had without preempting, and the place of each gang in rank."""

    search: _Search
    choice: Choice
    usable: Bools
    had: Bools
    victims: Ints
    place: Ints

    @staticmethod
    def of(search: _Search, choice: Choice) -> _Scene:
        usable = np.zeros(search.board.map.size, np.bool_)
        for need in choice.needs:
            usable |= need.mask
        usable &= search.usable
        victims = search.victims_of(choice)
        place = np.full(len(search.leases.running), _NEVER)
        place[victims] = np.arange(len(victims))
        place[search.going] = _GOES
        leaves = search.leased & search.clears & (_last(search, place[search.leases.run]) == _GOES)
        return _Scene(search, choice, usable, usable & (search.board.whole | leaves), victims, place)

    def coming(self) -> bool:
        """Whether enough is being freed already."""
        search, choice = self.search, self.choice
        if search.demand.single:
            return bool((self.usable & search.leased & (search.free_after >= choice.needs[0].ask.count)).any())
        return any(self.room(subtree).enough(self.had[slice(*self._rows(subtree))])
                   for subtree in np.unique(self._ids[self.had]).tolist())

    @property
    def _ids(self) -> Ints:
        return self.search.board.map.ids[self.search.demand.widest]

    def _rows(self, subtree: int) -> tuple[int, int]:
        starts = self.search.board.map.starts[self.search.demand.widest]
        return int(starts[subtree]), int(starts[subtree + 1])

    def room(self, subtree: int) -> Room:
        """The rows of a subtree, as those of one room."""
        begin, end = self._rows(subtree)
        return Room(self.search.board.map, self.choice, self.search.demand.block, begin, end)

    def bounds(self, at: Ints, place: Ints) -> Iterator[tuple[_Value, int]]:
        """For each of the areas `at`, best first, what an option there is worth at least: its cheapest victim alone,
        which costs nothing where a gang may shrink."""
        if not len(at):
            return
        search, leases = self.search, self.search.leases
        first = np.full(int(at.max()) + 1, _NEVER)
        np.minimum.at(first, at, place)
        areas = np.flatnonzero(first < _NEVER)
        cheapest = self.victims[first[areas]]
        costs = np.zeros_like(areas) if leases.elastic[self.victims].any() else search.cost[cheapest]
        priorities = leases.priority[cheapest]
        for best in np.lexsort((areas, costs, priorities)):
            area = int(areas[best])
            yield (int(priorities[best]), int(costs[best]), 1, self.choice.rank, area), area


def _last(search: _Search, place: Ints) -> Ints:
    """The place of the last gang that must leave each row for it to be free; `place` has one entry per lease."""
    last = np.full(search.board.map.size, _GOES)
    np.maximum.at(last, search.leases.row, place)
    return last


# Whole nodes.

def _in_subtrees(scene: _Scene) -> None:
    search, leases = scene.search, scene.search.leases
    place = scene.place[leases.run]
    victim = (place != _GOES) & (place < _NEVER) & scene.usable[leases.row]
    level = search.demand.widest
    ids = search.board.map.ids[level]
    shrinking = victim & leases.elastic[leases.run]
    gives = np.where((place == _GOES) | (shrinking & leases.spare), place, _NEVER)
    free = scene.usable & search.leased & search.clears
    ways = [(ends, victim if ends else shrinking, np.where(free, _last(search, by), _NEVER))
            for ends, by in ((False, gives), (True, place)) if ends or shrinking.any()]
    for bound, subtree in scene.bounds(ids[leases.row[victim]], place[victim]):
        if search.beaten(bound):
            return
        room = scene.room(subtree)
        inside = leases.within(room.begin, room.end)
        for ends, who, last in ways:
            mine = inside[who[inside]]
            found = room.least(scene.had, last, leases.row[mine], place[mine])
            if found is not None and search.allowed(found.rows):
                search.offer(scene.choice, subtree, level, scene.victims[found.places].tolist(), found.rows, ends=ends)
                break


# Parts of a node.

def _on_rows(scene: _Scene) -> None:
    search, leases = scene.search, scene.search.leases
    place = scene.place[leases.run]
    victim = (place != _GOES) & (place < _NEVER) & scene.usable[leases.row]
    wanted = scene.choice.needs[0].ask.count
    most = search.free_after + np.bincount(leases.row[victim], leases.gpus[victim], search.board.map.size).astype(int)
    victim &= most[leases.row] >= wanted
    for bound, row in scene.bounds(leases.row[victim], place[victim]):
        if search.beaten(bound):
            return
        inside = leases.within(row, row + 1)
        mine = inside[victim[inside]]
        mine = mine[np.argsort(place[mine])]
        missing = wanted - int(search.free_after[row])
        shrunk = _least(mine[leases.spare[mine]], leases.gpus, missing)
        chosen = _least(mine, leases.gpus, missing) if shrunk is None else shrunk
        if chosen is not None:
            search.offer(scene.choice, row, search.board.map.levels.any, leases.run[chosen].tolist(),
                         np.asarray([row], np.int64), ends=shrunk is None)


def _least(candidates: Ints, gpus: Ints, missing: int) -> list[int] | None:
    """Leases in order until they have the GPUs that are missing, then, last first, without those not needed."""
    chosen: list[int] = []
    for lease in candidates.tolist():
        chosen.append(lease)
        missing -= int(gpus[lease])
        if missing <= 0:
            break
    else:
        return None
    for lease in reversed(tuple(chosen)):
        if len(chosen) > 1 and missing + int(gpus[lease]) <= 0:
            chosen.remove(lease)
            missing += int(gpus[lease])
    return chosen


def _shrink(run: RunningGang, used: set[int], board: Board) -> Shrink:
    given = sorted((held for held in run.holds if board.map.row.get(held.node) in used),
                   key=lambda held: board.map.row[held.node])
    here = sum(held.node in board.map.row for held in run.holds)
    return Shrink(run, here - len(given), tuple(given))
