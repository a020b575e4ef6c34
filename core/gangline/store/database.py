"""One engine per database: the only place that knows a dialect, and where driver errors get names."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any

from sqlalchemy import Connection, Engine, StaticPool, create_engine, event, inspect, make_url, select, text
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from gangline.model.errors import Bug, Conflict, Rejected, Unavailable
from gangline.store import schema

_SAYS = (
    ("disk is full", "the disk of the database is full", "free space there"),
    ("readonly", "the database cannot be written", "check the owner and mode of the file and its folder"),
    ("unable to open", "the database file cannot be opened", "check that its folder exists and is yours"),
    ("locked", "another process has the database open", "stop the other gangline server first"),
    ("disk i/o", "the disk of the database fails", "check the disk and the kernel log"),
    ("malformed", "the database file is damaged", "restore it from a backup"),
    ("not a database", "the file is not a database", "move it away or name another one"),
)


def open_engine(url: str) -> Engine:
    """An engine whose transactions are serialised and durable; Rejected for a URL it cannot use."""
    try:
        parsed = make_url(url)
    except SQLAlchemyError:
        raise Rejected(f"{url!r} is not a database URL", fix="write sqlite:////path/to/file") from None
    if parsed.get_backend_name() == "sqlite":
        _make_private(parsed.database)
        return _sqlite(url)
    try:
        return create_engine(url, isolation_level="READ COMMITTED")
    except (SQLAlchemyError, ImportError) as exc:
        raise Rejected(f"no driver for this database: {exc}", fix="install the driver it needs") from None


def _make_private(path: str | None) -> None:
    """A new database file is its owner's alone; one that exists is left as it is."""
    if path and path != ":memory:" and not path.startswith("file:"):
        # Where it cannot be made, opening it says so with better words.
        with suppress(OSError):
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))


def _sqlite(url: str) -> Engine:
    # One connection and an exclusive lock: SQLite before 3.51.3 can corrupt a WAL that two connections
    # write and checkpoint (its WAL-reset bug), and a second server must find the door shut.
    engine = create_engine(url, poolclass=StaticPool,
                           connect_args={"check_same_thread": False, "timeout": 1.0})

    @event.listens_for(engine, "connect")
    def _prepare(connection: Any, _record: object) -> None:
        connection.isolation_level = None  # the driver must not begin transactions of its own
        for pragma in ("locking_mode=EXCLUSIVE", "journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"):
            connection.execute(f"PRAGMA {pragma}").close()

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    return engine


def take_turn(connection: Connection) -> None:
    """Makes transactions of several servers run one after another, so event numbers have no gaps."""
    if connection.dialect.name != "sqlite":  # SQLite's BEGIN IMMEDIATE has done it
        connection.execute(select(schema.counters.c.value).where(schema.counters.c.name == "version")
                           .with_for_update())


def fill_memory(engine: Engine) -> None:
    """The schema in a new memory database. Migrated once per process; the others are copies of that one."""
    with engine.connect() as connection:
        driver = connection.connection.driver_connection
    if driver is not None:
        driver.deserialize(_blank())


@cache
def _blank() -> bytes:
    engine = _sqlite("sqlite://")
    try:
        migrate(engine)
        with engine.connect() as connection:
            driver = connection.connection.driver_connection
        return b"" if driver is None else bytes(driver.serialize())
    finally:
        engine.dispose()


@contextmanager
def named_errors() -> Iterator[None]:
    """Turns what the driver raises into our errors, with what to do about it."""
    try:
        yield
    except DBAPIError as exc:
        raise _named(exc.orig if exc.orig is not None else exc) from exc
    except sqlite3.Error as exc:
        raise _named(exc) from exc


def _named(cause: BaseException) -> Unavailable | Bug:
    message = str(cause)
    for part, meaning, fix in _SAYS:
        if part in message.lower():
            return Unavailable(meaning, fix=fix)
    if isinstance(cause, sqlite3.IntegrityError) or "violates" in message:
        return Bug(f"a rule of the store was broken: {message}")
    return Unavailable(f"the database does not answer: {message}")


def migrate(engine: Engine) -> None:
    """Brings the schema up to this release; Conflict for one that a newer release wrote."""
    with engine.begin() as connection:
        found = _revision(connection)
        if found == schema.REVISIONS[-1]:
            return
        if found is not None and found not in schema.REVISIONS:
            raise Conflict(f"the database has schema {found}, newer than this gangline "
                           f"({schema.REVISIONS[-1]})", fix="upgrade gangline, or use another home")
        _upgrade(connection)


def _revision(connection: Connection) -> str | None:
    if not inspect(connection).has_table("alembic_version"):
        return None
    return connection.execute(text("SELECT version_num FROM alembic_version")).scalar()


def _upgrade(connection: Connection) -> None:
    # Imported here because a database that is up to date, the usual case, must open fast.
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", "gangline.store:migrations")
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
