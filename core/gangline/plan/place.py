"""Which nodes a gang gets: all it needs now, in the smallest subtree that fits, or none."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from gangline.model.gpu import GpuAsk
from gangline.plan.board import Board, Variant
from gangline.plan.counter import LEASED, Counter, Gone
from gangline.plan.demand import Choice, Demand
from gangline.plan.outcome import NodeChoice
from gangline.plan.snapshot import PendingGang


class Spot(NamedTuple):
    """Where a gang goes: its members in node-rank order, their rows (`gone` as the log has them, where that
    is known), and whether it holds some of them."""

    choice: Choice
    rows: list[int]
    members: tuple[NodeChoice, ...]
    gone: Gone | None = None
    kept: bool = False


@dataclass(slots=True)
class Offers:
    """The choices of a gang that its tenant's quota has not refused so far."""

    choices: Sequence[Choice]
    refused: bool = False

    @staticmethod
    def of(board: Board, gang: PendingGang, demand: Demand) -> Offers:
        usage = board.usage
        if not usage.limited:
            return Offers(demand.choices)
        allowed = [choice for choice in demand.choices if usage.allows(gang.tenant, choice.gpus)]
        return Offers(allowed, len(allowed) < len(demand.choices))

    def refuse(self, choice: Choice) -> None:
        self.refused = True
        self.choices = [other for other in self.choices if other.rank != choice.rank]


def place(board: Board, gang: PendingGang, demand: Demand, offers: Offers,
          variant: Variant | None = None) -> Spot | None:
    """Where the gang fits now; None when it does not. What quota refuses is taken out of `offers`.

    Real nodes before emulated ones, alternatives in rank order, then the smallest subtree.
    """
    variant = board.variant(gang) if variant is None else variant
    find = _part if demand.single else _whole
    for emulated in board.kinds:
        for choice in tuple(offers.choices):
            spot = find(board, demand, choice, emulated, variant)
            if spot is None:
                continue
            if not board.usage.limited or board.usage.allows(gang.tenant, gpus_of(spot, board)):
                return spot
            offers.refuse(choice)
    return None


def gpus_of(spot: Spot, board: Board) -> Iterator[tuple[str, int]]:
    """(type, GPUs) of each member."""
    return ((board.map.values[board.map.row[member.node]].gpu.type, len(member.gpus)) for member in spot.members)


def _part(board: Board, demand: Demand, choice: Choice, emulated: bool, variant: Variant) -> Spot | None:
    """Part of one node, so that whole nodes stay whole and free GPUs of use."""
    ask, need = choice.asks[0], choice.needs[0]
    row = board.parts(need, emulated, variant).best(
        ask.count, lambda free: board.useless.growth(ask.type, free, ask.count))
    if row is None:
        return None
    member = NodeChoice(node=board.map.names[row], gpus=board.free_gpus(row)[:ask.count], ask=ask,
                        role=demand.roles[0].name)
    return Spot(choice, [row], (member,))


def _whole(board: Board, demand: Demand, choice: Choice, emulated: bool, variant: Variant) -> Spot | None:
    if len(demand.roles) == 1:
        return _of_one_need(board, board.counter(choice.needs[0], emulated, variant, demand.block), demand, choice)
    counters = [board.counter(need, emulated, variant, demand.block) for need in choice.needs]
    for level in range(board.map.first_level, demand.widest + 1):
        subtree = _smallest(counters, choice, level)
        if subtree is not None:
            by_ask = pick(counters, choice, level, subtree)
            rows = [row for mine in by_ask.values() for row in mine]
            return Spot(choice, rows, choice.ranked(demand.roles, by_ask))
    return None


def _of_one_need(board: Board, counter: Counter, demand: Demand, choice: Choice) -> Spot | None:
    size = choice.needs[0].size
    found = counter.narrowest(demand.widest, size)
    if found is None:
        return None
    bits = counter.gather(*found, size)
    rows = sorted(board.map.lines.rows(bits))
    members = choice.members[0]
    return Spot(choice, rows, tuple([members[row] for row in rows]), Gone(rows, bits, LEASED, (choice.asks[0].type,)))


def _smallest(counters: list[Counter], choice: Choice, level: int) -> int | None:
    """The subtree of the level with the fewest rows of those that have enough for all needs together."""
    fits = np.ones(len(counters[0].level(level)), np.bool_)
    rows = np.zeros(len(fits), np.int64)
    for counter, need in zip(counters, choice.needs, strict=True):
        fits &= counter.level(level) >= need.upto
        if need.last:
            rows += counter.level(level)
    found = np.flatnonzero(fits)
    return int(found[rows[found].argmin()]) if len(found) else None


def pick(counters: list[Counter], choice: Choice, level: int, subtree: int) -> dict[GpuAsk, list[int]]:
    """Rows for every need out of one subtree that has enough, on as few smaller subtrees as can be."""
    by_ask: dict[GpuAsk, list[int]] = {}
    taken: list[int] = []
    for counter, need in zip(counters, choice.needs, strict=True):
        left = counter.without(taken) if taken else counter
        by_ask[need.ask] = left.map.lines.rows(left.gather(level, subtree, need.size))
        taken += by_ask[need.ask]
    return by_ask
