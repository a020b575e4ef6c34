"""Who holds which rows: running gangs, gangs in repair, and those just placed."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from gangline.plan.fleet import Bools, Ints
from gangline.plan.leases import Leases
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
        leases, rows = Leases.of(snapshot), snapshot.fleet.map.row
        placed = {each.gang: tuple(Held(node=member.node, gpus=member.gpus) for member in each.nodes)
                  for each in placements}
        more = [(gang.gang, gang.held) for gang in snapshot.queue.repairing() if gang.gang not in placed]
        more += placed.items()
        names = [*leases.names, *(gang for gang, _ in more)]
        order = sorted(range(len(names)), key=names.__getitem__)
        number = np.empty(len(names), np.int64)
        number[np.concatenate((leases.by_name, np.arange(len(leases.by_name), len(names))))[order]] = np.arange(
            len(names))
        found = [(rows[held.node], at, len(held.gpus)) for at, (_, holds) in enumerate(more, len(snapshot.running))
                 for held in holds if held.node in rows]
        row, gang, gpus = np.asarray(found, np.int64).reshape(-1, 3).T
        return Holders(tuple(names[at] for at in order), np.concatenate((leases.row, row)),
                       number[np.concatenate((leases.run, gang))], np.concatenate((leases.gpus, gpus)))

    def nodes_of(self, gang: str, rows: Bools) -> int:
        """On how many of the rows a gang holds something."""
        return len(np.unique(self.row[rows[self.row] & (self.gang == bisect_left(self.gangs, gang))]))

    def most_first(self, rows: Bools, most: int) -> tuple[list[str], int]:
        """At most `most` gangs with leases on the rows, those that hold most GPUs first, then by id; and how many
        there are in all."""
        here = rows[self.row]
        gpus = np.bincount(self.gang[here], weights=self.gpus[here], minlength=len(self.gangs))
        found = np.flatnonzero(gpus)
        first = found[np.lexsort((found, -gpus[found]))[:most]]
        return [self.gangs[at] for at in first.tolist()], len(found)
