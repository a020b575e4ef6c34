"""Who holds which rows: running gangs, and gangs in repair."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gangline.plan.fleet import Bools, Ints
from gangline.plan.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Holders:
    """One entry per lease: the row, the gang's number in `gangs`, and how many GPUs."""

    gangs: tuple[str, ...]
    row: Ints
    gang: Ints
    gpus: Ints

    @staticmethod
    def of(snapshot: Snapshot) -> Holders:
        rows = snapshot.fleet.map.row
        holders = [(run.gang, run.holds) for run in snapshot.running]
        holders += [(gang.gang, gang.held) for gang in snapshot.queue.repairing()]
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
