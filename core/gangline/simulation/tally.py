"""`Tally`: what is added up while a replay goes on, weighted by how long it lasted."""

from __future__ import annotations

from array import array
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from gangline.plan.fleet import FleetMap
from gangline.plan.outcome import Placement, Reservation
from gangline.plan.topology import LEAF
from gangline.simulation.site import Site


class Series:
    """The fleet over time: at each instant (ms) the GPUs leased, the GPUs there and the gangs waiting,
    until the next."""

    def __init__(self) -> None:
        self.at_ms, self.used, self.gpus, self.waiting = (array("q") for _ in range(4))

    def add(self, at_ms: int, used: int, gpus: int, waiting: int) -> None:
        if self.at_ms and self.at_ms[-1] == at_ms:
            for column in (self.at_ms, self.used, self.gpus, self.waiting):
                column.pop()
        self.at_ms.append(at_ms)
        self.used.append(used)
        self.gpus.append(gpus)
        self.waiting.append(waiting)


class Tally:
    """Sums over a replay. `window_ms` is the time from the first to the last submission."""

    def __init__(self, site: Site, window_ms: int) -> None:
        self._site = site
        self._window_ms = window_ms
        self._last_ms = 0
        self._reserved: NDArray[np.int64] = np.zeros(0, np.int64)
        self._idle_nodes, self._split = 0, 0.0
        self._split_ms = 0.0
        self._busy = {"window": [0, 0], "all": [0, 0]}  # GPU-ms leased, GPU-ms there
        self._leaves = _Leaves()
        self.held_idle_node_ms = 0
        self.leaves_used, self.leaves_least = 0, 0
        self.series = Series()

    def advance(self, now_ms: int) -> None:
        """Time goes on; until now everything was as `observe` saw it."""
        span_ms, site = now_ms - self._last_ms, self._site
        if span_ms <= 0:
            return
        inside_ms = max(0, min(now_ms, self._window_ms) - self._last_ms)
        for sums, for_ms in ((self._busy["window"], inside_ms), (self._busy["all"], span_ms)):
            sums[0] += site.used * for_ms
            sums[1] += site.gpus * for_ms
        self.held_idle_node_ms += self._idle_nodes * span_ms
        self._split_ms += self._split * span_ms
        self._last_ms = now_ms

    def observe(self, now_ms: int, reservations: Iterable[Reservation] | None) -> None:
        """Everything of this instant has happened; `reservations` are those of a new plan, if there was one."""
        site, fleet = self._site, self._site.fleet
        if reservations is not None:
            rows = {row for kept in reservations for node in kept.nodes if (row := site.map.row.get(node)) is not None}
            self._reserved = np.fromiter(rows, np.int64, len(rows))
        whole = (fleet.free == site.map.count) & (fleet.base == 0)
        self._idle_nodes = int(np.count_nonzero(whole[self._reserved])) if self._reserved.size else 0
        blocks = np.bincount(site.map.ids[site.map.levels.fabric][whole])
        self._split = 1 - int(blocks.max()) / int(blocks.sum()) if blocks.size else 0.0
        self.series.add(now_ms, site.used, site.gpus, len(site.queue))

    def placed(self, placement: Placement) -> None:
        """A gang was placed: how many leaves it spans, and how few it could."""
        if len(placement.nodes) > 1:
            used, least = self._leaves.of(self._site.map, placement)
            self.leaves_used += used
            self.leaves_least += least

    @property
    def utilisation(self) -> float | None:
        """The share of the GPUs there that was leased over the submissions' window; over the whole replay
        when all were submitted at once."""
        used, there = self._busy["window"] if self._busy["window"][1] else self._busy["all"]
        return used / there if there else None

    @property
    def fragmentation(self) -> float | None:
        """1 - (whole free nodes of the fabric that has most) / (all whole free nodes), over time."""
        return self._split_ms / self._last_ms if self._last_ms else None


class _Leaves:
    """Counts leaves of placements. The fewest for a gang are those it would need in an empty fleet."""

    def __init__(self) -> None:
        self._map: FleetMap | None = None
        self._sums: dict[int, NDArray[np.int64]] = {}

    def of(self, fleet: FleetMap, placement: Placement) -> tuple[int, int]:
        """The leaves it uses, and the fewest that could hold it."""
        if self._map is not fleet:
            self._map, self._sums = fleet, {}
        rows = [fleet.row[member.node] for member in placement.nodes]
        kind = int(fleet.type[rows[0]])
        if kind not in self._sums:
            sizes = np.bincount(fleet.ids[LEAF][fleet.type == kind])
            self._sums[kind] = np.cumsum(np.sort(sizes)[::-1])
        least = int(np.searchsorted(self._sums[kind], len(rows))) + 1
        return len({int(leaf) for leaf in fleet.ids[LEAF][rows]}), least
