"""How replays read: progress, a table of policies, and the JSON."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from gangline.cli.output import Lines, news, stderr, table
from gangline.model.units import format_duration
from gangline.plan.policy import Policy
from gangline.simulation.compare import Case
from gangline.simulation.demand import Limits
from gangline.simulation.engine import Progress as Told
from gangline.simulation.metrics import metrics
from gangline.simulation.trace import Trace
from gangline.simulation.world import World

BASELINE = "easy"
_DAY_S = 86_400


class Watch:
    """Shows on a terminal how far each replay is; when interrupted it says so everywhere."""

    def __init__(self, many_fleets: bool) -> None:
        self._many = many_fleets
        self._bar = Progress(TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("gangs"),
                             TimeRemainingColumn(), console=stderr(), transient=True, disable=not sys.stderr.isatty())
        self._began: list[str] = []
        self._far: tuple[int, int, int] | None = None

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self._bar.stop()
        if isinstance(error, KeyboardInterrupt) and self._began:
            *done, now = self._began
            far = "" if self._far is None else \
                f" after {self._far[0]:,} of {self._far[1]:,} gangs, {_span(self._far[2] / 1000)} into the trace"
            news(f"interrupted: {now}{far}; finished: {', '.join(done) or 'none'}")

    def begin(self, world: World, policy: Policy) -> Told:
        """A replay begins; what is returned takes its progress."""
        name = f"{policy.name} on {world.name}" if self._many else policy.name
        self._began.append(name)
        self._far = None
        task = self._bar.add_task(name, total=None)

        def told(done: int, jobs: int, now_ms: int) -> None:
            self._far = (done, jobs, now_ms)
            self._bar.update(task, completed=done, total=jobs)

        return told


def plain(trace: Trace, worlds: Sequence[World], limits: Limits, cases: Sequence[Case]) -> dict[str, Any]:
    """The JSON of `gangline simulate`."""
    by_world: dict[str, dict[str, Any]] = {world.name: {} for world in worlds}
    for case in cases:
        by_world[case.world][case.policy] = {**metrics(case.replay), "too_big": case.too_big}
    first, *others = worlds
    return {
        "trace": {"name": trace.name, "jobs": len(trace.jobs), "skipped": trace.skipped, "limits": str(limits),
                  "window_s": trace.window_ms / 1000, "offered_load": _load(trace, first)},
        "fleet": {"nodes": first.node_count, "gpus": _gpus(first)},
        "policies": by_world[first.name],
        "what_if": {world.name: by_world[world.name] for world in others},
    }


def as_table(trace: Trace, worlds: Sequence[World], limits: Limits, cases: Sequence[Case]) -> Lines:
    """The same for people; ratios are to `easy` on the fleet as it is."""
    first = worlds[0]
    load = _load(trace, first)
    lines = [Text(f"{trace.name}: {len(trace.jobs):,} jobs over {_span(trace.window_ms / 1000)}"
                  + (f", offered load {load:.2f}" if load is not None else "") + f", limits {limits}"),
             Text(f"{first.name}: {first.node_count:,} nodes, {_gpus(first):,} GPUs; virtual time, waits in the queue")]
    found = [(case, metrics(case.replay)) for case in cases]
    base = next((numbers for case, numbers in found if case.policy == BASELINE and case.world == first.name), None)
    heads: tuple[str, ...] = ("policy", "mean wait", "p50", "p99", "max", "largest 10 % p99", "slowdown", "makespan",
                              "in use", "leaves/least", "preempted", "starved", "pass p50/p99")
    if len(worlds) > 1:
        heads = ("fleet", *heads)
    rows = [((case.world,) if len(worlds) > 1 else ()) + _row(case, numbers, base) for case, numbers in found]
    lines += table(heads, rows)
    return lines + [Text(note, style="dim") for note in _notes(trace, cases, base is not None)]


def _row(case: Case, numbers: Mapping[str, Any], base: Mapping[str, Any] | None) -> tuple[str, ...]:
    other = None if case.policy == BASELINE and numbers == base else base

    def wait(key: str, stat: str) -> str:
        mine, theirs = (None if source is None or source[key] is None else source[key][stat]
                        for source in (numbers, other))
        return "-" if mine is None else _span(mine) + _ratio(mine, theirs)

    makespan = _span(numbers["makespan_s"]) + _ratio(numbers["makespan_s"], other["makespan_s"] if other else None)
    passes = numbers["pass_ms"]
    return (case.policy, *(wait("wait_s", stat) for stat in ("mean", "p50", "p99", "max")),
            wait("wait_s_largest_decile", "p99"), _number(numbers["bounded_slowdown"], ".1f"), makespan,
            _number(numbers["utilisation"], ".1%"), _number(numbers["leaves_over_minimum"], ".2f"),
            f"{numbers['preemptions']:,}", f"{numbers['starved']:,}",
            f"{_number(passes['p50'], '.2g')}/{_number(passes['p99'], '.2g')} ms")


def _notes(trace: Trace, cases: Sequence[Case], compared: bool) -> list[str]:
    notes = ["Ratios are to easy (EASY backfill)."] if compared and len(cases) > 1 else []
    if trace.skipped:
        notes.append(f"{trace.skipped:,} rows of the trace ran nothing and are left out.")
    notes += dict.fromkeys(f"{case.too_big:,} jobs ask for what {case.world} can never hold and are left out."
                           for case in cases if case.too_big)
    return notes


def _load(trace: Trace, world: World) -> float | None:
    """The work submitted over what the fleet could do until the last submission."""
    whole = world.gpus_per_node
    work = sum(job.nodes * (job.gpus if job.gpus and job.nodes == 1 else whole) * job.duration_ms for job in trace.jobs)
    could = _gpus(world) * trace.window_ms
    return round(work / could, 4) if could else None


def _gpus(world: World) -> int:
    return sum(node.gpu.count for node in world.nodes)


def _span(seconds: float) -> str:
    return f"{seconds / _DAY_S:.1f}d" if seconds >= 10 * _DAY_S else format_duration(seconds)


def _ratio(mine: float, theirs: float | None) -> str:
    return f" ({mine / theirs:.2f}x)" if theirs else ""


def _number(value: float | None, spec: str) -> str:
    return "-" if value is None else format(value, spec)
