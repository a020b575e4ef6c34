"""Short lines for a task's log out of successive views of a gang."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from gangline.client.run import blame

if TYPE_CHECKING:
    from gangline.model.gang import AttemptView, GangView, Progress

PROGRESS_EVERY_S = 10.0  # a line per report would flood the log of a task that runs for days
MAX_NODES_NAMED = 8


class Relay:
    """Says what is new in each view once: waits, placements, progress at a bounded rate, ends."""

    def __init__(self) -> None:
        self._state = ""
        self._wait = ""
        self._placed = 0
        self._ended = 0
        self._progress_ms = 0
        self._progress_due_s = 0.0

    def lines(self, view: GangView, now_s: float) -> Iterator[str]:
        """The lines for `view`; `now_s` is any clock that only goes forward."""
        yield from self._of_attempts(view)
        if view.state != self._state:
            self._state = view.state
            yield f"gang {view.gang} is {view.state}"
        if view.wait is not None and view.wait.text != self._wait:
            self._wait = view.wait.text
            yield f"waiting: {view.wait.text}"
        yield from self._of_progress(view.progress, now_s)

    def _of_attempts(self, view: GangView) -> Iterator[str]:
        for attempt in view.attempts:
            if attempt.number > self._placed:
                self._placed = attempt.number
                self._wait = ""
                yield _placement_text(attempt)
            if attempt.end is not None and attempt.number > self._ended:
                self._ended = attempt.number
                yield f"attempt {attempt.number} ended: {blame(attempt.end)}"

    def _of_progress(self, progress: Progress, now_s: float) -> Iterator[str]:
        if progress.at_ms <= self._progress_ms or now_s < self._progress_due_s:
            return
        self._progress_ms = progress.at_ms
        self._progress_due_s = now_s + PROGRESS_EVERY_S
        yield _progress_text(progress)


def _placement_text(attempt: AttemptView) -> str:
    names = [node.node for node in attempt.nodes]
    shown = ", ".join(names[:MAX_NODES_NAMED])
    more = f" and {len(names) - MAX_NODES_NAMED} more" if len(names) > MAX_NODES_NAMED else ""
    fabric = f", fabric {attempt.fabric}" if attempt.fabric else ""
    emulated = " (emulated)" if attempt.emulated else ""
    resume = "".join(f", resuming {r.mount} from {r.volume}@{r.version}" for r in attempt.resume)
    return f"attempt {attempt.number} on {shown}{more}{fabric}{emulated}{resume}"


def _progress_text(progress: Progress) -> str:
    step = "" if progress.step is None else f" step {progress.step}"
    total = f"/{progress.total}" if step and progress.total is not None else ""
    metrics = "".join(f" {name}={value:.6g}" for name, value in sorted(progress.metrics.items()))
    return f"progress:{step}{total}{metrics}"
