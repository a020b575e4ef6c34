"""Sizes asked of pools: whole gangs go on, idle nodes go first, and what persons drained is theirs."""

from __future__ import annotations

import pytest
from service_world import FLEET, World, spec

from gangline.model.errors import Conflict, NotFound, Rejected
from gangline.model.fleet import Fleet
from gangline.model.inventory import Scaled
from gangline.model.orders import Empty
from gangline.model.states import NodeLifecycle
from gangline.service import feasible, fleet, loop, nodes, views


def names(world: World) -> list[str]:
    return [node.node for node in views.nodes(world.store)]


def drains(world: World) -> dict[str, str]:
    return {node.node: node.drain.owner for node in views.nodes(world.store) if node.drain is not None}


def scale(world: World, wanted: int | None, *, fleet_: Fleet = FLEET, dry_run: bool = False) -> Scaled:
    return fleet.scale(world.store, fleet_, "p", wanted, now_ms=world.now_ms, dry_run=dry_run)


def tend(world: World, memory: fleet.Tending | None = None) -> int | None:
    return fleet.tend(world.store, world.fleet, memory or fleet.Tending(), now_ms=world.now_ms)


def sync(world: World, fleet_: Fleet = FLEET) -> None:
    fleet.sync_fleet(world.store, fleet_, now_ms=world.now_ms)


def wide(**pool: object) -> Fleet:
    return Fleet.parse({"pools": [{"name": "p", "gpu": "H100:2", "min": 1, "max": 6, "emulated": True, **pool}],
                        "nodes": [{"name": f"p-{i}", "pool": "p", "path": [f"leaf-{i}"]} for i in range(1, 5)]})


@pytest.fixture
def four(world: World) -> World:
    """Four declared nodes in a pool of one to six."""
    world.fleet = wide()
    sync(world, world.fleet)
    return world


def end(world: World, gang: str) -> None:
    world.exit_all(gang)
    world.everywhere(gang, Empty)


def test_growing_asks_for_nodes_at_once(four: World) -> None:
    scaled = scale(four, 6, fleet_=wide())
    assert (scaled.added, scaled.missing) == (("p-5", "p-6"), 0)
    assert [n.lifecycle for n in views.nodes(four.store)][4:] == [NodeLifecycle.BOOTING] * 2
    assert scale(four, 6, fleet_=wide()).added == ()


def test_shrinking_an_idle_pool_takes_the_last_nodes(four: World) -> None:
    scaled = scale(four, 2, fleet_=wide())
    assert scaled.gone == ("p-4", "p-3")
    assert names(four) == ["p-1", "p-2"]


def test_booting_nodes_go_before_ready_ones(four: World) -> None:
    scale(four, 5, fleet_=wide())
    assert scale(four, 3, fleet_=wide()).gone == ("p-5", "p-4")


def test_what_was_scaled_away_stays_away_through_a_sync_and_returns_with_its_place(four: World) -> None:
    scale(four, 2, fleet_=wide())
    sync(four, wide())
    assert names(four) == ["p-1", "p-2"]
    assert scale(four, 4, fleet_=wide()).added == ("p-3", "p-4")
    found = {node.node: node for node in views.nodes(four.store)}
    assert found["p-4"].path == ("leaf-4",)
    assert found["p-4"].lifecycle is NodeLifecycle.BOOTING
    four.hello("p-4")
    sync(four, wide())
    assert [node.lifecycle for node in views.nodes(four.store)][3] is NodeLifecycle.READY
    with four.store.transaction() as tx:
        assert {node.origin for node in tx.nodes.all()} == {"file"}


def test_busy_nodes_leave_with_their_gang_and_few_gangs_lose_any(four: World) -> None:
    first = four.submit("a", size=2)
    four.run(first)
    second = four.submit("b", size=2)
    four.run(second)
    scaled = scale(four, 2, fleet_=wide())
    assert scaled.leaving == ("p-4", "p-3"), "one gang's, not one of each"
    assert drains(four) == {"p-3": "scale", "p-4": "scale"}
    tend(four)
    assert names(four) == ["p-1", "p-2", "p-3", "p-4"]
    end(four, second)
    tend(four)
    assert names(four) == ["p-1", "p-2"]
    assert four.view(first).state == "running"


def test_growing_again_takes_the_leaving_back_first(four: World) -> None:
    gang = four.submit(size=4)
    four.run(gang)
    assert len(scale(four, 1, fleet_=wide()).leaving) == 3
    assert scale(four, 3, fleet_=wide()).back == ("p-2", "p-3")
    assert drains(four) == {"p-4": "scale"}
    assert scale(four, None, fleet_=wide()).back == ("p-4",)
    assert drains(four) == {}


