"""Verbs on events: what happened, numbered over the whole store in the order of commits."""

from __future__ import annotations

from typing import Any

from sqlalchemy import insert, select

from gangline.model.gang import Event
from gangline.store.schema import events
from gangline.store.scope import Scope

_ADD = insert(events)


class Events:
    """Events are written with the change they tell of, at the end of its transaction."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._pending: list[dict[str, Any]] = []

    def add(self, kind: str, now_ms: int, *, gang: str | None = None, **data: Any) -> None:
        """Records that something happened. `data` is small plain JSON."""
        self._pending.append({"seq": self._scope.next("event"), "at_ms": now_ms, "kind": kind,
                              "gang": gang, "data": data})
        self._scope.wake(gang=gang)

    def after(self, seq: int, gang: str | None = None, limit: int = 500) -> tuple[Event, ...]:
        """The first `limit` events after number `seq`, of one gang or of all, oldest first."""
        query = select(events).where(events.c.seq > seq).order_by(events.c.seq).limit(limit)
        if gang is not None:
            query = query.where(events.c.gang == gang)
        return tuple(Event(**row._mapping) for row in self._scope.rows(query))

    def flush(self) -> None:
        self._scope.run_all(_ADD, self._pending)
        self._pending = []
