"""What is going to happen: a heap of events by instant, and a seeded stream of failures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from heapq import heappop, heappush
from random import Random

DAY_MS = 86_400_000


class Kind(Enum):
    """What an event is about."""

    ENDED = auto()  # a gang has done its work or run into its limit
    STOPPED = auto()  # a gang that was told to end has
    BOOTED = auto()
    REPAIRED = auto()


@dataclass(frozen=True, slots=True)
class Event:
    """`name` is a gang or a node; an event of a gang is void unless it still is in that attempt."""

    kind: Kind
    name: str
    attempt: int = 0


class Events:
    """Events to come. Those of one instant come in the order in which they were added."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Event]] = []
        self._added = 0

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, at_ms: int, event: Event) -> None:
        self._added += 1
        heappush(self._heap, (at_ms, self._added, event))

    def next_ms(self) -> int | None:
        return self._heap[0][0] if self._heap else None

    def pop(self, now_ms: int) -> Event | None:
        """The next event that is due, if any."""
        if self._heap and self._heap[0][0] <= now_ms:
            return heappop(self._heap)[2]
        return None


class Failures:
    """Failures of nodes, as a Poisson process: each node fails `per_node_day` times a day.

    A failure of a node that is out of service or not there is nobody's loss; so every policy of a
    comparison meets the same ones.
    """

    def __init__(self, nodes: Sequence[str], per_node_day: float, seed: int) -> None:
        self._nodes = sorted(nodes)
        self._rate = per_node_day * len(nodes) / DAY_MS
        self._rng = Random(f"{seed}/failures")  # noqa: S311 - it has to repeat itself
        self._exact_ms = 0.0
        self.next_ms: int | None = None
        self._advance()

    def pop(self, now_ms: int) -> str | None:
        """The node that fails by now, if one does."""
        if self.next_ms is None or self.next_ms > now_ms:
            return None
        node = self._rng.choice(self._nodes)
        self._advance()
        return node

    def _advance(self) -> None:
        if self._rate > 0:
            self._exact_ms += self._rng.expovariate(self._rate)
            self.next_ms = max(1, round(self._exact_ms))
