"""How many whole open rows every subtree has, kept up to date as gangs take them."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Collection, Container, Iterable, Sequence
from copy import copy
from typing import NamedTuple

import numpy as np

from gangline.plan.fleet import Bools, FleetMap, Ints
from gangline.plan.lines import Bits, first_bits
from gangline.plan.topology import DOMAIN

LEASED = -1
_NEVER = 1 << 62
Fall = tuple[int, int]  # a smallest subtree, and how many rows less it has


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
    changed; subtrees without rows are not in it. `around` is the subtree around each of the smallest ones.
    """

    def __init__(self, counts: Ints, around: Sequence[int], seen: int = 0) -> None:
        self.counts: list[int] = counts.tolist()
        self.seen = seen  # so much of what fell is counted
        self._around, self._many = around, len(counts)
        there = np.flatnonzero(counts)
        self._order: list[int] = np.sort(-(counts[there] * self._many + there)).tolist()

    def copy(self) -> _Level:
        """One that changes by itself."""
        return _Level(np.asarray(self.counts, np.int64), self._around, self.seen)

    def catch_up(self, fallen: Sequence[Fall]) -> None:
        """Count what has fallen since the last time."""
        falls: dict[int, int] = {}
        for smallest, by in fallen[self.seen:]:
            above = self._around[smallest]
            falls[above] = falls.get(above, 0) + by
        self.seen = len(fallen)
        counts, order, many = self.counts, self._order, self._many
        for subtree, by in falls.items():
            del order[bisect_left(order, -(counts[subtree] * many + subtree))]
            counts[subtree] -= by
            if counts[subtree]:
                insort(order, -(counts[subtree] * many + subtree))

    def may_have(self, size: int) -> bool:
        """Whether a subtree has so many rows, or had when this was last looked at."""
        return bool(self._order) and -self._order[0] >= size * self._many

    def smallest(self, size: int) -> int | None:
        """The subtree with the fewest rows of those that have `size`, the first of equals."""
        at = bisect_right(self._order, -size * self._many) - 1
        return -self._order[at] % self._many if at >= 0 else None


class Counter:
    """The rows of one need that are open, and their number in each subtree of each level.

    With `block`, rows count in whole blocks of so many of one NVLink domain. What the log says is gone from now
    on is forgotten when somebody looks, but for what is claimed by the variant's claims.
    """

    def __init__(self, fleet_map: FleetMap, rows: Bools, block: int, log: Sequence[Gone],
                 variant: Container[int] = ()) -> None:
        self.map, self._block, self._log, self._variant = fleet_map, block, log, variant
        self._known = len(log)  # so much of the log is forgotten
        self._hopeless: dict[int, int] = {}  # the least size that nothing under a level has; rows only get fewer
        found = np.flatnonzero(rows)
        self._packed = fleet_map.lines.pack(found)
        self._inside: dict[int, int] = {}  # the open rows of the smallest subtrees, as far as looked at
        self._fallen: list[Fall] = []
        self._levels = {level: _Level(self._counts(level, found), fleet_map.around[level])
                        for level in range(fleet_map.first_level, fleet_map.levels.count)}

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
        self._sync()
        return np.asarray(self._level(level).counts, np.int64)

    def _level(self, level: int) -> _Level:
        found = self._levels[level]
        if found.seen < len(self._fallen):
            found.catch_up(self._fallen)
        return found

    def narrowest(self, widest: int, size: int) -> tuple[int, int] | None:
        """The first level, at most the widest, with a subtree that has `size` rows, and the subtree there with
        the fewest, the first of equals."""
        if size >= self._hopeless.get(widest, _NEVER):
            return None
        self._sync()
        for level in range(self.map.first_level, widest + 1):
            if self._levels[level].may_have(size):
                subtree = self._level(level).smallest(size)
                if subtree is not None:
                    return level, subtree
        self._hopeless[widest] = size
        return None

    def _sync(self) -> None:
        if self._known < len(self._log):
            for gone in self._log[self._known:]:
                if gone.claim not in self._variant:
                    self._forget(gone.bits)
            self._known = len(self._log)

    def without(self, rows: Iterable[int]) -> Counter:
        """The same without these rows; this one stays as it is."""
        self._sync()
        other = copy(self)
        other._inside, other._fallen, other._hopeless = self._inside.copy(), self._fallen.copy(), {}
        other._levels = {number: level.copy() for number, level in self._levels.items()}
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
            gone = inside & bits
            if gone:
                left = self._inside[subtree] = inside ^ gone
                by = self._in_blocks(inside) - self._in_blocks(left) if self._block else gone.bit_count()
                if by:
                    self._fallen.append((subtree, by))

    def _in_blocks(self, bits: int) -> int:
        """How many of the rows are in whole blocks."""
        return bits.bit_count() // self._block * self._block

    def gather(self, level: int, subtree: int, size: int) -> list[Bits]:
        """`size` rows of a subtree that has them, on as few smaller subtrees as they can be."""
        if level == self.map.first_level:
            return [(subtree, first_bits(self._of(subtree), size))]
        inner = level - 1
        begin, end = self.map.children(level, subtree)
        if end - begin == 1:
            return self.gather(inner, begin, size)
        counts = self._level(inner).counts[begin:end]
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
