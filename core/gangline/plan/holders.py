"""Who holds which rows: running gangs, gangs in repair, and those just placed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from gangline.plan.fleet import Bools, Ints
from gangline.plan.outcome import Placement
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
        holders = [(run.gang, run.holds) for run in snapshot.running]
        placed = {each.gang: tuple(Held(node=member.node, gpus=member.gpus) for member in each.nodes)
                  for each in placements}
        holders += [(gang.gang, gang.held) for gang in snapshot.queue.repairing() if gang.gang not in placed]
        holders += placed.items()
        holders.sort(key=lambda holder: holder[0])
        leases = [(rows[held.node], number, len(held.gpus)) for number, (_, holds) in enumerate(holders)
                  for held in holds if held.node in rows]
        columns = np.asarray(leases, np.int64).reshape(-1, 3).T
        return Holders(tuple(gang for gang, _ in holders), columns[0], columns[1], columns[2])

    def most_first(self, rows: Bools, most: int) -> tuple[list[str], int]:
        """At most `most` gangs with leases on the rows, those that hold most GPUs first, then by id; and how many
        there are in all."""
        here = rows[self.row]
        gpus = np.bincount(self.gang[here], weights=self.gpus[here], minlength=len(self.gangs))
        found = np.flatnonzero(gpus)
        first = found[np.lexsort((found, -gpus[found]))[:most]]
        return [self.gangs[at] for at in first.tolist()], len(found)
