"""What the planner decides about running gangs, carried out by the service: nobody holds what nobody may."""

from __future__ import annotations

from pathlib import Path

import pytest
from service_world import World, check_invariants, fresh_store

from gangline.model.fleet import Fleet
from gangline.model.orders import Empty, OrderPhase, Ready, Started
from gangline.model.states import Cause, GangState
from gangline.plan.check import check
from gangline.plan.planner import plan
from gangline.service import loop, nodes
from gangline.service.facts import policy_of


def fleet(**pool: int) -> Fleet:
    return Fleet.parse({
        "pools": [{"name": "p", "gpu": "H100:2", "min": 4, "max": 4, "emulated": True, "fabric": "ib", "zone": "z",
                   **pool}],
        "scheduling": {"min_runtime": "10s", "cool_down": "10s", "resize_every": "10s"}})


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(fresh_store(), tmp_path, fleet())


def passes(world: World) -> None:
    """Passes, as the server makes them, and nodes that do as they are told, until nothing changes."""
    for _ in range(6):
        world.later(1)
        seen = loop.snapshot(world.store, world.fleet, now_ms=world.now_ms)
        decided = plan(seen, policy_of(world.fleet.scheduling), world.now_ms)
        assert check(seen, decided) == ()
        loop.commit_plan(world.store, decided, now_ms=world.now_ms)
        check_invariants(world.store)
        for _ in range(2):
            for node in world.incarnations:
                for order in world.orders(node):
                    about = {"gang": order.gang, "attempt": order.attempt, "generation": order.generation}
                    kind = {OrderPhase.ASSEMBLE: Ready, OrderPhase.START: Started, OrderPhase.STOP: Empty}[order.phase]
                    world.report(node, kind(**about))
        check_invariants(world.store)


def end(world: World, gang: str) -> None:
    world.exit_all(gang)
    world.everywhere(gang, Empty)
    assert world.view(gang).state is GangState.SUCCEEDED


def shape(world: World, gang: str) -> tuple[GangState, int, list[Cause]]:
    """State, nodes held, and how its attempts ended."""
    view = world.view(gang)
    return view.state, len(world.leases(gang)), [a.end.cause for a in view.attempts if a.end is not None]


def test_a_gang_makes_room_waits_and_comes_back(world: World) -> None:
    low = world.submit("dag/low", size=3, priority="low")
    passes(world)
    world.later(10)
    high = world.submit("dag/high", size=2, priority="high", name="urgent")
    later = world.submit("dag/later", size=3, priority="low")
    passes(world)
    assert shape(world, high) == (GangState.RUNNING, 2, [])
    assert shape(world, low) == (GangState.QUEUED, 0, [Cause.PREEMPTED])
    assert shape(world, later) == (GangState.QUEUED, 0, [])
    end(world, high)
    passes(world)
    assert shape(world, low) == (GangState.RUNNING, 3, [Cause.PREEMPTED]), "it was submitted before the other"
    assert shape(world, later) == (GangState.QUEUED, 0, [])


def test_nobody_is_ended_again_and_again(world: World) -> None:
    low = world.submit("dag/low", size=4, priority="low")
    passes(world)
    high = world.submit("dag/high", size=4, priority="high")
    assert shape(world, low) == (GangState.RUNNING, 4, [])
    passes(world)
    passes(world)
    assert shape(world, low)[2] == [Cause.PREEMPTED]
    assert shape(world, high) == (GangState.RUNNING, 4, [])
    passes(world)
    assert len(world.view(low).attempts) == len(world.view(high).attempts) == 1


def test_an_elastic_gang_shrinks_for_another_and_grows_again(world: World) -> None:
    low = world.submit("dag/low", size="1..4", priority="low")
    passes(world)
    assert shape(world, low) == (GangState.RUNNING, 4, [])
    world.later(10)
    high = world.submit("dag/high", size=2, priority="high")
    before = world.leases(low)
    passes(world)
    assert shape(world, high) == (GangState.RUNNING, 2, [])
    assert shape(world, low) == (GangState.RUNNING, 2, [Cause.RESIZED])
    assert world.leases(low).items() < before.items(), "it went on with leases that it had"
    end(world, high)
    world.later(10)
    passes(world)
    assert shape(world, low) == (GangState.RUNNING, 4, [Cause.RESIZED, Cause.RESIZED])


def test_an_elastic_gang_that_loses_a_node_goes_on_with_the_others(world: World) -> None:
    low = world.submit("dag/low", size="2..4", priority="low")
    passes(world)
    held = world.leases(low)
    nodes.node_lost(world.store, "p-2", "died", now_ms=world.now_ms)
    world.incarnations.pop("p-2")
    passes(world)
    assert shape(world, low) == (GangState.RUNNING, 3, [Cause.LOST])
    assert world.leases(low) == {node: lease for node, lease in held.items() if node != "p-2"}


def test_a_spare_completes_a_hurt_gang_that_keeps_the_rest(tmp_path: Path) -> None:
    world = World(fresh_store(), tmp_path, fleet(spares=1))
    hurt, other = world.submit("dag/hurt", size=3), world.submit("dag/other", size=1)
    passes(world)
    assert shape(world, other) == (GangState.QUEUED, 0, []), "the spare is for repairs"
    held = world.leases(hurt)
    [spare] = {"p-1", "p-2", "p-3", "p-4"} - set(held)
    bad = sorted(held)[1]
    world.exit(hurt, next(r.rank for r in world.view(hurt).ranks if r.node == bad), Cause.HARDWARE)
    passes(world)
    assert shape(world, hurt) == (GangState.RUNNING, 3, [Cause.HARDWARE])
    now = world.leases(hurt)
    assert set(now) == {*held, spare} - {bad}
    assert all(now[node] == lease for node, lease in held.items() if node != bad)
