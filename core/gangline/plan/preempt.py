"""Whom to preempt for a blocked gang: the cheapest whole gangs that are enough, and no more."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gangline.plan.board import Board
from gangline.plan.demand import Choice, Demand
from gangline.plan.fleet import Bools, Ints
from gangline.plan.place import Offers
from gangline.plan.snapshot import Held, PendingGang, RunningGang

if TYPE_CHECKING:
    from gangline.plan.planner import Decision


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


@dataclass(frozen=True, slots=True)
class _Victim:
    run: RunningGang
    rows: tuple[int, ...]
    gpus: tuple[int, ...]
    cost: int

    @property
    def rank(self) -> tuple[int, int, int, str]:
        return self.run.priority, self.cost, -self.run.since_ms, self.run.gang

    @property
    def beyond_least(self) -> set[int]:
        """The rows that an elastic gang can give up."""
        return set(sorted(self.rows)[self.run.least:])


_Value = tuple[int, int, int, int, int]
_GIVEN_BACK = ""  # who holds what is free from the next pass on


def evict(decision: Decision, gang: PendingGang, demand: Demand, offers: Offers) -> Eviction | None:
    """What makes room for the gang; None when nothing may, or when enough is being freed already."""
    board = decision.board
    if gang.priority <= board.least_priority and not board.usage.limited:
        return None
    search = _Search(decision, gang, demand)
    found = list(search.options(offers.choices))
    if search.coming or not found:
        return None
    return min(found, key=lambda option: option[0])[1]


class _Search:
    """The options for one gang."""

    def __init__(self, decision: Decision, gang: PendingGang, demand: Demand) -> None:
        self.board, self.gang, self.demand = decision.board, gang, demand
        board = self.board
        shrinking = {resize.gang for resize in decision.resizes}
        self.ending = {run.gang for run in board.snapshot.running
                       if run.ending or run.gang in decision.preemptions}
        self.holders: dict[int, dict[str, int]] = dict(board.holders)
        for row, gpus in board.given_back.items():
            self.holders[row] = {**self.holders.get(row, {}), _GIVEN_BACK: gpus}
        self.leaving = self.ending | {_GIVEN_BACK}
        self._going: dict[str, dict[str, int]] | None = None
        self.victims = sorted((victim for run in board.snapshot.running
                               if run.gang not in self.ending and run.gang not in shrinking
                               and (victim := self._victim(decision, run)) is not None),
                              key=lambda victim: victim.rank)
        self.usable: Bools = board.in_service & (board.claim < 0)
        self.coming = False  # enough is being freed already

    def _victim(self, decision: Decision, run: RunningGang) -> _Victim | None:
        board, policy = self.board, self.board.policy
        highest = self.gang.priority if board.usage.limited else self.gang.priority - 1
        if not run.preemptible or run.priority > highest:
            return None
        spared_ms = max(run.since_ms + policy.min_runtime_ms,
                        run.preempted_ms + policy.cool_down_ms if run.preempted_ms else 0)
        if spared_ms > board.now_ms:
            decision.due_ms = min(decision.due_ms, spared_ms)
            return None
        held = [(board.map.row[held.node], len(held.gpus)) for held in run.holds if held.node in board.map.row]
        saved_ms = run.since_ms if run.saved_ms is None else run.saved_ms
        cost = max(0, board.now_ms - saved_ms) * sum(gpus for _, gpus in held)
        return _Victim(run, tuple(row for row, _ in held), tuple(gpus for _, gpus in held), cost)

    def _victims_of(self, choice: Choice) -> list[_Victim]:
        """Those of lower priority, and those whose tenant gives back what it borrowed."""
        return [victim for victim in self.victims if victim.run.priority < self.gang.priority
                or (victim.run.priority == self.gang.priority and self.board.usage.reclaims(
                    self.gang.tenant, victim.run.tenant, choice.gpus, self._leaving()))]

    def _leaving(self) -> dict[str, dict[str, int]]:
        if self._going is None:
            self._going = {}
            for run in self.board.snapshot.running:
                if run.gang in self.ending:
                    use = self._going.setdefault(run.tenant, {})
                    for kind, count in self.board.usage.gpus_of(run.holds):
                        use[kind] = use.get(kind, 0) + count
        return self._going

    def options(self, choices: Sequence[Choice]) -> Iterator[tuple[_Value, Eviction]]:
        for choice in choices:
            if self.demand.single:
                yield from self._on_rows(choice)
            else:
                yield from self._in_subtrees(choice)

    # Whole nodes.

    def _in_subtrees(self, choice: Choice) -> Iterator[tuple[_Value, Eviction]]:
        board, level = self.board, self.demand.widest
        ids = board.map.ids[level]
        meets = np.zeros(board.map.size, np.bool_)
        for need in choice.needs:
            meets |= need.mask
        usable = meets & self.usable
        had = usable & board.whole
        for row in self.holders:
            had[row] |= usable[row] and self._leased_only_by(row, self.leaving)
        victims = self._victims_of(choice)
        subtrees = {int(ids[row]) for victim in victims for row in victim.rows if usable[row]}
        if self._enough_somewhere(choice, had, ids):
            self.coming = True
            return
        for subtree in sorted(subtrees):
            inside = ids == subtree
            option = self._in_subtree(choice, subtree, victims, had & inside, usable & inside)
            if option is not None:
                yield option

    def _enough_somewhere(self, choice: Choice, had: Bools, ids: Ints) -> bool:
        return any(self._enough(choice, had & (ids == subtree)) for subtree in np.unique(ids[had]))

    def _in_subtree(self, choice: Choice, subtree: int, victims: Sequence[_Victim], had: Bools,
                    usable: Bools) -> tuple[_Value, Eviction] | None:
        victims = [victim for victim in victims if any(usable[row] for row in victim.rows)]
        shrinks = _elastic(victims)
        given = {victim.run.gang: victim.beyond_least for victim in shrinks}

        def after_shrinks(chosen: Sequence[_Victim]) -> Bools:
            rows = {row for victim in chosen for row in given[victim.run.gang]}
            return self._freed(had, usable, rows, {victim.run.gang for victim in chosen})

        def after_ends(chosen: Sequence[_Victim]) -> Bools:
            return self._freed(had, usable, {row for victim in chosen for row in victim.rows},
                               {victim.run.gang for victim in chosen})

        for candidates, after, ends in ((shrinks, after_shrinks, False), (victims, after_ends, True)):
            chosen = _least(candidates, lambda some, after=after: self._enough(choice, after(some)))  # type: ignore[misc]
            if chosen is not None:
                rows = self._used(choice, had, after(chosen))
                if not self._allowed(rows):
                    continue
                return self._option(choice, subtree, self.demand.widest, chosen, rows, ends=ends)
        return None

    def _freed(self, had: Bools, usable: Bools, rows: set[int], gangs: set[str]) -> Bools:
        """Rows to be had once those gangs have left the rows."""
        freed = had.copy()
        for row in rows:
            freed[row] |= usable[row] and self._leased_only_by(row, self.leaving | gangs)
        return freed

    def _leased_only_by(self, row: int, gangs: set[str]) -> bool:
        """Whether all of the row is free once those gangs have left; what this pass placed on it stays."""
        held = self.holders[row]
        gpus = int(self.board.free[row]) + sum(held.values())
        return held.keys() <= gangs and gpus == self.board.map.count[row]

    def _enough(self, choice: Choice, rows: Bools) -> bool:
        """Whether the rows meet all needs; real and emulated nodes are never in one subtree."""
        block = self.demand.block
        for need in choice.needs:
            mine = rows & need.mask
            count = int(mine.sum())
            if block:
                count = int((np.bincount(self.board.map.ids[0][mine]) // block * block).sum())
            if count < need.upto:
                return False
        return True

    def _used(self, choice: Choice, had: Bools, freed: Bools) -> Ints:
        taken = np.zeros(0, np.int64)
        for need in choice.needs:
            rows = np.flatnonzero(freed & need.mask)
            rows = rows[~np.isin(rows, taken)]
            order = np.lexsort((rows, ~had[rows]))
            if self.demand.block:
                order = self._block_order(rows, order)
            taken = np.concatenate((taken, rows[order[:need.size]]))
        return np.sort(taken)

    def _allowed(self, rows: Ints) -> bool:
        values, counts = self.board.map.values, self.board.map.count
        return self.board.usage.allows(self.gang.tenant, [(values[row].gpu.type, int(counts[row])) for row in rows])

    def _block_order(self, rows: Ints, order: Ints) -> Ints:
        block, domains = self.demand.block, self.board.map.ids[0][rows]
        kept: list[int] = []
        for domain in dict.fromkeys(domains[order].tolist()):
            mine = [int(at) for at in order if domains[at] == domain]
            kept += mine[:len(mine) // block * block]
        return np.asarray(kept, np.int64)

    # Parts of a node.

    def _on_rows(self, choice: Choice) -> Iterator[tuple[_Value, Eviction]]:
        board, need = self.board, choice.needs[0]
        usable = need.mask & self.usable
        on_row: dict[int, list[_Victim]] = {}
        for victim in self._victims_of(choice):
            for row in victim.rows:
                if usable[row]:
                    on_row.setdefault(row, []).append(victim)
        for row in sorted(set(on_row) | {row for row in self.holders if usable[row]}):
            held = self.holders[row]
            free = int(board.free[row]) + sum(gpus for gang, gpus in held.items() if gang in self.leaving)
            if free >= need.ask.count:
                self.coming = True
                return

            def enough(some: Sequence[_Victim], free: int = free, held: dict[str, int] = held) -> bool:
                return free + sum(held[victim.run.gang] for victim in some) >= need.ask.count

            victims = on_row.get(row, [])
            shrunk = _least([victim for victim in _elastic(victims) if row in victim.beyond_least], enough)
            chosen = _least(victims, enough) if shrunk is None else shrunk
            if chosen is not None:
                yield self._option(choice, row, board.map.levels.any, chosen, np.asarray([row], np.int64),
                                   ends=shrunk is None)

    def _option(self, choice: Choice, place: int, level: int, chosen: Sequence[_Victim], rows: Ints, *,
                ends: bool) -> tuple[_Value, Eviction]:
        board = self.board
        value = (max(victim.run.priority for victim in chosen), sum(victim.cost for victim in chosen) if ends else 0,
                 len(chosen), choice.rank, place)
        used = set(rows.tolist())
        shrinks = () if ends else tuple(_shrink(victim, used, board) for victim in chosen)
        grace_ms = max(victim.run.grace_ms for victim in chosen)
        return value, Eviction(
            tuple(victim.run for victim in chosen) if ends else (), shrinks, choice, rows,
            board.now_ms + grace_ms, level, int(board.map.ids[level][rows[0]]))


def _elastic(victims: Sequence[_Victim]) -> list[_Victim]:
    return [victim for victim in victims if 0 < victim.run.least < len(victim.rows)]


def _shrink(victim: _Victim, used: set[int], board: Board) -> Shrink:
    given = sorted((held for held in victim.run.holds if board.map.row.get(held.node) in used),
                   key=lambda held: board.map.row[held.node])
    return Shrink(victim.run, len(victim.rows) - len(given), tuple(given))


def _least(candidates: Sequence[_Victim], enough: Callable[[Sequence[_Victim]], bool]) -> list[_Victim] | None:
    """Candidates in order until they are enough, then, last first, without those that are not needed."""
    chosen: list[_Victim] = []
    for victim in candidates:
        chosen.append(victim)
        if enough(chosen):
            break
    else:
        return None
    for victim in reversed(tuple(chosen)):
        rest = [other for other in chosen if other is not victim]
        if rest and enough(rest):
            chosen = rest
    return chosen
