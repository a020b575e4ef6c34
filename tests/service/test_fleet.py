"""The inventory follows the fleet file."""

from __future__ import annotations

from service_world import FLEET, World

from gangline.model.fleet import Fleet
from gangline.model.states import NodeLifecycle
from gangline.service import fleet, loop, nodes, views
from gangline.store import Store


def names(store: Store) -> list[str]:
    return [node.node for node in views.nodes(store)]


def make(*listed: dict[str, object], **pool: object) -> Fleet:
    pools = [{"name": "p", "gpu": "H100:2", "min": 4, "max": 6, "emulated": True, **pool}]
    return Fleet.parse({"pools": pools, "nodes": list(listed)})


def test_every_node_has_an_address_of_its_own_for_good(world: World) -> None:
    before = {node.node: node.address for node in views.nodes(world.store)}
    assert list(before.values()) == ["127.0.0.2", "127.0.0.3", "127.0.0.4", "127.0.0.5"]
    fleet.sync_fleet(world.store, make(min=2), now_ms=world.now_ms)
    fleet.sync_fleet(world.store, FLEET, now_ms=world.now_ms)
    assert {node.node: node.address for node in views.nodes(world.store)} == before


def test_addresses_go_on_past_one_network(world: World) -> None:
    big = Fleet.parse({"pools": [{"name": "many", "gpu": "cpu", "min": 600, "emulated": True}]})
    fleet.sync_fleet(world.store, big, now_ms=world.now_ms)
    addresses = [node.address for node in views.nodes(world.store)]
    assert len(set(addresses)) == 600
    assert all(0 < int(address.rsplit(".", 1)[1]) < 255 for address in addresses)


def test_syncing_the_same_file_again_changes_nothing(world: World) -> None:
    before = world.store.version()
    fleet.sync_fleet(world.store, FLEET, now_ms=world.now_ms)
    assert world.store.version() == before


def test_a_removed_node_leaves_when_it_is_idle(world: World) -> None:
    gang = world.submit(size=4)
    world.run(gang)
    fleet.sync_fleet(world.store, make(min=2), now_ms=world.now_ms)
    assert names(world.store) == ["p-1", "p-2", "p-3", "p-4"]
    assert views.nodes(world.store)[3].drain is not None
    world.exit_all(gang)
    from gangline.model.orders import Empty

    world.everywhere(gang, Empty)
    fleet.sync_fleet(world.store, make(min=2), now_ms=world.now_ms)
    assert names(world.store) == ["p-1", "p-2"]


def test_declared_conditions_drain_and_other_owners_drains_stay(world: World) -> None:
    listed = [{"name": "p-1", "pool": "p", "state": "quarantined"}, {"name": "p-2", "pool": "p"},
              {"name": "p-3", "pool": "p", "state": "booting"}, {"name": "p-4", "pool": "p", "state": "gone"}]
    nodes.drain(world.store, "p-2", "alice", "disk", now_ms=world.now_ms)
    fleet.sync_fleet(world.store, make(*listed), now_ms=world.now_ms)
    found = {node.node: node for node in views.nodes(world.store)}
    assert list(found) == ["p-1", "p-2", "p-3"]
    assert found["p-1"].drain is not None
    assert found["p-1"].drain.owner == "fleet"
    assert found["p-2"].drain is not None
    assert found["p-2"].drain.owner == "alice"
    assert found["p-3"].lifecycle is NodeLifecycle.READY  # its supervisor answers: the file is behind
    fleet.sync_fleet(world.store, FLEET, now_ms=world.now_ms)
    found = {node.node: node for node in views.nodes(world.store)}
    assert found["p-1"].drain is None
    assert found["p-2"].drain is not None


def test_pools_grow_by_booting_nodes_up_to_their_most(world: World) -> None:
    pool = FLEET.pools[0]
    assert fleet.provision(world.store, pool, 5, now_ms=world.now_ms) == ("p-5", "p-6")
    assert fleet.provision(world.store, pool, 1, now_ms=world.now_ms) == ()
    state = {n.name: n for n in loop.snapshot(world.store, FLEET, now_ms=world.now_ms).nodes}["p-5"]
    assert not state.usable
    assert state.usable_ms == world.now_ms + 60_000
    assert loop.snapshot(world.store, FLEET, now_ms=world.now_ms).pools[0].nodes == 6
    world.hello("p-5")
    state = {n.name: n for n in loop.snapshot(world.store, FLEET, now_ms=world.now_ms).nodes}["p-5"]
    assert state.usable
    assert state.usable_ms == 0
    fleet.sync_fleet(world.store, FLEET, now_ms=world.now_ms)
    assert len(names(world.store)) == 6
    kinds = [event.kind for event in views.events_after(world.store, None, 0)]
    assert "capacity.requested" in kinds


def test_a_leased_node_keeps_its_kind_until_it_is_idle(world: World) -> None:
    gang = world.submit(size=1)
    world.run(gang)
    fleet.sync_fleet(world.store, make(gpu="B300:8"), now_ms=world.now_ms)
    kinds = [(node.gpu_type, node.gpu_count) for node in views.nodes(world.store)]
    assert kinds == [("H100", 2), ("B300", 8), ("B300", 8), ("B300", 8)]
