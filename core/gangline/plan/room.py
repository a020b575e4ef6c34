"""`Room`: whether the rows of one subtree are enough for a gang, and who must leave them for that."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gangline.plan.demand import Choice
from gangline.plan.fleet import Bools, FleetMap, Ints


@dataclass(frozen=True, slots=True)
class Made:
    """The places of the gangs that leave, in order, and the rows that the gang then has."""

    places: Ints
    rows: Ints


@dataclass(frozen=True, slots=True)
class Room:
    """The rows from `begin` to `end`, for a choice of whole nodes in blocks of `block` (0 for no matter)."""

    map: FleetMap
    choice: Choice
    block: int
    begin: int
    end: int

    def enough(self, rows: Bools) -> bool:
        """Whether these rows of the room meet all needs; real and emulated nodes are never in one subtree."""
        for need in self.choice.needs:
            mine = rows & need.mask[self.begin:self.end]
            count = int(np.count_nonzero(mine))
            if self.block:
                domains = np.bincount(self.map.ids[0][self.begin:self.end][mine])
                count = int((domains // self.block * self.block).sum())
            if count < need.upto:
                return False
        return True

    def least(self, had: Bools, last: Ints, rows: Ints, places: Ints) -> Made | None:
        """The first gangs that are enough when they leave, then, last first, without those that are not needed.

        `had` and `last` have one entry per row of the fleet: whether it is to be had anyway, and the place of the
        last gang that must leave it. `rows` and `places` are what gangs lease here that may leave.
        """
        had, last, rows = had[self.begin:self.end], last[self.begin:self.end], rows - self.begin
        mine = np.unique(places)
        steps = np.intersect1d(last, mine)
        low, high = 0, len(steps)
        while low < high:
            middle = (low + high) // 2
            if self.enough(had | (last <= steps[middle])):
                high = middle
            else:
                low = middle + 1
        if low == len(steps):
            return None
        chosen = mine[mine <= steps[low]]
        freed = had | (last <= steps[low])
        kept = self._needed(had, freed, rows, places, chosen)
        return Made(kept, self._used(had, freed))

    def _needed(self, had: Bools, freed: Bools, rows: Ints, places: Ints, chosen: Ints) -> Ints:
        """The gangs that are needed; `freed` loses what the others stay on."""
        order = np.argsort(places, kind="stable")
        cuts = np.searchsorted(places[order], np.stack((chosen, chosen + 1)))
        left = len(chosen)
        needed = np.ones(left, np.bool_)
        for at in range(len(chosen) - 1, -1, -1):
            on = rows[order[cuts[0, at]:cuts[1, at]]]
            before = freed[on]
            freed[on] = had[on]
            if left > 1 and self.enough(freed):
                needed[at] = False
                left -= 1
            else:
                freed[on] = before
        return chosen[needed]

    def _used(self, had: Bools, freed: Bools) -> Ints:
        """Need by need: rows that are to be had anyway first, then by row."""
        taken = np.zeros(0, np.int64)
        for need in self.choice.needs:
            rows = np.flatnonzero(freed & need.mask[self.begin:self.end])
            rows = rows[~np.isin(rows, taken)]
            order = np.lexsort((rows, ~had[rows]))
            if self.block:
                order = self._block_order(rows, order)
            taken = np.concatenate((taken, rows[order[:need.size]]))
        return np.sort(taken) + self.begin

    def _block_order(self, rows: Ints, order: Ints) -> Ints:
        block, domains = self.block, self.map.ids[0][rows + self.begin]
        kept: list[int] = []
        for domain in dict.fromkeys(domains[order].tolist()):
            mine = [int(at) for at in order if domains[at] == domain]
            kept += mine[:len(mine) // block * block]
        return np.asarray(kept, np.int64)
