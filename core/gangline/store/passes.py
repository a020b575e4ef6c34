"""Verbs on passes: what the loop decided, from what."""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import delete, insert, select

from gangline.store.schema import passes
from gangline.store.scope import Scope, columns, key
from gangline.store.values import Pass

_ADD = insert(passes)
_GET = select(passes).where(passes.c.id == key("id"))
_DROP = delete(passes).where(passes.c.id.in_(key("ids", many=True)))
_SIZES = select(passes.c.id, passes.c.size_bytes).order_by(passes.c.id.desc())
# Bytes are not read where nobody looks at them.
_LISTED = [column for column in passes.c if column.name not in ("plan", "inputs")]


class Passes:
    """The newest passes; older ones make room."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope

    def next_id(self) -> int:
        return self._scope.next("pass")

    def add(self, kept: Pass) -> None:
        self._scope.run(_ADD, **columns(kept))

    def sizes(self) -> list[tuple[int, int]]:
        """Id and bytes of every pass, newest first."""
        return [(row.id, row.size_bytes) for row in self._scope.rows(_SIZES)]

    def drop(self, ids: Collection[int]) -> None:
        for start in range(0, len(ids), 500):
            self._scope.run(_DROP, key_ids=list(ids)[start:start + 500])

    def find(self, number: int) -> Pass | None:
        row = self._scope.row(_GET, key_id=number)
        return None if row is None else Pass(**row._mapping)

    def listed(self, before: int | None, limit: int) -> tuple[tuple[Pass, bool], ...]:
        """Passes without plan and inputs, newest first; and whether the inputs were kept."""
        query = select(*_LISTED, passes.c.inputs.is_not(None).label("whole")).order_by(passes.c.id.desc()).limit(limit)
        if before is not None:
            query = query.where(passes.c.id < before)
        found = []
        for row in self._scope.rows(query):
            values = dict(row._mapping)
            whole = bool(values.pop("whole"))
            found.append((Pass(**values, plan=b"", inputs=None), whole))
        return tuple(found)
