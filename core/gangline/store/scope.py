"""What one transaction has read and changed so far; every verb of the store works through it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from sqlalchemy import Connection, Executable, Row, insert, select, update

from gangline.store import schema


class Scope:
    """The connection of a transaction, and whom its commit must wake."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.gangs: set[str] = set()
        self.nodes: set[str] = set()
        self.moved = False
        self._counts: dict[str, int] = {}

    def rows(self, statement: Executable) -> Sequence[Row[Any]]:
        return self.connection.execute(statement).all()

    def row(self, statement: Executable) -> Row[Any] | None:
        return self.connection.execute(statement).first()

    def scalar(self, statement: Executable) -> Any:
        return self.connection.execute(statement).scalar()

    def run(self, statement: Executable, values: Sequence[Mapping[str, Any]] | None = None) -> int:
        """Executes a change and tells how many rows it touched; an empty list of values does nothing."""
        if values is None:
            return int(getattr(self.connection.execute(statement), "rowcount", 0))
        if values:
            self.connection.execute(statement, list(values))
        return len(values)

    def next(self, counter: str, count: int = 1) -> int:
        """The first of `count` numbers that the counter has never given out before."""
        if counter not in self._counts:
            found = self.scalar(select(schema.counters.c.value).where(schema.counters.c.name == counter))
            if found is None:
                self.run(insert(schema.counters).values(name=counter, value=0))
            self._counts[counter] = int(found or 0)
        first = self._counts[counter] + 1
        self._counts[counter] += count
        return first

    def wake(self, *, gang: str | None = None, node: str | None = None) -> None:
        """Whoever watches it is told after the commit."""
        if gang is not None:
            self.gangs.add(gang)
        if node is not None:
            self.nodes.add(node)

    def move(self, *, gang: str | None = None, node: str | None = None) -> None:
        """Like `wake`, for a change that a plan must take into account."""
        self.moved = True
        self.wake(gang=gang, node=node)

    def save_counts(self) -> None:
        """Writes the counters back; the last thing before the commit."""
        for name, value in self._counts.items():
            self.run(update(schema.counters).where(schema.counters.c.name == name).values(value=value))


def columns(record: Any) -> dict[str, Any]:
    """A record's fields as column values."""
    return {field.name: getattr(record, field.name) for field in fields(record)}
