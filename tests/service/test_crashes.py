"""The server is killed at every write of a transaction: afterwards it has happened whole or not at all."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from service_world import World, check_invariants
from sqlalchemy import event

from gangline.model.orders import Empty, RankExit, Ready
from gangline.model.states import Cause
from gangline.service import nodes
from gangline.store import Store

Act = Callable[[World], Any]
DIED, FIRST, SECOND = 42, "g-000000000002", "g-000000000004"


@dataclass
class Scene:
    """A database in a known state, copied for each try."""

    base: Path
    world: World

    def played(self, act: Act, at: int) -> tuple[bool, Any]:
        """Whether `act`, in a fork that dies at write number `at`, came to its end; what is stored then."""
        path = self.base.with_name(f"try-{at}.db")
        shutil.copy(self.base, path)
        child = os.fork()
        if child == 0:
            code = 7
            try:
                world = self._opened(path)
                _die_at(world.store, at)
                act(world)
                code = 0
            finally:
                os._exit(code)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert code in (0, DIED), f"the child failed with {code}"
        world = self._opened(path)
        try:
            return code == 0, picture(world.store)
        finally:
            world.store.close()

    def _opened(self, path: Path) -> World:
        world = copy(self.world)
        world.store = Store.open(f"sqlite:///{path}")
        return world


def picture(store: Store) -> tuple[Any, ...]:
    """What can be told apart from outside, after a check of the invariants."""
    check_invariants(store)
    with store.transaction() as tx:
        gangs = tuple((g.id, g.state, g.attempt, g.active, g.owner) for g in tx.gangs.listed((), None, 100))
        return gangs, tx.leases.all_open(), len(tx.events.after(0)), tx.version()


def _die_at(store: Store, at: int) -> None:
    writes = 0

    def count() -> None:
        nonlocal writes
        writes += 1
        if writes == at:
            os._exit(DIED)

    @event.listens_for(store.engine, "after_cursor_execute")
    def _after(_c: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
        if not statement.lstrip().upper().startswith(("SELECT", "BEGIN")):
            count()

    @event.listens_for(store.engine, "commit")
    def _commit(_connection: Any) -> None:
        count()


def nothing(world: World) -> None:
    pass


def queued(world: World) -> None:
    world.submit("dag/a", retries={"user": 1})
    world.submit("dag/b")


def assembling(world: World) -> None:
    queued(world)
    world.plan()
    world.report(world.view(FIRST).attempts[0].nodes[0].node, Ready(**world.about(FIRST)))


def running(world: World) -> None:
    queued(world)
    world.run(FIRST)


def draining(world: World) -> None:
    running(world)
    world.exit(FIRST, 0, Cause.USER)
    world.report(world.view(FIRST).attempts[0].nodes[0].node, Empty(**world.about(FIRST)))


def preempted(world: World) -> None:
    running(world)
    makes_room(world)
    world.report(world.view(FIRST).attempts[0].nodes[0].node, Empty(**world.about(FIRST)))


def elastic(world: World) -> None:
    world.submit("dag/a", size="1..2")
    world.run(FIRST)


def shrinking(world: World) -> None:
    elastic(world)
    shrinks(world)
    world.report(world.view(FIRST).attempts[0].nodes[0].node, Empty(**world.about(FIRST)))


def makes_room(world: World) -> None:
    assert world.preempt(FIRST, SECOND)


def shrinks(world: World) -> None:
    assert world.resize(FIRST, 1, world.view(FIRST).attempts[0].nodes[1].node)


def submit_one(world: World) -> None:
    world.submit("dag/c", volumes={"/ckpt": "sft"})


def last_empty(world: World) -> None:
    world.report(world.view(FIRST).attempts[0].nodes[1].node, Empty(**world.about(FIRST)))


def last_ready(world: World) -> None:
    world.report(world.view(FIRST).attempts[0].nodes[1].node, Ready(**world.about(FIRST)))


def rank_fails(world: World) -> None:
    about = world.about(FIRST)
    world.report(world.view(FIRST).attempts[0].nodes[0].node,
                 RankExit(**about, rank=0, cause=Cause.SUCCESS), RankExit(**about, rank=1, cause=Cause.USER))


def node_is_lost(world: World) -> None:
    nodes.node_lost(world.store, world.view(FIRST).attempts[0].nodes[0].node, "died", now_ms=world.now_ms)


def epoch_moves_on(world: World) -> None:
    world.submit("dag/a", 1)


@pytest.mark.parametrize(("prepare", "act"), [
    (nothing, submit_one), (queued, World.plan), (assembling, last_ready), (running, rank_fails),
    (draining, last_empty), (running, makes_room), (preempted, last_empty), (elastic, shrinks), (shrinking, last_empty),
    (running, node_is_lost), (running, epoch_moves_on)],
    ids=lambda value: value.__name__)
def test_a_kill_at_any_write_leaves_a_whole_transaction_or_none(
        tmp_path: Path, prepare: Act, act: Act) -> None:
    world = World(Store.open(f"sqlite:///{tmp_path / 'base.db'}"), tmp_path / "volumes")
    prepare(world)
    before = picture(world.store)
    world.store.close()
    scene = Scene(tmp_path / "base.db", world)
    for at in range(1, 100):
        done, now = scene.played(act, at)
        if done:
            assert now != before
            break
        assert now == before, f"half a transaction after write {at}"
    else:
        pytest.fail("it never came to an end")
    assert at > 5


def test_what_was_acknowledged_is_there_for_the_next_server(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'base.db'}"
    world = World(Store.open(url), tmp_path / "volumes")
    scene = Scene(tmp_path / "base.db", world)
    queued(world)
    world.store.close()
    child = os.fork()
    if child == 0:
        try:
            world.store = Store.open(url)
            world.run(SECOND)
        finally:
            os._exit(DIED)  # neither closed nor committed in any orderly way
    os.waitpid(child, 0)
    again = scene._opened(tmp_path / "base.db")
    assert again.view(FIRST).state == "placed"
    assert again.view(SECOND).state == "running"
    assert again.submit("dag/b") == SECOND
    again.store.close()
