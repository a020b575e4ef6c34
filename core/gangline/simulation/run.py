"""`Run`: one job on its way through a replay, over all its attempts."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from gangline.plan.snapshot import Held, PendingGang, RunningGang
from gangline.simulation.trace import Job

GRACE_MS = 60_000  # GangSpec's default


@dataclass(frozen=True, slots=True)
class Span:
    """One attempt: what it held, and from when to when."""

    start_ms: int
    end_ms: int
    holds: tuple[Held, ...]


@dataclass(slots=True)
class Run:
    """The state of a job. `left_ms` is the work it still has to do, `waited_ms` its time in the queue
    before all of its attempts, `since_ms` when it last began to wait or to run."""

    job: Job
    asked: PendingGang
    left_ms: int
    since_ms: int
    attempt: int = 0
    waited_ms: int = 0
    first_ms: int | None = None
    end_ms: int | None = None
    preempted: int = 0
    preempted_ms: int = 0
    failed: int = 0
    over_limit: bool = False
    holds: tuple[Held, ...] = ()
    spans: list[Span] = field(default_factory=list)

    @staticmethod
    def of(job: Job, asked: PendingGang) -> Run:
        """A job that is submitted now."""
        return Run(job=job, asked=asked, left_ms=job.duration_ms, since_ms=job.submit_ms)

    @property
    def done_ms(self) -> int:
        """The work that is done and saved."""
        return self.job.duration_ms - self.left_ms

    @property
    def limit_ms(self) -> int | None:
        """What is left of its limit."""
        return None if self.asked.limit_ms is None else max(0, self.asked.limit_ms - self.done_ms)

    def start(self, holds: tuple[Held, ...], now_ms: int) -> int:
        """It begins to run on these; the instant at which it ends if nothing comes between."""
        self.attempt += 1
        self.waited_ms += now_ms - self.since_ms
        self.first_ms = now_ms if self.first_ms is None else self.first_ms
        self.since_ms, self.holds = now_ms, holds
        limit_ms = self.limit_ms
        self.over_limit = limit_ms is not None and limit_ms < self.left_ms
        return now_ms + (self.left_ms if limit_ms is None else min(self.left_ms, limit_ms))

    def finish(self, now_ms: int) -> None:
        """It has ended for good."""
        self.end_ms = now_ms
        self._leave(now_ms)

    def interrupt(self, now_ms: int, checkpoint_ms: int, kept: tuple[Held, ...] = ()) -> None:
        """It is ended and waits again; what it did since its last checkpoint is lost. It keeps `kept`."""
        self.left_ms -= saved_ms(now_ms - self.since_ms, checkpoint_ms)
        self._leave(now_ms)
        self.since_ms, self.holds = now_ms, kept

    def _leave(self, now_ms: int) -> None:
        self.spans.append(Span(self.since_ms, now_ms, self.holds))

    def pending(self) -> PendingGang:
        """The job as a gang that waits."""
        if not self.attempt:
            return self.asked
        return replace(self.asked, limit_ms=self.limit_ms, since_ms=self.since_ms, held=self.holds)

    def running(self) -> RunningGang:
        """The job as a gang that has just begun to run."""
        limit_ms, asked = self.limit_ms, self.asked
        return RunningGang(gang=asked.gang, name=asked.name, slot="", tenant=asked.tenant, priority=asked.priority,
                           holds=self.holds, since_ms=self.since_ms, preempted_ms=self.preempted_ms,
                           ends_by_ms=None if limit_ms is None else self.since_ms + limit_ms, grace_ms=GRACE_MS)


def saved_ms(ran_ms: int, checkpoint_ms: int) -> int:
    """How much of the time an attempt ran is in its last checkpoint."""
    return ran_ms - ran_ms % checkpoint_ms
