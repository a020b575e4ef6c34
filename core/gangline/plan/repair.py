"""A gang that still holds nodes: what it keeps, and what completes it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gangline.model.gpu import GpuAsk
from gangline.plan.board import Board, Variant
from gangline.plan.demand import Choice, Demand
from gangline.plan.fleet import Bools, Ints
from gangline.plan.outcome import NodeChoice
from gangline.plan.place import Offers, Spot, gpus_of
from gangline.plan.snapshot import Held, PendingGang


@dataclass(frozen=True, slots=True)
class Kept:
    """A held row that still serves."""

    row: int
    gpus: tuple[int, ...]


def kept(board: Board, gang: PendingGang, demand: Demand) -> list[Kept]:
    """The held rows that still serve: in service, eligible, and whole but for this gang if they must be."""
    serving = [Kept(board.map.row[held.node], held.gpus) for held in gang.held if _serves(board, demand, held)]
    return serving[:1] if demand.single else serving


def _serves(board: Board, demand: Demand, held: Held) -> bool:
    row = board.map.row.get(held.node)
    if row is None or not board.in_service[row]:
        return False
    needs = [need for choice in demand.choices for need in choice.needs]
    eligible = [need for need in needs if need.mask[row]]
    if demand.single:
        return any(need.ask.count == len(held.gpus) for need in eligible)
    return bool(eligible) and len({*held.gpus, *board.free_gpus(row)}) == board.map.count[row]


def complete(board: Board, gang: PendingGang, demand: Demand, keeps: list[Kept], offers: Offers) -> Spot | None:
    """Where the gang goes with all it keeps and what is missing beside it; None if nothing completes it."""
    variant = board.variant(gang)
    if demand.single:
        return _same_part(board, demand, keeps[0], offers)
    rows = np.asarray(sorted(keep.row for keep in keeps), np.int64)
    for choice in tuple(offers.choices):
        by_ask = next((found for level in range(board.map.first_level, demand.widest + 1)
                       if len(set(board.map.ids[level][rows].tolist())) == 1
                       and (found := _beside(board, demand, choice, rows, level, variant)) is not None), None)
        if by_ask is None:
            continue
        chosen = {ask: found.tolist() for ask, found in by_ask.items()}
        spot = Spot(choice, [row for found in chosen.values() for row in found],
                    choice.ranked(demand.roles, chosen), kept=True)
        if board.usage.allows(gang.tenant, gpus_of(spot, board)):
            return spot
        offers.refuse(choice)
    return None


def _same_part(board: Board, demand: Demand, keep: Kept, offers: Offers) -> Spot | None:
    node = board.map.values[keep.row]
    for choice in offers.choices:
        ask = choice.asks[0]
        if ask.count == len(keep.gpus) and choice.needs[0].mask[keep.row]:
            member = NodeChoice(node=node.name, gpus=tuple(sorted(keep.gpus)), ask=ask, role=demand.roles[0].name)
            return Spot(choice, [keep.row], (member,), kept=True)
    return None


def _beside(board: Board, demand: Demand, choice: Choice, keeps: Ints, level: int,
            variant: Variant) -> dict[GpuAsk, Ints] | None:
    """Every kept row and open ones nearest to them, all inside the kept rows' subtree of the level."""
    left = keeps[np.lexsort((keeps, -board.map.count[keeps]))]
    by_ask: dict[GpuAsk, Ints] = {}
    for need in choice.needs:
        meets = need.mask[left]
        mine = left[meets][:need.size]
        by_ask[need.ask] = mine
        left = left[~np.isin(left, mine)]
    if len(left):
        return None
    taken = keeps
    for need in choice.needs:
        missing = need.size - len(by_ask[need.ask])
        if missing:
            more = nearest(board, need.mask, keeps, level, variant, taken)[:missing]
            if len(more) < missing:
                return None
            by_ask[need.ask] = np.concatenate((by_ask[need.ask], more))
            taken = np.concatenate((taken, more))
    if demand.block and not _in_blocks(board, np.concatenate(list(by_ask.values())), demand.block):
        return None
    return by_ask


def nearest(board: Board, mask: Bools, home: Ints, level: int, variant: Variant, taken: Ints) -> Ints:
    """Whole open rows in the home's subtree of the level, but those taken, nearest to any home row first."""
    ids = board.map.ids
    open_rows = board.whole & board.allowed(variant) if variant else board.open
    mask = board.of_kind(mask, bool(board.map.emulated[home[0]])) & open_rows
    rows = np.flatnonzero(mask & (ids[level] == ids[level][home[0]]))
    rows = rows[~np.isin(rows, taken)]
    shared = np.full(len(rows), level, np.int64)
    for near in range(level - 1, board.map.first_level - 1, -1):
        shared[np.isin(ids[near][rows], ids[near][home])] = near
    return rows[np.lexsort((rows, board.map.count[rows], shared))]


def _in_blocks(board: Board, rows: Ints, block: int) -> bool:
    domains = board.map.ids[0][rows]
    return bool((np.unique(domains, return_counts=True)[1] % block == 0).all())
