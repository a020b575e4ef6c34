"""What a pass does with what is left: elastic growth, warm nodes, and nodes to give back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from gangline.model.gpu import GpuAsk
from gangline.plan.board import Board
from gangline.plan.demand import demand_of
from gangline.plan.fleet import Bools, Ints
from gangline.plan.outcome import Placement, Resize, Retirement
from gangline.plan.place import Spot
from gangline.plan.snapshot import UNKNOWN_MS, PoolState, RunningGang


def grow_placed(board: Board, placements: Sequence[Placement], spots: dict[str, Spot]) -> list[Placement]:
    """The placements, elastic ones larger where whole nodes near them are left: a node each, round by round."""
    grown = {gang: spot.rows for gang, spot in spots.items()}
    growing = [placement.gang for placement in placements if placement.gang in spots]
    while growing:
        growing = [gang for gang in growing if _one_more(board, gang, spots[gang], grown)]
    return [_regrown(board, placement, grown[placement.gang], spots[placement.gang])
            if len(grown.get(placement.gang, ())) > len(placement.nodes) else placement for placement in placements]


def _one_more(board: Board, name: str, spot: Spot, grown: dict[str, list[int]]) -> bool:
    gang = board.snapshot.queue.get(name)
    assert gang is not None
    demand = board.demand(gang)
    rows = grown[name]
    if len(rows) >= gang.most or demand.block or len(spot.choice.needs) != 1:
        return False
    row = _nearest(board, spot.choice.needs[0].mask, rows, demand.widest)
    if row is None:
        return False
    gpus = ((board.map.values[row].gpu.type, int(board.map.count[row])),)
    if not board.usage.allows(gang.tenant, gpus):
        return False
    board.take_whole([row], gang)
    grown[name] = [*rows, row]
    return True


def _nearest(board: Board, mask: Bools, rows: list[int], widest: int) -> int | None:
    """A whole unclaimed row in the smallest subtree, not wider than allowed, that holds all rows and has one."""
    mask = board.of_kind(mask, bool(board.map.emulated[rows[0]])) & board.open
    for level in range(board.map.first_level, widest + 1):
        ids = board.map.ids[level]
        if (ids[rows] == ids[rows[0]]).all():
            found = np.flatnonzero(mask & (ids == ids[rows[0]]))
            if len(found):
                return int(found[board.map.count[found].argmin()])
    return None


def _regrown(board: Board, placement: Placement, rows: list[int], spot: Spot) -> Placement:
    members = spot.choice.members[0]
    zone, fabric = board.map.network_of(rows)
    return replace(placement, nodes=tuple(members[row] for row in sorted(rows)), zone=zone, fabric=fabric)


def grow_running(board: Board) -> tuple[Resize | None, int]:
    """A running elastic gang that could have idle nodes near it, the first that has not changed for long enough;
    and when the next one has not."""
    due_ms = UNKNOWN_MS
    runs = sorted((run for run in board.snapshot.running if run.again is not None and not run.ending
                   and len(run.holds) < run.most), key=lambda run: (-run.priority, run.since_ms, run.gang))
    for run in runs:
        may_ms = max(run.resized_ms, run.since_ms) + board.policy.resize_every_ms
        if may_ms > board.now_ms:
            due_ms = min(due_ms, may_ms)
            continue
        more = _room(board, run)
        if run.again is not None and len(more):
            board.keep(more, run.again, UNKNOWN_MS)  # nobody gives them back meanwhile
            return Resize(gang=run.gang, size=len(run.holds) + len(more)), due_ms
    return None, due_ms


def _room(board: Board, run: RunningGang) -> Ints:
    """The nodes the gang could have more."""
    assert run.again is not None
    demand = demand_of(board.map, run.again)
    rows = np.asarray([board.map.row[held.node] for held in run.holds if held.node in board.map.row], np.int64)
    none = rows[:0]
    if not len(rows) or demand.block:
        return none
    ids = board.map.ids[demand.widest]
    kind = board.map.values[int(rows[0])].gpu
    asks = [choice.needs[0] for choice in demand.choices if _serves(choice.asks[0], kind)]
    if not asks:
        return none
    mask = board.of_kind(asks[0].mask, bool(board.map.emulated[rows[0]])) & board.open
    free = np.flatnonzero(mask & (ids == ids[rows[0]]))[:run.most - len(run.holds)]
    while len(free) and not board.usage.allows(run.tenant, [
            (board.map.values[row].gpu.type, int(board.map.count[row])) for row in free]):
        free = free[:-1]
    return free


def _serves(ask: GpuAsk, kind: GpuAsk) -> bool:
    return ask.type == kind.type and ask.count <= kind.count


def warm_up(board: Board) -> dict[str, int]:
    """How many nodes each pool should boot so that `warm` whole ones are there or on their way."""
    asked = {}
    for pool in board.map.pools:
        if pool.warm and board.policy.capacity:
            mine = board.map.pool == board.map.pool_index[pool.name]
            loose = mine & (board.claim < 0)
            flying = loose & ~board.in_service & ~board.virtual & (board.coming_ms < UNKNOWN_MS) \
                & (board.free == board.map.count)
            idle = int((mine & board.open).sum() + flying.sum())
            more = min(pool.warm - idle, int((loose & board.virtual).sum()))
            if more > 0:
                asked[pool.name] = more
    return asked


def retire(board: Board) -> tuple[tuple[Retirement, ...], int]:
    """The nodes that pools give back, and when the next one will have idled for long enough."""
    made, due_ms = [], UNKNOWN_MS
    for pool in board.map.pools:
        if pool.idle_ms is None:
            continue
        mine = np.flatnonzero(board.open & (board.map.pool == board.map.pool_index[pool.name]))
        idle_ms = board.state.idle[mine]
        known = mine[idle_ms > 0]
        order = known[np.lexsort((known, board.state.idle[known]))]
        may_go = _may_go(pool, len(mine))
        long_enough = board.now_ms - board.state.idle[order] >= pool.idle_ms
        gone = order[long_enough][:may_go]
        if len(gone):
            made.append(Retirement(pool=pool.name, nodes=tuple(board.map.names[row] for row in gone)))
        rest = order[~long_enough]
        if may_go > len(gone) and len(rest):
            due_ms = min(due_ms, int(board.state.idle[rest[0]]) + pool.idle_ms)
    return tuple(made), due_ms


def _may_go(pool: PoolState, whole: int) -> int:
    """Whole unclaimed rows beyond the warm ones (spares are claimed), as far as the pool stays large enough."""
    return max(0, min(whole - pool.warm, pool.nodes - pool.least))
