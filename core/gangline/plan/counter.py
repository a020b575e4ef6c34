"""How many whole open rows every subtree has, kept up to date as gangs take them."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Collection, Container, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from gangline.plan.fleet import Bools, FleetMap, Ints
from gangline.plan.lines import Bits, first_bits
from gangline.plan.topology import DOMAIN

LEASED = -1


class Gone(NamedTuple):
    """Rows that are no longer open to all: leased (`LEASED`), or claimed by the claim of that index. `types` are
    those of their GPUs."""

    rows: list[int]
    bits: list[Bits]
    claim: int
    types: Collection[str]


class _Level:
    """How many open rows each subtree of a level has, and the subtrees in order of that. Counts only fall.

    The order is of -(count * subtrees + subtree), so that the fewest rows stand last, where a list is quickly
    changed; subtrees without rows are not in it. It is put right when somebody asks for the smallest.
    """

    def __init__(self, counts: Ints) -> None:
        self.counts: list[int] = counts.tolist()
        self._many = len(counts)
        there = np.flatnonzero(counts)
        self._order: list[int] = np.sort(-(counts[there] * self._many + there)).tolist()
        self.before: dict[int, int] = {}  # the counts, as they are in the order, of those that have fallen since
        self._most = int(counts.max(initial=0))  # no subtree has more

    def copy(self) -> _Level:
        """One that changes by itself."""
        return _Level(np.asarray(self.counts, np.int64))

    def smallest(self, size: int) -> int | None:
        """The subtree with the fewest rows of those that have `size`, the first of equals."""
        if size > self._most:
            return None
        if self.before:
            self._put_right()
        at = bisect_right(self._order, -size * self._many) - 1
        if at < 0:
            self._most = size - 1
            return None
        return -self._order[at] % self._many

    def _put_right(self) -> None:
        order, many = self._order, self._many
        for subtree, before in self.before.items():
            del order[bisect_left(order, -(before * many + subtree))]
            count = self.counts[subtree]
            if count:
                insort(order, -(count * many + subtree))
        self.before.clear()


class Counter:
    """The rows of one need that are open, and their number in each subtree of each level.

    With `block`, rows count in whole blocks of so many of one NVLink domain. `cursor` tells how much of the
    log of what is gone it knows.
    """

    def __init__(self, fleet_map: FleetMap, rows: Bools, block: int, cursor: int) -> None:
        self.map, self.cursor, self._block = fleet_map, cursor, block
        found = np.flatnonzero(rows)
        self._packed = fleet_map.lines.pack(found)
        self._inside: dict[int, int] = {}  # the open rows of the smallest subtrees, as far as looked at
        self._levels = [_Level(self._counts(level, found))
                        for level in range(fleet_map.first_level, fleet_map.levels.count)]

    def _counts(self, level: int, rows: Ints) -> Ints:
        fleet_map = self.map
        if not self._block:
            return np.bincount(fleet_map.ids[level][rows], minlength=len(fleet_map.keys[level]))
        domains = np.bincount(fleet_map.ids[DOMAIN][rows], minlength=len(fleet_map.keys[DOMAIN]))
        owner = fleet_map.ids[level][fleet_map.starts[DOMAIN][:-1]]
        return np.bincount(owner, weights=domains // self._block * self._block,
                           minlength=len(fleet_map.keys[level])).astype(np.int64)

    def level(self, level: int) -> Ints:
        """The count of each subtree of the level."""
        return np.asarray(self._levels[level - self.map.first_level].counts, np.int64)

    def narrowest(self, widest: int, size: int) -> tuple[int, int] | None:
        """The first level, at most the widest, with a subtree that has `size` rows, and the subtree there with
        the fewest, the first of equals."""
        first = self.map.first_level
        for level, counts in enumerate(self._levels[:widest + 1 - first], first):
            subtree = counts.smallest(size)
            if subtree is not None:
                return level, subtree
        return None

    def sync(self, log: Sequence[Gone], variant: Container[int]) -> None:
        """Forget what the log says is gone, but for what is claimed by the variant's claims."""
        for gone in log[self.cursor:]:
            if gone.claim not in variant:
                self._forget(gone.bits)
        self.cursor = len(log)

    def without(self, rows: Iterable[int]) -> Counter:
        """The same without these rows; this one stays as it is."""
        other = Counter.__new__(Counter)
        other.map, other.cursor, other._block, other._packed = self.map, self.cursor, self._block, self._packed
        other._inside = dict(self._inside)
        other._levels = [level.copy() for level in self._levels]
        other._forget(self.map.lines.split(rows))
        return other

    def _of(self, subtree: int) -> int:
        """The open rows of one of the smallest subtrees."""
        found = self._inside.get(subtree)
        if found is None:
            found = self._inside[subtree] = self.map.lines.unpack(self._packed, subtree)
        return found

    def _forget(self, rows: Iterable[Bits]) -> None:
        for subtree, bits in rows:
            inside = self._of(subtree)
            left = inside & ~bits
            if left == inside:
                continue
            self._inside[subtree] = left
            by = self._worth(inside) - self._worth(left)
            if by:
                for level, above in zip(self._levels, self.map.around[subtree], strict=True):
                    count = level.counts[above]
                    level.before.setdefault(above, count)
                    level.counts[above] = count - by

    def _worth(self, bits: int) -> int:
        """For how many rows they count."""
        count = bits.bit_count()
        return count // self._block * self._block if self._block else count

    def gather(self, level: int, subtree: int, size: int) -> list[Bits]:
        """`size` rows of a subtree that has them, on as few smaller subtrees as they can be."""
        if level == self.map.first_level:
            return [(subtree, first_bits(self._of(subtree), size))]
        inner = level - 1
        begin, end = self.map.children(level, subtree)
        if end - begin == 1:
            return self.gather(inner, begin, size)
        counts = self._levels[inner - self.map.first_level].counts[begin:end]
        order = sorted(range(len(counts)), key=counts.__getitem__, reverse=True)
        found: list[Bits] = []
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
