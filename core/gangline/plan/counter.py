"""How many whole open rows every subtree has, kept up to date row by row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heappop, heappush

import numpy as np

from gangline.plan.fleet import Bools, FleetMap, Ints
from gangline.plan.topology import DOMAIN

_SMALL = 64  # subtrees of at most so many rows are found by their count, larger ones by looking at all
_NONE = np.iinfo(np.int64).max


class _Piles:
    """Counts of the many small subtrees of a level, and the subtrees by count. Counts only fall."""

    def __init__(self, counts: Ints) -> None:
        self.counts: list[int] = counts.tolist()
        order = np.argsort(counts, kind="stable")
        cuts = np.flatnonzero(np.diff(counts[order])) + 1
        self._piles: dict[int, list[int]] = {
            int(counts[part[0]]): part.tolist() for part in np.split(order, cuts) if len(part)}
        self._most = max(self._piles, default=0)

    def smallest(self, size: int) -> int | None:
        """The subtree with the fewest rows of those that have `size`, the first of equals."""
        counts = self.counts
        for count in range(size, self._most + 1):
            pile = self._piles.get(count)
            while pile:
                if counts[pile[0]] == count:
                    return pile[0]
                heappop(pile)
        self._most = min(self._most, size - 1)
        return None

    def fall(self, subtree: int, by: int) -> None:
        self.counts[subtree] = count = self.counts[subtree] - by
        heappush(self._piles.setdefault(count, []), subtree)

    def of(self, begin: int, end: int) -> list[int]:
        return self.counts[begin:end]


class _Column:
    """Counts of the few large subtrees of a level."""

    def __init__(self, counts: Ints) -> None:
        self.counts = counts
        self._most = int(counts.max(initial=0))

    def smallest(self, size: int) -> int | None:
        """The subtree with the fewest rows of those that have `size`, the first of equals."""
        if self._most < size:
            return None
        best = int(np.where(self.counts >= size, self.counts, _NONE).argmin())
        if self.counts[best] >= size:
            return best
        self._most = int(self.counts.max(initial=0))
        return None

    def fall(self, subtree: int, by: int) -> None:
        self.counts[subtree] -= by

    def of(self, begin: int, end: int) -> list[int]:
        counts: list[int] = self.counts[begin:end].tolist()
        return counts


class Counter:
    """The rows of one need that are open, and their number in each subtree of each level.

    With `block`, rows count in whole blocks of so many of one NVLink domain.
    """

    def __init__(self, fleet_map: FleetMap, rows: Bools, block: int, cursor: int) -> None:
        self.map, self.cursor, self._block = fleet_map, cursor, block
        found = np.flatnonzero(rows)
        self._rows: list[int] = found.tolist()
        bottom = fleet_map.ids[fleet_map.first_level][found]
        subtrees = len(fleet_map.keys[fleet_map.first_level])
        self._cuts: list[int] = np.searchsorted(bottom, np.arange(subtrees + 1)).tolist()
        self._inside: dict[int, list[int]] = {}  # open rows of the smallest subtrees, as far as looked at
        self._levels: list[_Piles | _Column] = [
            self._level(self._counts(level, found)) for level in range(fleet_map.levels.count)]

    def _counts(self, level: int, rows: Ints) -> Ints:
        fleet_map = self.map
        if not self._block:
            return np.bincount(fleet_map.ids[level][rows], minlength=len(fleet_map.keys[level]))
        domains = np.bincount(fleet_map.ids[DOMAIN][rows], minlength=len(fleet_map.keys[DOMAIN]))
        owner = fleet_map.ids[level][fleet_map.starts[DOMAIN][:-1]]
        return np.bincount(owner, weights=domains // self._block * self._block,
                           minlength=len(fleet_map.keys[level])).astype(np.int64)

    @staticmethod
    def _level(counts: Ints) -> _Piles | _Column:
        return _Piles(counts) if counts.max(initial=0) <= _SMALL < len(counts) else _Column(counts)

    def level(self, level: int) -> Ints:
        """The count of each subtree of the level."""
        return np.asarray(self._levels[level].counts, np.int64)

    def smallest(self, level: int, size: int) -> int | None:
        """The subtree of the level with the fewest rows of those that have `size`, the first of equals."""
        return self._levels[level].smallest(size)

    def sync(self, log: Sequence[int], still_open: Callable[[int], bool]) -> None:
        """Forget what the log says is gone: rows that were taken, and (as ~row) claimed ones that are not open."""
        new, self.cursor = log[self.cursor:], len(log)
        if min(new) < 0:
            new = [entry if entry >= 0 else ~entry for entry in new if entry >= 0 or not still_open(~entry)]
        self._forget(new)

    def without(self, rows: Ints) -> Counter:
        """The same without these rows; this one stays as it is."""
        left = np.zeros(self.map.size, np.bool_)
        for subtree in range(len(self._cuts) - 1):
            left[self._of(subtree)] = True
        left[rows] = False
        return Counter(self.map, left, self._block, self.cursor)

    def _of(self, subtree: int) -> list[int]:
        """The open rows of one of the smallest subtrees, in the order they are taken."""
        found = self._inside.get(subtree)
        if found is None:
            found = self._rows[self._cuts[subtree]:self._cuts[subtree + 1]]
            if self.map.mixed:
                found = sorted(found, key=lambda row: (self.map.count[row], row))
            self._inside[subtree] = found
        return found

    def _forget(self, rows: Sequence[int]) -> None:
        bottom = self.map.bottom
        fallen: dict[int, int] = {}
        last, inside = -1, self._rows
        for row in rows:
            subtree = bottom[row]
            if subtree != last:
                last, inside = subtree, self._of(subtree)
            if row in inside:
                inside.remove(row)
                fallen[subtree] = fallen.get(subtree, 0) + 1
        for subtree, by in fallen.items():
            if self._block:
                after = len(self._inside[subtree])
                by = (after + by) // self._block * self._block - after // self._block * self._block
            if by:
                for level, above in self.map.chain(subtree):
                    self._levels[level].fall(above, by)

    def gather(self, level: int, subtree: int, size: int) -> list[int]:
        """`size` rows of a subtree that has them, on as few smaller subtrees as they can be."""
        if level == self.map.first_level:
            return self._of(subtree)[:size]
        inner = level - 1
        begin, end = self.map.children(level, subtree)
        if end - begin == 1:
            return self.gather(inner, begin, size)
        counts = self._levels[inner].of(begin, end)
        order = sorted(range(len(counts)), key=lambda at: -counts[at])
        found: list[int] = []
        left = size
        for at, group in enumerate(order):
            count = counts[group]
            if count < left:
                found += self.gather(inner, begin + group, count)
                left -= count
                continue
            tightest = min((counts[other], other) for other in order[at:] if counts[other] >= left)[1]
            return found + self.gather(inner, begin + tightest, left)
        return found
