"""Where parts of nodes go: onto the row that spoils least, found without looking at all of them each time.

The growth of useless GPUs follows "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with
Fragmentation Gradient Descent" (USENIX ATC 2023), for whole GPUs and the present mix of one-node gangs.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush

import numpy as np

from gangline.plan.counter import Gone
from gangline.plan.fleet import Bools, FleetMap, Ints
from gangline.plan.snapshot import Snapshot

_Bucket = tuple[bool, int]  # is whole, free GPUs
_Place = tuple[int, int]  # whole rows of the leaf at the start, row


class Useless:
    """GPUs that are free and yet of no use to the present demand for parts of a type."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._asks: dict[str, Tally[int]] | None = None
        self._known: dict[tuple[str, int], int] = {}

    def growth(self, kind: str, free: int, count: int) -> int:
        """By how much taking `count` of `free` GPUs of a node makes more of them useless; may be negative."""
        return self._of(kind, free - count) - self._of(kind, free)

    def _of(self, kind: str, free: int) -> int:
        known = self._known.get((kind, free))
        if known is None:
            asks = self._mix().get(kind, Tally())
            known = self._known[kind, free] = sum(free * many for count, many in asks.items() if free < count)
        return known

    def _mix(self) -> dict[str, Tally[int]]:
        """How many one-node gangs ask for each count of a type, waiting (their first alternative) or running."""
        if self._asks is None:
            queue, fleet_map = self._snapshot.queue, self._snapshot.fleet.map
            asks = self._asks = {}
            waiting = np.bincount(queue.kind, minlength=len(queue.kinds))
            for (roles, *_, single), many in zip(queue.kinds, waiting.tolist(), strict=True):
                if single and many:
                    ask = roles[0].asks[0]  # type: ignore[index]
                    asks.setdefault(ask.type, Tally())[ask.count] += many
            for run in self._snapshot.running:
                row = fleet_map.row.get(run.holds[0].node) if len(run.holds) == 1 else None
                if row is not None:
                    asks.setdefault(fleet_map.values[row].gpu.type, Tally())[len(run.holds[0].gpus)] += 1
        return self._asks


@dataclass(slots=True)
class _Pile:
    """Places in order: those known at the start, and those that came since."""

    places: list[_Place]
    at: int = 0
    later: list[_Place] = field(default_factory=list)

    def first(self) -> _Place | None:
        known = self.places[self.at] if self.at < len(self.places) else None
        return min((p for p in (known, self.later[0] if self.later else None) if p is not None), default=None)

    def pop(self) -> None:
        """Drop the first place."""
        if self.later and (self.at >= len(self.places) or self.later[0] < self.places[self.at]):
            heappop(self.later)
        else:
            self.at += 1


class Parts:
    """Open rows with free GPUs, in piles of equal standing; each pile by (whole rows of its leaf, row)."""

    def __init__(self, fleet_map: FleetMap, rows: Bools, free: Ints, leaf_whole: Ints, cursor: int) -> None:
        self.cursor = cursor
        self._map, self._leaf_whole = fleet_map, leaf_whole
        self._member = rows
        self._free = free
        self._piles: dict[_Bucket, _Pile] = {}
        found = np.flatnonzero(rows)
        counts, whole = free[found], free[found] == fleet_map.count[found]
        order = np.lexsort((found, leaf_whole[found], counts, whole))
        keys = np.stack((whole[order], counts[order])) if len(found) else np.zeros((2, 0), np.int64)
        cuts = np.flatnonzero(np.any(keys[:, 1:] != keys[:, :-1], axis=0)) + 1
        for part in np.split(order, cuts):
            if len(part):
                bucket = bool(whole[part[0]]), int(counts[part[0]])
                rows_of = found[part]
                places = list(zip(leaf_whole[rows_of].tolist(), rows_of.tolist(), strict=True))
                self._piles[bucket] = _Pile(places)

    def sync(self, log: Sequence[Gone], allowed: Callable[[int], bool], free: Ints) -> None:
        """Put rows of the log where they stand now."""
        new, self.cursor = log[self.cursor:], len(log)
        for row in dict.fromkeys(row for gone in new for row in gone.rows):
            if self._member[row]:
                self._member[row] = free[row] > 0 and allowed(row)
                if self._member[row]:
                    pile = self._piles.setdefault(self._bucket(row), _Pile([]))
                    heappush(pile.later, (int(self._leaf_whole[row]), row))

    def _bucket(self, row: int) -> _Bucket:
        return bool(self._free[row] == self._map.count[row]), int(self._free[row])

    def best(self, count: int, growth: Callable[[int], int]) -> int | None:
        """The row for `count` GPUs: not whole, then least `growth` (of its free GPUs), least free, then by place."""
        for _, _, free, whole in sorted((whole, growth(free), free, whole) for whole, free in self._piles
                                        if free >= count):
            pile = self._piles[(whole, free)]
            while (place := pile.first()) is not None:
                row = place[1]
                if self._member[row] and self._bucket(row) == (whole, free):
                    return row
                pile.pop()
            del self._piles[(whole, free)]
        return None
