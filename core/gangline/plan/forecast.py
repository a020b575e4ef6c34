"""Where and when a blocked gang could start earliest, from limits, boot times and what pools could add."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from gangline.plan.board import Board
from gangline.plan.demand import Choice, Demand, Need
from gangline.plan.fleet import DOWN_MS, Ints
from gangline.plan.outlook import Outlook, runs_of
from gangline.plan.snapshot import UNKNOWN_MS, PendingGang

_FEW_SUBTREES = 64
_Rank = tuple[int, int, int, int, int, int]


@dataclass(frozen=True, slots=True)
class Forecast:
    """The rows with which a gang could start earliest, at `start_ms` (UNKNOWN_MS when nothing says when).

    A `moving` set waits for nothing but rows that boot or could be asked for.
    """

    choice: Choice
    rows: Ints
    start_ms: int
    level: int
    subtree: int
    moving: bool


def forecast(board: Board, gang: PendingGang, demand: Demand, choices: Sequence[Choice],
             outlook: Outlook | None = None) -> Forecast | None:
    """The earliest start of the gang; None when even every gang's end would not bring it enough nodes.

    A promise holds: its subtree is kept unless another is earlier by more than the policy's margin. With an
    outlook of the board as it is, gangs that may use the same rows are told quickly one after the other.
    """
    available = board.available() if outlook is None else outlook.available
    best = _best(_options(board, demand, choices, available, outlook), board, demand)
    if best is None or gang.promise is None or demand.single:
        return best
    row = board.map.row.get(gang.promise.node)
    if row is None:
        return best
    home = int(board.map.ids[demand.widest][row])
    promised = best if best.subtree == home else _best(_wholes(board, demand, choices, available, home), board, demand)
    return best if promised is None or _much_earlier(board, gang, best, promised) else promised


def _much_earlier(board: Board, gang: PendingGang, best: Forecast, promised: Forecast) -> bool:
    assert gang.promise is not None
    if promised.start_ms >= UNKNOWN_MS:
        return best.start_ms < UNKNOWN_MS
    left_ms = max(0, gang.promise.at_ms - board.now_ms)
    policy = board.policy
    return promised.start_ms - best.start_ms > max(policy.sticky_ms, int(policy.sticky_share * left_ms))


_Option = tuple[_Rank, Choice, Ints, Ints]  # rank, choice, rows, when each is ready


def _options(board: Board, demand: Demand, choices: Sequence[Choice], available: Ints,
             outlook: Outlook | None) -> Iterator[_Option]:
    if demand.single:
        return _parts(board, choices)
    if outlook is None or demand.block or any(len(choice.needs) > 1 for choice in choices):
        return _wholes(board, demand, choices, available, None)
    ids = board.map.ids[demand.widest]
    return (_option(board, choice, rows, available, ids) for choice in choices
            for rows in outlook.earliest(choice.needs[0], demand.widest))


def _best(options: Iterator[_Option], board: Board, demand: Demand) -> Forecast | None:
    found = min(options, key=lambda option: option[0], default=None)
    if found is None:
        return None
    rank, choice, rows, ready = found
    level = board.map.levels.any if demand.single else demand.widest
    start_ms = int(ready.max())
    coming = board.coming(rows) & (ready <= np.maximum(board.coming_ms[rows], board.now_ms))
    moving = bool(coming.any()) and start_ms < UNKNOWN_MS and bool(ready[coming].max() >= start_ms)
    return Forecast(choice, np.sort(rows), start_ms, level, rank[5] if not demand.single
                    else int(board.map.ids[level][rows[0]]), moving)


def _option(board: Board, choice: Choice, rows: Ints, available: Ints, ids: Ints) -> _Option:
    return _rank(board, choice, rows, available[rows], int(ids[rows[0]])), choice, rows, available[rows]


def _rank(board: Board, choice: Choice, rows: Ints, ready: Ints, subtree: int) -> _Rank:
    virtual = rows[board.virtual[rows]]
    return (int(ready.max()), int((ready >= UNKNOWN_MS).sum()), len(virtual), int(board.map.price[virtual].sum()),
            choice.rank, subtree)


def _parts(board: Board, choices: Sequence[Choice]) -> Iterator[_Option]:
    for choice in choices:
        need = choice.needs[0]
        rows = np.flatnonzero(need.mask & (board.coming_ms < DOWN_MS))
        if len(rows):
            ready = _part_ready(board, rows, need.ask.count)
            virtual = board.virtual[rows]
            price = np.where(virtual, board.map.price[rows], 0)
            first = np.lexsort((rows, price, virtual, ready))[:1]
            row = rows[first]
            yield ((int(ready[first[0]]), int(virtual[first[0]]), int(price[first[0]]), choice.rank, int(row[0]), 0),
                   choice, row, ready[first])


def _part_ready(board: Board, rows: Ints, count: int) -> Ints:
    """When `count` GPUs of each row are free for a gang that has claimed nothing."""
    until = board.state.until[rows]
    for row, patched in board.touched():
        at = int(np.searchsorted(rows, row))
        if at < len(rows) and rows[at] == row:
            until[at] = patched
    until[until < 0] = DOWN_MS
    until.sort(axis=1)
    ready = np.maximum(np.maximum(until[:, count - 1], board.coming_ms[rows]), board.now_ms)
    taken = board.taken[rows]
    ready[taken] = board.ready[rows][taken]  # a gang in repair may have held part of it until nobody knew when
    claimed = board.claim[rows] >= 0
    ready[claimed] = np.maximum(ready[claimed], board.claim_until[rows][claimed])
    return ready


def _wholes(board: Board, demand: Demand, choices: Sequence[Choice], available: Ints,
            home: int | None) -> Iterator[_Option]:
    ids = board.map.ids[demand.widest]
    for choice in choices:
        pools = [np.flatnonzero(need.mask & (available < DOWN_MS)) for need in choice.needs]
        if home is not None:
            pools = [rows[ids[rows] == home] for rows in pools]
        if len(pools) == 1 and not demand.block:
            yield from _of_one_need(board, choice, pools[0], available, ids)
        else:
            yield from _of_many(board, demand, choice, pools, available, ids)


def _of_one_need(board: Board, choice: Choice, rows: Ints, available: Ints, ids: Ints) -> Iterator[_Option]:
    """The best subtree, and all that are as early, for a choice of one need."""
    size = choice.needs[0].size
    starts = runs_of(ids[rows])
    if len(starts) - 1 <= _FEW_SUBTREES:
        runs = [(begin, end) for begin, end in pairwise(starts.tolist()) if end - begin >= size]
        times = [int(np.partition(available[rows[begin:end]], size - 1)[size - 1]) for begin, end in runs]
    else:
        order = np.lexsort((available[rows], ids[rows]))
        enough = np.flatnonzero(np.diff(starts) >= size)
        times = available[rows[order[starts[enough] + size - 1]]].tolist()
        runs = [(int(starts[at]), int(starts[at + 1])) for at in enough]
    earliest = min(times, default=0)
    for (begin, end), time_ms in zip(runs, times, strict=True):
        if time_ms == earliest:
            chosen = soonest(board, rows[begin:end], available, size)
            yield _option(board, choice, chosen, available, ids)


def soonest(board: Board, rows: Ints, available: Ints, size: int) -> Ints:
    """The `size` rows with the smallest (availability, virtual, price, row)."""
    ready = available[rows]
    if len(rows) > size:
        last = np.partition(ready, size - 1)[size - 1]
        sure, ties = rows[ready < last], rows[ready == last]
    else:
        sure, ties = rows, rows[:0]
    virtual = board.virtual[ties]
    order = np.lexsort((ties, np.where(virtual, board.map.price[ties], 0), virtual))
    return np.concatenate((sure, ties[order[:size - len(sure)]]))


def just_in_time(board: Board, found: Forecast, need: Need) -> Ints:
    """The rows to keep for a gang that waits for others: of those ready by its start, the last to be ready.

    What is free now so stays free for work that is gone or elsewhere by then, as in counting nodes.
    """
    available = board.available()
    inside = board.map.ids[found.level] == found.subtree
    rows = np.flatnonzero(need.mask & inside & (available <= found.start_ms))
    return np.sort(rows[np.lexsort((rows, -available[rows]))[:need.size]])


def _of_many(board: Board, demand: Demand, choice: Choice, pools: Sequence[Ints], available: Ints,
             ids: Ints) -> Iterator[_Option]:
    """Every subtree that has enough, for several needs or blocks of an NVLink domain."""
    for subtree in sorted({int(subtree) for rows in pools for subtree in np.unique(ids[rows])}):
        inside = [rows[ids[rows] == subtree] for rows in pools]
        chosen = _blocks(board, demand.block, choice.needs[0], inside[0], available) if demand.block \
            else _in_turn(board, choice, inside, available)
        if chosen is not None:
            yield _option(board, choice, chosen, available, ids)


def _in_turn(board: Board, choice: Choice, pools: Sequence[Ints], available: Ints) -> Ints | None:
    """Need by need, the soonest rows of those left."""
    if any(len(rows) < need.upto for rows, need in zip(pools, choice.needs, strict=True)):
        return None
    taken = np.zeros(0, np.int64)
    for rows, need in zip(pools, choice.needs, strict=True):
        left = rows[~np.isin(rows, taken)]
        taken = np.concatenate((taken, soonest(board, left, available, need.size)))
    return taken


def _blocks(board: Board, block: int, need: Need, rows: Ints, available: Ints) -> Ints | None:
    """Whole blocks of one NVLink domain each, the soonest ones."""
    ids = board.map.ids[0][rows]
    found: list[tuple[int, int, Ints]] = []
    for domain in np.unique(ids):
        mine = rows[ids == domain]
        virtual = board.virtual[mine]
        order = np.lexsort((mine, np.where(virtual, board.map.price[mine], 0), virtual, available[mine]))
        for at in range(block, len(mine) + 1, block):
            part = mine[order[at - block:at]]
            found.append((int(available[part].max()), int(part.min()), part))
    wanted = need.size // block
    if len(found) < wanted:
        return None
    return np.concatenate([part for _, _, part in sorted(found, key=lambda item: item[:2])[:wanted]])
