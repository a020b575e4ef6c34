"""What is due by the clock, gang by gang: start deadlines, timeouts, stuck commits, gangs nobody watches."""

from __future__ import annotations

from heapq import heappop, heappush

from gangline.model.states import Phase
from gangline.store import Attempt, Gang

START_DEADLINE_MS = 120_000
JOB_START_DEADLINE_MS = 1_800_000  # of jobs: images are pulled, and clusters start them when they will
VERIFY_BYTES_PER_MS = 20_000  # how slow storage may be when a version is read before the start
COMMIT_DEADLINE_MS = 600_000


def first_due_ms(gang: Gang, attempt: Attempt | None) -> int | None:
    """The earliest instant at which the clock may have something to say of a gang; what, is seen then."""
    dues = [orphaned_ms(gang)]
    if attempt is not None and attempt.ended_ms is None:
        match attempt.phase:
            case Phase.ASSEMBLING | Phase.STARTING:
                dues.append(attempt.issued_ms + start_deadline_ms(attempt))
            case Phase.RUNNING:
                dues.append(timeout_ms(gang, attempt))
            case Phase.COMMITTING | Phase.DRAINING:
                dues.append((attempt.stopped_ms or attempt.started_ms) + COMMIT_DEADLINE_MS)
    return min((due for due in dues if due is not None), default=None)


def start_deadline_ms(attempt: Attempt) -> int:
    """How long an attempt may take until it runs, not counting what it has to verify."""
    return START_DEADLINE_MS if attempt.pool is None else JOB_START_DEADLINE_MS


def timeout_ms(gang: Gang, attempt: Attempt) -> int | None:
    """When a gang that runs will have run for as long as it may, all attempts together."""
    if gang.timeout_ms is None or attempt.running_ms is None:
        return None
    return attempt.running_ms + max(0, gang.timeout_ms - gang.ran_ms)


def orphaned_ms(gang: Gang) -> int | None:
    """When a gang that is to end without a watcher ends, unless it is watched before; None for the others."""
    if gang.state.final or gang.cancel_cause is not None or gang.orphan_after_ms is None:
        return None
    return gang.watched_ms + gang.orphan_after_ms


class Dues:
    """When each gang is due. Setting one costs little, and asking costs what is due."""

    def __init__(self) -> None:
        self._at: dict[str, int] = {}
        self._heap: list[tuple[int, str]] = []

    def put(self, gang: str, due_ms: int | None) -> None:
        """The gang is due then, and not when it was before; None: not at all."""
        if due_ms is None:
            self._at.pop(gang, None)
        elif self._at.get(gang) != due_ms:
            self._at[gang] = due_ms
            heappush(self._heap, (due_ms, gang))
            if len(self._heap) > 2 * len(self._at) + 1_000:
                self._heap = sorted((at_ms, known) for known, at_ms in self._at.items())

    def take(self, now_ms: int) -> list[str]:
        """The gangs that are due; they are not any more."""
        taken = []
        while (next_ms := self.next_ms()) is not None and next_ms <= now_ms:
            _, gang = heappop(self._heap)
            del self._at[gang]
            taken.append(gang)
        return taken

    def next_ms(self) -> int | None:
        """When the next gang is due."""
        while self._heap and self._at.get(self._heap[0][1]) != self._heap[0][0]:
            heappop(self._heap)
        return self._heap[0][0] if self._heap else None
