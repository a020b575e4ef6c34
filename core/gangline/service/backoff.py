"""Pools that were asked for nodes and did not deliver are left alone for a while."""

from __future__ import annotations

from dataclasses import dataclass, field

FIRST_MS = 30_000
LONGEST_MS = 600_000


@dataclass(slots=True)
class Backoff:
    """When each pool may be asked again. It lives in memory: a new server asks once more at once.

    The wait doubles with every failure that follows on another one; a node that comes ends it.
    """

    _waits: dict[str, tuple[int, int]] = field(default_factory=dict)  # pool: until when, and how long that was
    _held: set[str] = field(default_factory=set)

    def failed(self, pool: str, now_ms: int) -> int:
        """Notes that nodes of the pool did not come; when it may be asked again."""
        until_ms, wait_ms = self._waits.get(pool, (0, 0))
        if until_ms <= now_ms:  # several that fail together are one failure
            wait_ms = min(LONGEST_MS, wait_ms * 2 or FIRST_MS)
            self._held.add(pool)
            self._waits[pool] = until_ms, wait_ms = now_ms + wait_ms, wait_ms
        return until_ms

    def came(self, pool: str) -> None:
        """Notes that a node of the pool came."""
        self._waits.pop(pool, None)

    def holds(self, pool: str, now_ms: int) -> bool:
        """Whether the pool must not be asked now."""
        return self._waits.get(pool, (0, 0))[0] > now_ms

    def ended(self, now_ms: int) -> tuple[str, ...]:
        """Pools that may be asked again since the last look."""
        over = tuple(pool for pool in self._held if not self.holds(pool, now_ms))
        self._held.difference_update(over)
        return over

    def next_ms(self) -> int | None:
        """When the next pool may be asked again, if one has to wait."""
        return min((self._waits[pool][0] for pool in self._held if pool in self._waits), default=None)
