"""Jobs as the planner sees them: what they ask of this fleet, and what it is told of how long they run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from gangline.model.errors import Rejected
from gangline.model.gpu import GpuAsk
from gangline.plan.fleet import FleetMap, Wanted
from gangline.plan.snapshot import PendingGang, RoleNeed
from gangline.simulation.trace import Job, Trace
from gangline.simulation.world import World


@dataclass(frozen=True, slots=True)
class Limits:
    """What the planner is told of how long a job runs at most, and when it is killed for it.

    `kind` is "exact" (how long it does run), "trace" (what its user asked for, unknown where the trace
    does not say), "none", or "factor" (`factor` times how long it runs).
    """

    kind: str
    factor: float = 1.0

    @staticmethod
    def parse(text: str | None, trace: Trace) -> Limits:
        """The limits written as exact, trace, none or x3; without a text those of the trace, if it has any."""
        if text is None:
            return Limits("trace" if trace.limited else "exact")
        if text in ("exact", "none") or (text == "trace" and trace.limited):
            return Limits(text)
        if text == "trace":
            raise Rejected("the trace has no limits", field="--limits", fix="use exact, none or a factor such as x3")
        match = re.fullmatch(r"x(\d+(?:\.\d+)?)", text)
        if match is None or float(match[1]) < 1:
            raise Rejected(f"{text!r} says no limits", field="--limits",
                           fix="write exact, trace, none or a factor of at least 1 such as x3")
        return Limits("factor", float(match[1]))

    def of(self, job: Job) -> int | None:
        """The limit of a job in ms."""
        match self.kind:
            case "trace":
                return job.limit_ms
            case "none":
                return None
            case _:
                return round(job.duration_ms * self.factor)

    def __str__(self) -> str:
        return f"x{self.factor:g}" if self.kind == "factor" else self.kind


class Demand:
    """Turns the jobs of a trace into pending gangs for one fleet."""

    def __init__(self, world: World, limits: Limits) -> None:
        self._whole = world.whole_asks()
        self._limits = limits
        self._map = FleetMap(world.nodes, world.pools)
        self._roles: dict[tuple[str | None, int | None, int], tuple[RoleNeed, ...]] = {}
        self._fits: dict[tuple[tuple[RoleNeed, ...], bool], bool] = {}

    def gangs(self, trace: Trace) -> Iterator[tuple[Job, PendingGang | None]]:
        """Each job with its gang, in order; None for one that this fleet could never hold."""
        width = len(str(len(trace.jobs)))
        for index, job in enumerate(trace.jobs):
            roles = self._needs(job)
            yield job, self._gang(f"job-{index + 1:0{width}}", job, roles) if self._could(roles, job.rdma) else None

    def _needs(self, job: Job) -> tuple[RoleNeed, ...]:
        key = (job.gpu, job.gpus, job.nodes)
        if key not in self._roles:
            asks = tuple(GpuAsk(ask.type, job.gpus or ask.count) for ask in self._whole
                         if job.gpu in (None, ask.type) and (job.gpus or 1) <= ask.count)
            self._roles[key] = (RoleNeed(name="", size=job.nodes, asks=asks),)
        return self._roles[key]

    def _could(self, roles: tuple[RoleNeed, ...], rdma: bool) -> bool:
        key = (roles, rdma)
        if key not in self._fits:
            self._fits[key] = any(self._room(ask, rdma) >= roles[0].size for ask in roles[0].asks)
        return self._fits[key]

    def _room(self, ask: GpuAsk, rdma: bool) -> int:
        """The nodes that one gang could ever have, on one fabric with rdma."""
        mask = self._map.mask(Wanted(ask, rdma, None, None, frozenset()))
        if not rdma:
            return int(np.count_nonzero(mask))
        return int(np.bincount(self._map.ids[self._map.levels.fabric][mask], minlength=1).max())

    def _gang(self, name: str, job: Job, roles: tuple[RoleNeed, ...]) -> PendingGang:
        return PendingGang(gang=name, name=name, slot="", tenant=job.tenant, priority=job.priority,
                           submitted_ms=job.submit_ms, since_ms=job.submit_ms, roles=roles, rdma=job.rdma,
                           most=job.nodes, limit_ms=self._limits.of(job))
