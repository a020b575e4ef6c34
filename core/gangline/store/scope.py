"""What one transaction has read and changed so far; every verb of the store works through it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any

from sqlalchemy import BindParameter, Connection, Executable, Row, bindparam, insert, select, update

from gangline.store import schema


def key(name: str, *, many: bool = False) -> BindParameter[Any]:
    """A parameter of a statement that is built once; `key_` keeps it apart from columns that are set.
    `many` stands for a list, as `Scope.each` gives it."""
    return bindparam(f"key_{name}", expanding=many)


_CHUNK = 500  # values of one statement: databases limit them
_COUNTER = select(schema.counters.c.value).where(schema.counters.c.name == key("name"))
_COUNT = update(schema.counters).where(schema.counters.c.name == key("name"))


class Scope:
    """The connection of a transaction, and whom its commit must wake."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.gangs: set[str] = set()
        self.nodes: set[str] = set()
        self.moved_gangs: set[str] = set()
        self.moved_nodes: set[str] = set()
        self.moved = False
        self._counts: dict[str, int] = {}

    def rows(self, statement: Executable, **values: Any) -> Sequence[Row[Any]]:
        return self.connection.execute(statement, values).all()

    def row(self, statement: Executable, **values: Any) -> Row[Any] | None:
        return self.connection.execute(statement, values).first()

    def each(self, statement: Executable, name: str, values: Collection[Any]) -> Iterator[Row[Any]]:
        """The rows for a list of values, however long it is."""
        listed = list(values)
        for start in range(0, len(listed), _CHUNK):
            yield from self.connection.execute(statement, {f"key_{name}": listed[start:start + _CHUNK]}).all()

    def scalar(self, statement: Executable, **values: Any) -> Any:
        return self.connection.execute(statement, values).scalar()

    def run(self, statement: Executable, **values: Any) -> None:
        """Executes a change."""
        self.connection.execute(statement, values)

    def run_all(self, statement: Executable, values: Sequence[Mapping[str, Any]]) -> None:
        """Executes a change once for each of the values; none of them does nothing."""
        if values:
            self.connection.execute(statement, list(values))

    def next(self, counter: str, count: int = 1) -> int:
        """The first of `count` numbers that the counter has never given out before."""
        if counter not in self._counts:
            found = self.scalar(_COUNTER, key_name=counter)
            if found is None:
                self.run(insert(schema.counters), name=counter, value=0)
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
        self.note(gang=gang, node=node)

    def note(self, *, gang: str | None = None, node: str | None = None) -> None:
        """Like `wake`, for a change of what a plan looks at that alone asks for no new one."""
        self.wake(gang=gang, node=node)
        if gang is not None:
            self.moved_gangs.add(gang)
        if node is not None:
            self.moved_nodes.add(node)

    def save_counts(self) -> None:
        """Writes the counters back; the last thing before the commit."""
        for name, value in self._counts.items():
            self.run(_COUNT, key_name=name, value=value)


def columns(record: Any) -> dict[str, Any]:
    """A record's fields as column values."""
    return {field.name: getattr(record, field.name) for field in fields(record)}
