"""What a replay came to, in the numbers that schedulers are compared by."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gangline.simulation.engine import Replay
from gangline.simulation.run import Run

SIZE_CLASSES = ((1, 1), (2, 8), (9, 32), (33, 128), (129, None))  # nodes, from to
BOUND_MS = 10_000  # of the bounded slowdown: shorter jobs count as this long
Numbers = dict[str, float | None] | None


def class_name(low: int, high: int | None) -> str:
    """ "2-8", ">128"."""
    if high is None:
        return f">{low - 1}"
    return str(low) if low == high else f"{low}-{high}"


def metrics(result: Replay) -> dict[str, Any]:
    """One policy's part of `simulate --json`. Seconds, shares of 1, counts; null where there is nothing
    to measure. All but `pass_ms` is the same in every run."""
    started = [run for run in result.runs if run.first_ms is not None]
    tally = result.tally
    return {
        "jobs": len(result.runs),
        "wait_s": waits(started),
        "wait_s_by_size": {class_name(low, high): waits(
            run for run in started if low <= run.job.nodes <= (high or run.job.nodes))
            for low, high in SIZE_CLASSES},
        "wait_s_largest_decile": waits(largest_decile(started)),
        "bounded_slowdown": _slowdown(started),
        "makespan_s": result.end_ms / 1000,
        "utilisation": _rounded(tally.utilisation),
        "leaves_over_minimum": _rounded(tally.leaves_used / tally.leaves_least if tally.leaves_least else None),
        "preemptions": sum(run.preempted for run in result.runs),
        "failures": sum(run.failed for run in result.runs),
        "over_limit": sum(run.over_limit and run.end_ms is not None for run in result.runs),
        "starved": len(result.runs) - len(started),
        "lost_gpu_hours": round(sum(_lost_gpu_ms(run) for run in result.runs) / 3_600_000, 3),
        "held_idle_node_s": tally.held_idle_node_ms / 1000,
        "fragmentation": _rounded(tally.fragmentation),
        "passes": len(result.pass_ms),
        "pass_ms": {"p50": _percentile(result.pass_ms, 50), "p99": _percentile(result.pass_ms, 99)},
    }


def waits(runs: Iterable[Run]) -> Numbers:
    """How long gangs were in the queue, all their attempts together; None when there are none."""
    waited = np.fromiter((run.waited_ms / 1000 for run in runs), np.float64)
    if not waited.size:
        return None
    return {"mean": round(float(waited.mean()), 3), "p50": _percentile(waited, 50), "p90": _percentile(waited, 90),
            "p99": _percentile(waited, 99), "max": float(waited.max())}


def largest_decile(runs: list[Run]) -> list[Run]:
    """The tenth of the gangs with the most nodes; of equal ones those submitted first."""
    ordered = sorted(runs, key=lambda run: -run.job.nodes)
    return ordered[:math.ceil(len(ordered) / 10)]


def _slowdown(runs: list[Run]) -> float | None:
    """Mean of (end - submission) / duration, at least 1; durations below 10 s count as 10 s."""
    found = [max(1.0, (run.end_ms - run.job.submit_ms) / max(BOUND_MS, run.job.duration_ms))
             for run in runs if run.end_ms is not None]
    return round(sum(found) / len(found), 4) if found else None


def _lost_gpu_ms(run: Run) -> int:
    """GPU time beyond what the job's work took at its size: what preemptions and failures undid."""
    if len(run.spans) < 2:
        return 0
    held = sum((span.end_ms - span.start_ms) * sum(len(h.gpus) for h in span.holds) for span in run.spans)
    per_ms = sum(len(h.gpus) for h in run.spans[-1].holds)
    return max(0, held - per_ms * min(run.job.duration_ms, run.asked.limit_ms or run.job.duration_ms))


def _percentile(values: Sequence[float] | NDArray[np.float64], q: float) -> float | None:
    return round(float(np.percentile(values, q)), 3) if len(values) else None


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
