"""The store itself: transactions, threads, errors with names, schema versions, a faithful migration."""

from __future__ import annotations

import sqlite3
import stat
import threading
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy.dialects import postgresql
from sqlalchemy.schema import CreateIndex, CreateTable

import gangline.store
from gangline.model.errors import Bug, Conflict, NotFound, Rejected, Unavailable
from gangline.model.states import NodeLifecycle
from gangline.store import Node, Store, Transaction, schema
from gangline.store.columns import plain_json


def url(path: Path) -> str:
    return f"sqlite:///{path}"


def node(name: str, ordinal: int = 1) -> Node:
    return Node(name=name, ordinal=ordinal, pool="p", engine="local", host="localhost", gpu_type="cpu",
                gpu_count=1, zone="z", fabric=None, path=("leaf",), address=f"127.0.0.{ordinal + 1}",
                emulated=False, origin="file", lifecycle=NodeLifecycle.READY,
                price_nano_per_gpu_hour=7_100_000_000, currency="USD")


def names(store: Store) -> list[str]:
    with store.transaction() as tx:
        return [known.name for known in tx.nodes.all()]


def test_what_was_stored_is_there_after_opening_again(tmp_path: Path) -> None:
    store = Store.open(url(tmp_path / "db"))
    with store.transaction() as tx:
        tx.nodes.add(node("a"))
        tx.events.add("node.joined", 5, node="a")
    store.close()
    again = Store.open(url(tmp_path / "db"))
    with again.transaction() as tx:
        assert tx.nodes.get("a") == node("a")
        assert [(e.seq, e.at_ms, e.kind, e.data) for e in tx.events.after(0)] == [
            (1, 5, "node.joined", {"node": "a"})]
    again.close()


def test_a_transaction_that_raises_leaves_nothing(tmp_path: Path) -> None:
    store = Store.open(url(tmp_path / "db"))
    told: list[set[str]] = []
    store.on_commit.append(lambda gangs, nodes: told.append(nodes))

    def fail_inside() -> None:
        with store.transaction() as tx:
            tx.nodes.add(node("a"))
            tx.events.add("x", 1)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_inside()
    assert names(store) == []
    assert store.version() == 0
    assert told == []
    with store.transaction() as tx:
        tx.nodes.add(node("a"))
        tx.events.add("y", 1)
    with store.transaction() as tx:
        assert [event.seq for event in tx.events.after(0)] == [1]
    assert told == [{"a"}]
    store.close()


def test_the_version_counts_transactions_that_matter_to_a_plan() -> None:
    store = Store.memory()
    with store.transaction() as tx:
        tx.nodes.add(node("a"))
        tx.nodes.add(node("b", 2))
    assert store.version() == 1
    with store.transaction() as tx:
        tx.events.add("nothing", 1)
        assert tx.version() == 1
    assert store.version() == 1
    store.close()


def test_a_transaction_inside_another_is_a_bug() -> None:
    store = Store.memory()
    with store.transaction(), pytest.raises(Bug), store.transaction():
        pass
    assert names(store) == []
    store.close()


