"""Verbs on what a person asked pools to be."""

from __future__ import annotations

from sqlalchemy import delete, insert, select

from gangline.store.schema import pool_sizes
from gangline.store.scope import Scope


class Pools:
    """Sizes that were asked for; a pool without one is as large as its work needs."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope

    def wanted(self) -> dict[str, int]:
        """The size asked for, by pool."""
        return {row.pool: row.wanted for row in self._scope.rows(select(pool_sizes))}

    def want(self, pool: str, size: int | None, now_ms: int) -> None:
        """Asks for a size; None takes the wish back."""
        self._scope.run(delete(pool_sizes).where(pool_sizes.c.pool == pool))
        if size is not None:
            self._scope.run(insert(pool_sizes), pool=pool, wanted=size, changed_ms=now_ms)
        self._scope.move()