def test_without_a_wish_the_file_s_nodes_are_there_again(four: World) -> None:
    open_ended = wide(max=None)
    scale(four, 2, fleet_=open_ended)
    sync(four, open_ended)
    assert names(four) == ["p-1", "p-2"]
    assert scale(four, None, fleet_=open_ended).added == ("p-3", "p-4")
    assert scale(four, None, fleet_=open_ended).added == ()
    scale(four, 2, fleet_=open_ended)
    with four.store.transaction() as tx:
        tx.pools.want("p", None, four.now_ms)
    sync(four, open_ended)
    assert len(names(four)) == 4


def test_while_leaving_nodes_are_there_the_most_holds(four: World) -> None:
    gang = four.submit(size=4)
    four.run(gang)
    full = wide(max=4)
    four.fleet = full
    scale(four, 2, fleet_=full)
    nodes.drain(four.store, "p-4", "alice", "disk", now_ms=four.now_ms)
    assert drains(four) == {"p-4": "alice", "p-3": "scale"}, "a person's drain stands above the fleet's own"
    tend(four)
    assert drains(four) == {"p-4": "alice", "p-3": "scale", "p-2": "scale"}
    end(four, gang)
    tend(four)
    assert names(four) == ["p-1", "p-4"]


def test_nodes_that_persons_drained_are_never_chosen(four: World) -> None:
    for name in ("p-2", "p-3", "p-4"):
        nodes.drain(four.store, name, "alice", "disk", now_ms=four.now_ms)
    scaled = scale(four, 1, fleet_=wide())
    assert (scaled.gone, scaled.kept) == (("p-1",), 2)
    nodes.undrain(four.store, "p-3", "alice", now_ms=four.now_ms)
    tend(four)
    assert names(four) == ["p-2", "p-4"]
    assert drains(four) == {"p-2": "alice", "p-4": "alice"}


def test_a_dry_run_tells_the_same_and_does_nothing(four: World) -> None:
    before = four.store.version()
    told = scale(four, 2, fleet_=wide(), dry_run=True)
    assert (told.gone, told.dry_run) == (("p-4", "p-3"), True)
    assert len(names(four)) == 4
    assert four.store.version() == before
    assert scale(four, 2, fleet_=wide()).model_copy(update={"dry_run": True}) == told


def test_a_size_outside_of_the_pool_s_is_refused(four: World) -> None:
    with pytest.raises(Rejected, match="between 1 and 6 nodes, not 7"):
        scale(four, 7, fleet_=wide())
    with pytest.raises(Rejected, match="between 1 and 6"):
        scale(four, 0, fleet_=wide())
    with pytest.raises(NotFound, match="no pool q"):
        fleet.scale(four.store, wide(), "q", 2, now_ms=four.now_ms)


def test_a_pool_without_max_can_have_all_the_file_declares(four: World) -> None:
    open_ended = wide(max=None)
    assert scale(four, 3, fleet_=open_ended).gone == ("p-4",)
    assert scale(four, 4, fleet_=open_ended).added == ("p-4",)


def test_a_sized_pool_grows_by_no_demand(four: World) -> None:
    scale(four, 2, fleet_=wide())
    assert fleet.provision(four.store, wide().pools[0], 3, now_ms=four.now_ms) == ()
    pool = loop.snapshot(four.store, wide(), now_ms=four.now_ms).pools[0]
    assert (pool.nodes, pool.least, pool.most) == (2, 2, 2)
    scale(four, None, fleet_=wide())
    assert fleet.provision(four.store, wide().pools[0], 9, now_ms=four.now_ms) == ("p-5", "p-6")


def test_a_gang_for_the_whole_pool_may_wait_for_its_size(four: World) -> None:
    open_ended = wide(max=None)
    for fleet_, size in ((wide(), 6), (open_ended, 4)):
        scale(four, 2, fleet_=fleet_)
        shown = loop.snapshot(four.store, fleet_, now_ms=four.now_ms)
        judge = feasible.judge(lambda shown=shown: shown, fleet_)
        assert judge(spec(size=size)) is None
        assert judge(spec(size=7)) is not None


def test_a_wish_is_bent_by_a_new_file_and_ends_with_its_pool(four: World) -> None:
    scale(four, 5, fleet_=wide())
    sync(four, wide(max=4))
    pool = loop.snapshot(four.store, wide(max=4), now_ms=four.now_ms).pools[0]
    assert (pool.least, pool.most) == (4, 4)
    sync(four, Fleet.parse({"pools": [{"name": "q", "gpu": "H100:2", "min": 1, "emulated": True}]}))
    with four.store.transaction() as tx:
        assert tx.pools.wanted() == {}


def test_owners_of_the_fleet_s_own_drains_are_nobody_s_name(four: World) -> None:
    for owner in ("scale", "fleet"):
        with pytest.raises(Rejected, match="stands for the fleet's own drains"):
            nodes.drain(four.store, "p-1", owner, "", now_ms=four.now_ms)
    gang = four.submit(size=4)
    four.run(gang)
    scale(four, 3, fleet_=wide())
    with pytest.raises(Conflict, match=r"was drained by scale.*gangline fleet scale p N"):
        nodes.undrain(four.store, "p-4", "alice", now_ms=four.now_ms)
    end(four, gang)
