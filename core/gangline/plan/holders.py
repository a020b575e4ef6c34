"""Who holds which rows: running gangs, gangs in repair, and those just placed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import itemgetter

import numpy as np

from gangline.plan.fleet import Bools, Ints
from gangline.plan.outcome import NodeChoice, Placement
from gangline.plan.snapshot import Held, Snapshot


@dataclass(frozen=True, slots=True)
class Holders:
    """One entry per lease: the row, the gang's number in `gangs`, and how many GPUs."""

    gangs: tuple[str, ...]
    row: Ints
    gang: Ints
    gpus: Ints

    @staticmethod
    def of(snapshot: Snapshot, placements: Iterable[Placement]) -> Holders:
        """Of a snapshot after these placements."""
        rows = snapshot.fleet.map.row
        holders: list[tuple[str, Sequence[Held | NodeChoice]]] = [(run.gang, run.holds) for run in snapshot.running]
        placed = {each.gang: each.nodes for each in placements}
        holders += [(gang.gang, gang.held) for gang in snapshot.queue.repairing() if gang.gang not in placed]
        holders += placed.items()
        holders.sort(key=itemgetter(0))
        leases = list(chain.from_iterable(holds for _, holds in holders))
        row = np.fromiter((rows.get(lease.node, -1) for lease in leases), np.int64, len(leases))
        gang = np.repeat(np.arange(len(holders)), [len(holds) for _, holds in holders])
        gpus = np.fromiter((len(lease.gpus) for lease in leases), np.int64, len(leases))
        there = row >= 0
        return Holders(tuple(gang for gang, _ in holders), row[there], gang[there], gpus[there])

    def most_first(self, rows: Bools, most: int) -> tuple[list[str], int]:
        """At most `most` gangs with leases on the rows, those that hold most GPUs first, then by id; and how many
        there are in all."""
        here = rows[self.row]
        gpus = np.bincount(self.gang[here], weights=self.gpus[here], minlength=len(self.gangs))
        found = np.flatnonzero(gpus)
        first = found[np.lexsort((found, -gpus[found]))[:most]]
        return [self.gangs[at] for at in first.tolist()], len(found)
