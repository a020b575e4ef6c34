"""`Leases`: what running gangs hold, and what preemption goes by, as columns made once for all that ask."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gangline.plan.fleet import Bools, FleetMap, Ints
from gangline.plan.snapshot import RunningGang, Snapshot


@dataclass(frozen=True)
class Leases:
    """One entry per lease of a node that is there: its row, the number of its gang in `running`, its GPUs.

    `number` finds a gang by its id. The other columns have one entry per gang.
    """

    running: tuple[RunningGang, ...]
    number: dict[str, int]
    row: Ints
    run: Ints
    gpus: Ints

    @staticmethod
    def of(snapshot: Snapshot) -> Leases:
        """The leases of a snapshot; kept with the map until other gangs run."""
        kept = snapshot.fleet.map.leases
        if kept is None or kept.running is not snapshot.running:
            kept = snapshot.fleet.map.leases = _read(snapshot.running, snapshot.fleet.map)
        return kept

    def find(self, gang: str) -> RunningGang | None:
        """The running gang of that id."""
        number = self.number.get(gang)
        return None if number is None else self.running[number]

    @cached_property
    def by_name(self) -> Ints:
        """The numbers of the gangs, in the order of their ids."""
        return np.asarray(sorted(range(len(self.running)), key=lambda number: self.running[number].gang), np.int64)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The ids, sorted."""
        return tuple(self.running[number].gang for number in self.by_name.tolist())

    @cached_property
    def nodes(self) -> Ints:
        """On how many nodes each gang is."""
        return np.bincount(self.run, minlength=len(self.running))

    @cached_property
    def total(self) -> Ints:
        """How many GPUs each gang holds."""
        return np.bincount(self.run, self.gpus, len(self.running)).astype(np.int64)

    @cached_property
    def priority(self) -> Ints:
        return _column([run.priority for run in self.running])

    @cached_property
    def since_ms(self) -> Ints:
        return _column([run.since_ms for run in self.running])

    @cached_property
    def saved_ms(self) -> Ints:
        """Since when a gang's work would be lost."""
        return _column([run.since_ms if run.saved_ms is None else run.saved_ms for run in self.running])

    @cached_property
    def preempted_ms(self) -> Ints:
        return _column([run.preempted_ms for run in self.running])

    @cached_property
    def preemptible(self) -> Bools:
        return np.asarray([run.preemptible for run in self.running], np.bool_)

    @cached_property
    def ending(self) -> Bools:
        return np.asarray([run.ending for run in self.running], np.bool_)

    @cached_property
    def least(self) -> Ints:
        return _column([run.least for run in self.running])

    @cached_property
    def elastic(self) -> Bools:
        """Which gangs can give up nodes."""
        found: Bools = (self.least > 0) & (self.least < self.nodes)
        return found

    @cached_property
    def spare(self) -> Bools:
        """Which leases an elastic gang can give up: those of its last rows, beyond its least size."""
        order = np.lexsort((self.row, self.run))
        begins = np.concatenate(([0], np.cumsum(self.nodes)))[self.run[order]]
        spare = np.zeros(len(order), np.bool_)
        spare[order] = np.arange(len(order)) - begins >= self.least[self.run[order]]
        spare &= self.elastic[self.run]
        return spare

    @cached_property
    def _by_row(self) -> tuple[Ints, Ints]:
        order = np.argsort(self.row, kind="stable")
        return order, self.row[order]

    def within(self, begin: int, end: int) -> Ints:
        """The leases on a run of rows."""
        order, rows = self._by_row
        found: Ints = order[np.searchsorted(rows, begin):np.searchsorted(rows, end)]
        return found


def _read(running: tuple[RunningGang, ...], fleet_map: FleetMap) -> Leases:
    rows = fleet_map.row
    found = [(rows[held.node], number, len(held.gpus)) for number, run in enumerate(running)
             for held in run.holds if held.node in rows]
    row, run, gpus = np.asarray(found, np.int64).reshape(-1, 3).T.copy()
    return Leases(running, {run.gang: number for number, run in enumerate(running)}, row, run, gpus)


def _column(values: Sequence[int]) -> Ints:
    return np.asarray(values, np.int64)
