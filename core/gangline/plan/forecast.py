"""Where and when a blocked gang could start earliest, from limits and boot times."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from gangline.plan.board import UNKNOWN_MS, Board, Spot
from gangline.plan.demand import Choice, Demand
from gangline.plan.topology import Key, Level, subtree_name


@dataclass(frozen=True, slots=True)
class Forecast:
    """The nodes with which a gang could start earliest, of those that serve it in that subtree.

    `spots` may hold nodes that no pool was asked for yet: a pool is asked once the others are free, at
    `free_ms`, and boots them until `at_ms`. Both are UNKNOWN_MS when a holder has no limit.
    """

    spots: tuple[Spot, ...]
    at_ms: int
    free_ms: int
    where: str
    serving: tuple[Spot, ...]  # every node of the subtree that would do, out of service or not


def forecast(board: Board, demand: Demand) -> Forecast | None:
    """The earliest start of the gang; None when even every gang's end would not bring it enough nodes."""
    potential = board.potential(demand) if board.policy.capacity else []
    options = (_parts if demand.single else _wholes)(board, demand, potential)
    best = min(options, key=lambda option: option[0], default=None)
    if best is None:
        return None
    (at_ms, *_), free_ms, choice, spots, key = best
    level = Level.ANY if demand.single else demand.widest
    return Forecast(tuple(spots), at_ms, free_ms, subtree_name(level, key),
                    _serving(board, demand, choice, level, key))


Option = tuple[tuple[Any, ...], int, Choice, list[Spot], Key]


def _parts(board: Board, demand: Demand, potential: list[Spot]) -> Iterator[Option]:
    for rank, choice in enumerate(demand.choices):
        need = choice.needs[0]
        more = [s for s in potential if need.met_by(s.node)]
        for spot in (*board.matching(demand, need), *more):
            at_ms = _part_at_ms(board, spot, demand.gang.gang, need.ask.count)
            if at_ms is not None:
                rank_of = at_ms, rank, spot.node.emulated, spot.grown, spot.order
                yield rank_of, at_ms, choice, [spot], spot.keys[Level.ANY]


def _wholes(board: Board, demand: Demand, potential: list[Spot]) -> Iterator[Option]:
    level = demand.widest
    new = frozenset(s.node.name for s in potential)
    for rank, choice in enumerate(demand.choices):
        timed: list[dict[Key, list[tuple[int, Spot]]]] = []
        for need in choice.needs:
            groups: dict[Key, list[tuple[int, Spot]]] = {}
            more = [s for s in potential if need.met_by(s.node)]
            for spot in (*board.matching(demand, need), *more):
                at_ms = whole_at_ms(board, spot, demand.gang.gang)
                if at_ms is not None:
                    groups.setdefault(spot.keys[level], []).append((at_ms, spot))
            timed.append(groups)
        for key in sorted(set[Key]().union(*timed)):
            picked = _earliest(choice, [groups.get(key, []) for groups in timed])
            if picked is not None:
                free_ms = max((at for at, s in picked if s.node.name not in new), default=board.now_ms)
                boot_ms = max((at - board.now_ms for at, s in picked if s.node.name in new), default=0)
                at_ms = min(free_ms + boot_ms, UNKNOWN_MS)
                unknown = sum(at == UNKNOWN_MS for at, _ in picked)
                yield (at_ms, unknown, rank, key), free_ms, choice, [s for _, s in picked], key


def _serving(board: Board, demand: Demand, choice: Choice, level: Level, key: Key) -> tuple[Spot, ...]:
    """Every spot of the subtree that meets some need of the choice, in topology order."""
    found = {s.order: s for need in choice.needs for s in board.matching(demand, need)
             if s.keys[level] == key}
    return tuple(found[order] for order in sorted(found))


def _earliest(choice: Choice, timed: list[list[tuple[int, Spot]]]) -> list[tuple[int, Spot]] | None:
    if not choice.enough([len(spots) for spots in timed]):
        return None
    picked: list[tuple[int, Spot]] = []
    taken: set[str] = set()
    for need, spots in zip(choice.needs, timed, strict=True):
        left = [(at, s) for at, s in spots if s.node.name not in taken]
        mine = sorted(left, key=lambda pair: (pair[0], pair[1].grown, pair[1].order))[:need.size]
        picked += mine
        taken.update(s.node.name for _, s in mine)
    return picked


def whole_at_ms(board: Board, spot: Spot, gang: str) -> int | None:
    """When nobody else holds or claims any of the spot; None when it is out of service."""
    if spot.down:
        return None
    at_ms = max((h.ends_ms for h in spot.holds if h.gang != gang), default=board.now_ms)
    if spot.soon:
        at_ms = max(at_ms, spot.soon_ms)
    if spot.claim is not None and spot.claim.gang != gang:
        at_ms = max(at_ms, spot.claim.until_ms)
    return max(at_ms, board.now_ms)


def _part_at_ms(board: Board, spot: Spot, gang: str, count: int) -> int | None:
    if spot.down:
        return None
    frees = [(board.now_ms, len(spot.free)), (spot.soon_ms, len(spot.soon))]
    frees += [(h.ends_ms, len(h.gpus)) for h in spot.holds]
    have = 0
    for at_ms, gpus in sorted(frees):
        have += gpus
        if have >= count:
            if spot.claim is not None and spot.claim.gang != gang:
                at_ms = max(at_ms, spot.claim.until_ms)
            return max(at_ms, board.now_ms)
    return None
