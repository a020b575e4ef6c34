"""When rows are ready once everything is decided: sorted once for all gangs that may use the same rows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gangline.plan.board import Board
from gangline.plan.demand import Need
from gangline.plan.fleet import DOWN_MS, Ints


@dataclass(frozen=True, slots=True)
class _Sorted:
    """Rows by (subtree, ready, virtual, price, row), when each is ready, and where each subtree's begin."""

    rows: Ints
    ready: Ints
    starts: Ints
    sizes: Ints


class Outlook:
    """What a board says of rows, for as long as nobody decides anything on it."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._sorted: dict[tuple[int, int], tuple[_Sorted, Need]] = {}

    @cached_property
    def available(self) -> Ints:
        """When each row is whole for a gang that has claimed nothing."""
        return self._board.available()

    def earliest(self, need: Need, level: int) -> list[Ints]:
        """Of each subtree of the level where the need could be met first: the rows that are ready soonest."""
        known = self._of(need, level)
        enough = np.flatnonzero(known.sizes >= need.size)
        if not len(enough):
            return []
        begins = known.starts[enough]
        times = known.ready[begins + need.size - 1]
        return [known.rows[begin:begin + need.size] for begin in begins[times == times.min()].tolist()]

    def _of(self, need: Need, level: int) -> _Sorted:
        key = (id(need.mask), level)
        found = self._sorted.get(key)
        if found is None:
            found = self._sorted[key] = self._sort(need, level), need  # the need keeps its mask and the mask its id
        return found[0]

    def _sort(self, need: Need, level: int) -> _Sorted:
        board, ids = self._board, self._board.map.ids[level]
        rows = np.flatnonzero(need.mask & (self.available < DOWN_MS))
        virtual = board.virtual[rows]
        price = np.where(virtual, board.map.price[rows], 0)
        rows = rows[np.lexsort((rows, price, virtual, self.available[rows], ids[rows]))]
        starts = runs_of(ids[rows])
        return _Sorted(rows, self.available[rows], starts, np.diff(starts))


def runs_of(ids: Ints) -> Ints:
    """Where each run of equal ids begins, and the end."""
    if not len(ids):
        return np.zeros(1, np.int64)
    return np.concatenate(([0], np.flatnonzero(ids[1:] != ids[:-1]) + 1, [len(ids)]))
