"""`Job` and `Trace`: who wanted how many nodes, when and for how long."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One gang of a trace.

    `gpus` are those of each node, None for all of it; `gpu` is their type, None for any the fleet has.
    `limit_ms` is the longest its user said that it runs, if the trace knows.
    """

    submit_ms: int
    duration_ms: int
    nodes: int = 1
    gpus: int | None = None
    gpu: str | None = None
    limit_ms: int | None = None
    tenant: str = "default"
    rdma: bool = False
    priority: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """Jobs in order of submission, the first at 0. `skipped` are rows that say nothing to replay, such
    as jobs that never ran."""

    name: str
    jobs: tuple[Job, ...]
    skipped: int = 0

    @staticmethod
    def of(name: str, jobs: Iterable[Job], skipped: int = 0) -> Trace:
        """A trace of these jobs, in any order; jobs of one instant keep theirs."""
        ordered = sorted(jobs, key=lambda job: job.submit_ms)
        first_ms = ordered[0].submit_ms if ordered else 0
        return Trace(name=name, skipped=skipped,
                     jobs=tuple(replace(job, submit_ms=job.submit_ms - first_ms) for job in ordered))

    def compressed(self, factor: float) -> Trace:
        """The same jobs submitted `factor` times as far apart: below 1 the load grows."""
        return replace(self, jobs=tuple(
            replace(job, submit_ms=round(job.submit_ms * factor)) for job in self.jobs))

    def asking_rdma(self) -> Trace:
        """The same jobs, those of several nodes asking for one fabric."""
        return replace(self, jobs=tuple(replace(job, rdma=job.rdma or job.nodes > 1) for job in self.jobs))

    @property
    def window_ms(self) -> int:
        """From the first submission to the last."""
        return self.jobs[-1].submit_ms if self.jobs else 0

    @property
    def limited(self) -> bool:
        """Whether any job says how long it runs at most."""
        return any(job.limit_ms is not None for job in self.jobs)