def test_threads_take_turns(tmp_path: Path) -> None:
    store = Store.open(url(tmp_path / "db"))
    errors: list[Exception] = []

    def add(first: int) -> None:
        try:
            for i in range(first, first + 10):
                with store.transaction() as tx:
                    tx.nodes.add(node(f"n{i:03}", tx.nodes.next_ordinal()))
                    tx.events.add("added", i)
        except Exception as exc:  # noqa: BLE001 - the assertion below must see it
            errors.append(exc)

    threads = [threading.Thread(target=add, args=(10 * i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    with store.transaction() as tx:
        assert [event.seq for event in tx.events.after(0)] == list(range(1, 41))
        assert len({known.address for known in tx.nodes.all()}) == 40
    assert store.version() == 40
    store.close()


def test_a_listener_that_fails_undoes_nothing_and_hides_nobody() -> None:
    store = Store.memory()
    told: list[set[str]] = []
    store.on_commit += [lambda gangs, nodes: 1 / 0, lambda gangs, nodes: told.append(nodes)]  # type: ignore[list-item, func-returns-value]
    with store.transaction() as tx:
        tx.nodes.add(node("a"))
    assert names(store) == ["a"]
    assert told == [{"a"}]
    store.close()


def test_a_second_server_finds_the_door_shut(tmp_path: Path) -> None:
    store = Store.open(url(tmp_path / "db"))
    with pytest.raises(Unavailable, match="another process"):
        Store.open(url(tmp_path / "db"))
    assert names(store) == []
    store.close()
    Store.open(url(tmp_path / "db")).close()


def test_durability_is_what_it_should_be(tmp_path: Path) -> None:
    store = Store.open(url(tmp_path / "db"))
    with store.engine.connect() as connection:
        def pragma(name: str) -> object:
            return connection.exec_driver_sql(f"PRAGMA {name}").scalar()

        assert (pragma("journal_mode"), pragma("synchronous"), pragma("foreign_keys")) == ("wal", 2, 1)
    store.close()


def test_a_full_disk_refuses_new_work_and_loses_nothing(tmp_path: Path) -> None:
    store = Store.open(url(tmp_path / "db"))
    with store.transaction() as tx:
        tx.nodes.add(node("a"))
    with store.engine.connect() as connection:
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar()
        connection.exec_driver_sql(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(Unavailable, match="disk of the database is full"), store.transaction() as tx:
        tx.events.add("filler", 1, text="x" * 1_000_000)
    assert names(store) == ["a"]
    with store.engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA max_page_count = 1000000")
    with store.transaction() as tx:
        tx.nodes.add(node("b", 2))
    assert names(store) == ["a", "b"]
    store.close()


def test_a_database_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    path = tmp_path / "db"
    Store.open(url(path)).close()
    store = Store.open(url(path))
    with store.engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA query_only = ON")
    with pytest.raises(Unavailable, match="cannot be written"), store.transaction() as tx:
        tx.nodes.add(node("a"))
    store.close()


def test_what_cannot_be_opened_is_named(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="cannot be opened"):
        Store.open(url(tmp_path / "no" / "such" / "folder" / "db"))
    with pytest.raises(Rejected, match="not a database URL"):
        Store.open("not a url")
    with pytest.raises(Rejected, match="driver"):
        Store.open("nosuchdatabase://x/y")
    (tmp_path / "text").write_text("hello, this is no database at all" * 100)
    with pytest.raises(Unavailable, match="not a database"):
        Store.open(url(tmp_path / "text"))


def test_a_newer_schema_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "db"
    Store.open(url(path)).close()
    with sqlite3.connect(path) as raw:
        raw.execute("UPDATE alembic_version SET version_num = '9999'")
    raw.close()
    before = path.read_bytes()
    with pytest.raises(Conflict, match=r"9999.*upgrade gangline"):
        Store.open(url(path))
    assert path.read_bytes() == before


def test_the_migrations_make_exactly_the_tables_the_code_expects() -> None:
    store = Store.memory()
    with store.engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, schema.metadata) == []
    store.close()


def test_the_code_knows_every_migration() -> None:
    folder = Path(gangline.store.__file__).parent / "migrations"
    script = ScriptDirectory(str(folder))
    known = [revision.revision for revision in script.walk_revisions()]
    assert tuple(reversed(known)) == schema.REVISIONS


def test_the_schema_is_portable() -> None:
    dialect = postgresql.dialect()
    for table in schema.metadata.sorted_tables:
        assert "CREATE TABLE" in str(CreateTable(table).compile(dialect=dialect))
        for index in table.indexes:
            text = str(CreateIndex(index).compile(dialect=dialect))
            partial = ("ix_members_node_busy", "ix_attempts_hosted")
            assert ("WHERE" in text) == (index.name.startswith("ux_") or index.name in partial)


def test_the_database_keeps_its_own_rules() -> None:
    store = Store.memory()
    with store.transaction() as tx:
        tx.nodes.add(node("a"))
    with pytest.raises(Bug, match="UNIQUE"), store.transaction() as tx:
        tx.nodes.add(node("b"))  # the same ordinal and address
    with pytest.raises(Bug, match="FOREIGN"), store.transaction() as tx:
        tx.ports.take([("h", 1, "g-none", 1)])
    store.close()


def test_what_there_is_not_is_not_found() -> None:
    store = Store.memory()

    def checks(tx: Transaction) -> None:
        for call in (lambda: tx.gangs.get("g"), lambda: tx.nodes.get("n"), lambda: tx.saves.get(1),
                     lambda: tx.versions.get("v", 1)):
            with pytest.raises(NotFound):
                call()

    with store.transaction() as tx:
        checks(tx)
    store.close()


def test_numbers_json_does_not_know_become_words() -> None:
    assert plain_json({"b": [float("nan"), 1.5], "a": float("-inf")}) == '{"a":"-inf","b":["nan",1.5]}'


def test_the_file_is_not_readable_for_others(tmp_path: Path) -> None:
    Store.open(url(tmp_path / "db")).close()
    assert stat.S_IMODE((tmp_path / "db").stat().st_mode) & 0o077 == 0
