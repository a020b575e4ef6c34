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
from gangline.plan.snapshot import PendingGang, RunningGang

if TYPE_CHECKING:
    from gangline.plan.planner import Decision


@dataclass(frozen=True, slots=True)
class Shrink:
    """An elastic gang that gives up nodes."""

    gang: str
    size: int
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Eviction:
    """Who makes room, and the rows that this frees for the gang, from `start_ms` on."""

    victims: tuple[str, ...]
    shrinks: tuple[Shrink, ...]
    reclaim: bool
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
    reclaim: bool

    @property
    def rank(self) -> tuple[int, int, int, str]:
        return self.run.priority, self.cost, -self.run.since_ms, self.run.gang


_Value = tuple[int, int, int, int, int]


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
        self.holders: dict[int, dict[str, int]] = {}  # row -> gang -> GPUs
        for run in board.snapshot.running:
            for held in run.holds:
                if held.node in board.map.row:
                    self.holders.setdefault(board.map.row[held.node], {})[run.gang] = len(held.gpus)
        kinds = sorted({kind for choice in demand.choices for kind, _ in choice.gpus})
        self.victims = sorted((victim for run in board.snapshot.running
                               if run.gang not in self.ending and run.gang not in shrinking
                               and (victim := self._victim(decision, run, kinds)) is not None),
                              key=lambda victim: victim.rank)
        allowed = board.allowed(board.variant(gang)) & board.in_service
        self.usable: Bools = allowed
        self.coming = False  # enough is being freed already

    def _victim(self, decision: Decision, run: RunningGang, kinds: Sequence[str]) -> _Victim | None:
        board, policy, gang = self.board, self.board.policy, self.gang
        reclaim = run.priority >= gang.priority
        if not run.preemptible or (reclaim and not self._reclaims(run, kinds)):
            return None
        spared_ms = max(run.since_ms + policy.min_runtime_ms,
                        run.preempted_ms + policy.cool_down_ms if run.preempted_ms else 0)
        if spared_ms > board.now_ms:
            decision.due_ms = min(decision.due_ms, spared_ms)
            return None
        held = [(board.map.row[held.node], len(held.gpus)) for held in run.holds if held.node in board.map.row]
        saved_ms = run.since_ms if run.saved_ms is None else run.saved_ms
        cost = max(0, board.now_ms - saved_ms) * sum(gpus for _, gpus in held)
        return _Victim(run, tuple(row for row, _ in held), tuple(gpus for _, gpus in held), cost, reclaim)

    def _reclaims(self, run: RunningGang, kinds: Sequence[str]) -> bool:
        usage = self.board.usage
        least = self.demand.choices[0].gpus if self.demand.choices else ()
        return (usage.limited and usage.lends(self.gang.tenant, run.tenant, kinds)
                and usage.allows(self.gang.tenant, least, borrow=False))

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
        for row, gangs in self.holders.items():
            left = gangs.keys() <= self.ending and board.free[row] + sum(gangs.values()) >= board.map.count[row]
            had[row] |= left and usable[row]
        subtrees = {int(ids[row]) for victim in self.victims for row in victim.rows if usable[row]}
        if self._enough_somewhere(choice, had, ids):
            self.coming = True
            return
        for subtree in sorted(subtrees):
            inside = ids == subtree
            option = self._in_subtree(choice, subtree, had & inside, usable & inside)
            if option is not None:
                yield option

    def _enough_somewhere(self, choice: Choice, had: Bools, ids: Ints) -> bool:
        return any(self._enough(choice, had & (ids == subtree)) for subtree in np.unique(ids[had]))

    def _in_subtree(self, choice: Choice, subtree: int, had: Bools,
                    usable: Bools) -> tuple[_Value, Eviction] | None:
        victims = [victim for victim in self.victims if any(usable[row] for row in victim.rows)]
        shrinks = [victim for victim in victims if 0 < victim.run.least < len(victim.rows)]
        given = {victim.run.gang: set(sorted(victim.rows)[victim.run.least:]) for victim in shrinks}

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
                return self._option(choice, subtree, self.demand.widest, chosen, rows, ends=ends)
        return None

    def _freed(self, had: Bools, usable: Bools, rows: set[int], gangs: set[str]) -> Bools:
        """Rows to be had once those gangs have left the rows."""
        freed = had.copy()
        for row in rows:
            if usable[row] and self.holders[row].keys() <= self.ending | gangs:
                freed[row] = True
        return freed

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
        for victim in self.victims:
            for row in victim.rows:
                if usable[row]:
                    on_row.setdefault(row, []).append(victim)
        for row in sorted(set(on_row) | {row for row in self.holders if usable[row]}):
            held = self.holders[row]
            free = int(board.free[row]) + sum(gpus for gang, gpus in held.items() if gang in self.ending)
            if free >= need.ask.count:
                self.coming = True
                return

            def enough(some: Sequence[_Victim], free: int = free, held: dict[str, int] = held) -> bool:
                return free + sum(held[victim.run.gang] for victim in some) >= need.ask.count

            chosen = _least(on_row.get(row, []), enough)
            if chosen is not None:
                yield self._option(choice, row, board.map.levels.any, chosen, np.asarray([row], np.int64), ends=True)

    def _option(self, choice: Choice, place: int, level: int, chosen: Sequence[_Victim], rows: Ints, *,
                ends: bool) -> tuple[_Value, Eviction]:
        board = self.board
        value = (max(victim.run.priority for victim in chosen), sum(victim.cost for victim in chosen) if ends else 0,
                 len(chosen), choice.rank, place)
        used = set(rows.tolist())
        shrinks = () if ends else tuple(_shrink(board, victim, used) for victim in chosen)
        grace_ms = max(victim.run.grace_ms for victim in chosen)
        return value, Eviction(
            tuple(victim.run.gang for victim in chosen) if ends else (), shrinks,
            ends and any(victim.reclaim for victim in chosen), choice, rows, board.now_ms + grace_ms, level,
            int(board.map.ids[level][rows[0]]))


def _shrink(board: Board, victim: _Victim, used: set[int]) -> Shrink:
    rows = sorted(set(victim.rows) & used)
    return Shrink(victim.run.gang, len(victim.rows) - len(rows), tuple(board.map.names[row] for row in rows))


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
