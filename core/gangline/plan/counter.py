"""How many whole open rows every subtree has, kept up to date row by row."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gangline.plan.fleet import Bools, FleetMap, Ints
from gangline.plan.topology import DOMAIN

_FEW = 8  # so many rows are counted down one by one
_NONE = np.iinfo(np.int64).max


class Counter:
    """The rows of one need that are open, and their number in each subtree of each level.

    With `block`, rows count in whole blocks of so many of one NVLink domain.
    """

    def __init__(self, fleet_map: FleetMap, rows: Bools, block: int, cursor: int) -> None:
        self.map = fleet_map
        self.rows = rows.copy()
        self._block = block
        self.cursor = cursor
        self._flat = np.bincount(fleet_map.flat_ids[np.flatnonzero(rows)].ravel(), minlength=fleet_map.offsets[-1])
        self._most: dict[int, int] = {}  # an upper bound of each level's largest count
        self._blocks()

    def _blocks(self) -> None:
        """The counts as blocks allow them; without blocks, the counts themselves."""
        self.flat = self._flat
        if self._block:
            fleet_map = self.map
            whole = self._flat[:fleet_map.offsets[1]] // self._block * self._block
            parts = [whole]
            for level in range(1, fleet_map.levels.count):
                firsts = fleet_map.ids[DOMAIN][fleet_map.starts[level][:-1]]
                parts.append(np.add.reduceat(whole, firsts) if len(firsts) else whole[:0])
            self.flat = np.concatenate(parts)

    def sync(self, log: Sequence[int], still_open: Bools) -> None:
        """Forget rows of the log that are not open any more."""
        new = log[self.cursor:]
        self.cursor = len(log)
        if len(new) <= _FEW:
            gone = np.asarray([row for row in dict.fromkeys(new) if self.rows[row] and not still_open[row]], np.int64)
        else:
            rows = np.unique(np.asarray(new, np.int64))
            gone = rows[self.rows[rows] & ~still_open[rows]]
        if len(gone):
            self._drop(gone)

    def _drop(self, rows: Ints) -> None:
        self.rows[rows] = False
        np.subtract.at(self._flat, self.map.flat_ids[rows].ravel(), 1)
        self._blocks()

    def without(self, rows: Ints) -> Counter:
        """The same without these rows; this one stays as it is."""
        other = object.__new__(Counter)
        other.map, other.rows, other._block, other.cursor = self.map, self.rows.copy(), self._block, self.cursor
        other._flat, other._most = self._flat.copy(), {}
        other._drop(rows[self.rows[rows]])
        return other

    def level(self, level: int) -> Ints:
        """The count of each subtree of the level."""
        return self.flat[self.map.offsets[level]:self.map.offsets[level + 1]]

    def smallest(self, level: int, size: int) -> int | None:
        """The subtree of the level with the fewest rows of those that have `size`, the first of equals."""
        if self._most.get(level, size) < size:
            return None
        counts = self.level(level)
        fits = np.where(counts >= size, counts, _NONE)
        best = int(fits.argmin()) if len(fits) else 0
        if not len(fits) or counts[best] < size:
            self._most[level] = int(counts.max(initial=0))
            return None
        return best

    def gather(self, level: int, subtree: int, size: int) -> Ints:
        """`size` rows of a subtree that has them, on as few smaller subtrees as they can be."""
        found: list[Ints] = []
        self._gather(level, subtree, size, found)
        return np.concatenate(found)

    def _gather(self, level: int, subtree: int, size: int, found: list[Ints]) -> None:
        first, last = self.map.starts[level][subtree], self.map.starts[level][subtree + 1]
        if level == self.map.first_level:
            rows = np.flatnonzero(self.rows[first:last]) + first
            counts = self.map.count[rows]
            if len(rows) and counts.min() != counts.max():
                rows = rows[np.argsort(counts, kind="stable")]
            found.append(rows[:size])
            return
        inner = level - 1
        begin, end = self.map.ids[inner][first], self.map.ids[inner][last - 1] + 1
        if end - begin == 1:
            self._gather(inner, int(begin), size, found)
            return
        counts = self.level(inner)[begin:end]
        order = np.argsort(-counts, kind="stable")
        left = size
        for at, group in enumerate(order):
            count = int(counts[group])
            if count < left:
                self._gather(inner, int(begin + group), count, found)
                left -= count
                continue
            rest = counts[order[at:]]
            tightest = order[at + int(np.argmin(np.where(rest >= left, rest, _NONE)))]
            self._gather(inner, int(begin + tightest), left, found)
            return
