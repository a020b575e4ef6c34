"""`Store`: one durable picture of gangs, leases, nodes and versions, changed one transaction at a time."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Self

from sqlalchemy import Connection, Engine, select

from gangline.model.gang import Wait
from gangline.store import schema
from gangline.store.attempts import Attempts
from gangline.store.database import fill_memory, migrate, named_errors, open_engine, take_turn
from gangline.store.events import Events
from gangline.store.gangs import Gangs
from gangline.store.leases import Leases, Ports
from gangline.store.nodes import Nodes
from gangline.store.passes import Passes
from gangline.store.pools import Pools
from gangline.store.saves import Saves
from gangline.store.scope import Scope
from gangline.store.turn import Turn
from gangline.store.versions import Versions

Listener = Callable[[set[str], set[str]], None]
_log = logging.getLogger(__name__)


class Transaction:
    """The verbs of one transaction, by what they are about. Nothing is seen outside before it commits."""

    def __init__(self, connection: Connection) -> None:
        self._scope = scope = Scope(connection)
        self.gangs = Gangs(scope)
        self.attempts = Attempts(scope)
        self.leases = Leases(scope)
        self.ports = Ports(scope)
        self.nodes = Nodes(scope)
        self.pools = Pools(scope)
        self.passes = Passes(scope)
        self.saves = Saves(scope)
        self.versions = Versions(scope)
        self.events = Events(scope)

    def version(self) -> int:
        """How many transactions have changed what a plan depends on."""
        found = self._scope.scalar(select(schema.counters.c.value).where(schema.counters.c.name == "version"))
        return int(found or 0)

    def touched(self) -> tuple[set[str], set[str]]:
        """The gangs and the nodes this transaction changed."""
        return set(self._scope.gangs), set(self._scope.nodes)

    def moved(self) -> tuple[set[str], set[str]]:
        """Those of them that a plan now sees otherwise."""
        return set(self._scope.moved_gangs), set(self._scope.moved_nodes)

    def finish(self) -> None:
        """Writes what is kept to the end: events in order, the version and the counters."""
        self.events.flush()
        if self._scope.moved:
            self._scope.next("version")
        self._scope.save_counts()


class Store:
    """A database of one server. Transactions run one after another, in any thread, first come first served.

    After each commit every callable in `on_commit` gets the ids of the gangs and the names of the
    nodes it changed, every one in `on_move` those that a plan now sees otherwise. They run in the
    committing thread, in the order of commits and before the next transaction: they must be quick and
    open none. What lives in memory costs no write: `seen_ms` holds when each node was last heard of,
    `reasons` tells why a gang waits, as the last pass saw it.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._turn = Turn()
        self.on_commit: list[Listener] = []
        self.on_move: list[Listener] = []
        self.seen_ms: dict[str, int] = {}
        self.reasons: Callable[[str], Wait | None] = lambda gang: None

    @classmethod
    def open(cls, url: str) -> Self:
        """The store at a database URL, its schema brought up to date.

        Raises Conflict for a schema newer than this release, Unavailable when the database cannot
        be opened or another process has it.
        """
        engine = open_engine(url)
        try:
            with named_errors():
                migrate(engine)
        except BaseException:
            engine.dispose()
            raise
        return cls(engine)

    @classmethod
    def memory(cls) -> Self:
        """The same store in memory: gone when closed."""
        engine = open_engine("sqlite://")
        fill_memory(engine)
        return cls(engine)

    @property
    def engine(self) -> Engine:
        """The engine below, for migrations and fault injection; never for queries."""
        return self._engine

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """All that happens inside is stored on leaving, or nothing when it raises."""
        with self._turn:
            with named_errors(), self._engine.begin() as connection:
                take_turn(connection)
                tx = Transaction(connection)
                yield tx
                tx.finish()
            _tell(self.on_move, *tx.moved())
            _tell(self.on_commit, *tx.touched())

    def version(self) -> int:
        """The number a plan is based on; it grows with every change that a plan must heed."""
        with self.transaction() as tx:
            return tx.version()

    def close(self) -> None:
        """Lets go of the database."""
        with self._turn:
            self._engine.dispose()


def _tell(listeners: Sequence[Listener], gangs: set[str], nodes: set[str]) -> None:
    if not gangs and not nodes:
        return
    for listener in tuple(listeners):
        try:
            listener(gangs, nodes)
        except Exception:  # noqa: BLE001 - the commit stands; a deaf listener must not undo that for the caller
            _log.exception("a listener of the store failed")
