"""Several replays of one trace beside each other: policies, and fleets that are thought up."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from gangline.model.errors import Rejected
from gangline.plan.policy import Policy
from gangline.simulation.demand import Demand, Limits
from gangline.simulation.engine import Conditions, Planner, Progress, Replay, decisions, replay
from gangline.simulation.trace import Trace
from gangline.simulation.world import World


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One replay of a comparison: a policy on a fleet; `too_big` jobs could never run there and are left out."""

    replay: Replay
    too_big: int

    @property
    def policy(self) -> str:
        return self.replay.policy.name

    @property
    def world(self) -> str:
        return self.replay.world.name


def compare(trace: Trace, worlds: Sequence[World], policies: Sequence[Policy], limits: Limits,
            conditions: Conditions, *, planner: Planner = decisions, timer: Callable[[], float] = time.perf_counter,
            begin: Callable[[World, Policy], Progress] | None = None) -> Iterator[Case]:
    """Each policy on each fleet, one after another. `begin` is told of each and gives its progress.

    Raises:
        Rejected: none of the trace's jobs fits a fleet.
    """
    for world in worlds:
        gangs = [(job, gang) for job, gang in Demand(world, limits).gangs(trace) if gang is not None]
        if not gangs:
            raise Rejected(f"none of the {len(trace.jobs)} jobs of {trace.name} fits {world.name}",
                           fix="give a fleet with nodes of their type, and enough of them")
        for policy in policies:
            progress = begin(world, policy) if begin is not None else None
            yield Case(too_big=len(trace.jobs) - len(gangs),
                       replay=replay(world, gangs, policy, conditions, planner=planner, timer=timer, progress=progress))
