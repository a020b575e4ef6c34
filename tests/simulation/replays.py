"""Replays for tests: short builders, and what a schedule came to in seconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from gangline.model.fleet import Fleet
from gangline.plan.policy import POLICIES, Policy
from gangline.simulation.demand import Demand, Limits
from gangline.simulation.engine import Conditions, Replay, replay
from gangline.simulation.trace import Job, Trace
from gangline.simulation.world import World, world_of

H = 3600


def fleet(nodes: int = 4, **pool: Any) -> Fleet:
    """One pool of nodes of 8 GPUs on one leaf."""
    return Fleet.parse({"pools": [{"name": "p", "gpu": "H100:8", "fabric": "ib-1", "min": nodes, "max": nodes,
                                   "rdma": {"kind": "infiniband", "gbps": 3200}, **pool}]})


def world(nodes: int = 4, **pool: Any) -> World:
    return world_of(fleet(nodes, **pool))


def job(submit_s: float, nodes: int, duration_s: float, limit_s: float | None = None, **other: Any) -> Job:
    return Job(submit_ms=round(submit_s * 1000), nodes=nodes, duration_ms=round(duration_s * 1000),
               limit_ms=None if limit_s is None else round(limit_s * 1000), **other)


def run(jobs: Sequence[Job], policy: str | Policy = "fifo", on: World | None = None, *, limits: str = "exact",
        **conditions: Any) -> Replay:
    """A replay of jobs, which are named by their order: job-1, job-2, …"""
    trace, on = Trace.of("test", jobs), on or world()
    gangs = [(each, gang) for each, gang in Demand(on, Limits.parse(limits, trace)).gangs(trace) if gang is not None]
    return replay(on, gangs, POLICIES[policy] if isinstance(policy, str) else policy, Conditions(**conditions),
                  timer=iter(range(10**9)).__next__)


def starts_s(result: Replay) -> list[float | None]:
    """When each job first began."""
    return [None if each.first_ms is None else each.first_ms / 1000 for each in result.runs]


def ends_s(result: Replay) -> list[float | None]:
    """When each job was done."""
    return [None if each.end_ms is None else each.end_ms / 1000 for each in result.runs]


def without_times(numbers: dict[str, Any]) -> dict[str, Any]:
    """Metrics or whole JSON without what differs from run to run."""
    return {key: without_times(value) if isinstance(value, dict) else value
            for key, value in numbers.items() if key != "pass_ms"}


def overlaps(result: Replay) -> list[str]:
    """GPUs that two attempts held at once, and attempts that held other than what their job asks for."""
    found, held = [], {}
    for each in result.runs:
        for span in each.spans:
            if len(span.holds) != each.job.nodes:
                found.append(f"{each.asked.gang} ran on {len(span.holds)} nodes")
            for part in span.holds:
                for gpu in part.gpus:
                    held.setdefault((part.node, gpu), []).append((span.start_ms, span.end_ms, each.asked.gang))
    for gpu, spans in held.items():
        spans.sort()
        found += [f"{gpu}: {one} and {other}" for one, other in pairwise(spans) if other[0] < one[1]]
    return found


def shuffled_names(on: World, suffix: str) -> World:
    """The same fleet under other node names."""
    return replace(on, nodes=tuple(replace(node, name=node.name + suffix) for node in on.nodes))
