"""What becomes due among nodes by itself, and that no drain of a person's is lifted on the way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from service_world import FLEET, World, check_invariants, fresh_store

from gangline.model.errors import GanglineError
from gangline.model.fleet import Fleet
from gangline.model.orders import Empty
from gangline.model.states import NodeLifecycle
from gangline.service import fleet, nodes, submit, views
from gangline.service.backoff import FIRST_MS, LONGEST_MS, Backoff
from gangline.service.picture import Picture


def names(world: World) -> list[str]:
    return [node.node for node in views.nodes(world.store)]


def sync(world: World, *gone: str, **pool: object) -> None:
    world.fleet = declaring(*(f"p-{i}" for i in range(1, 5) if f"p-{i}" not in gone), **pool)
    fleet.sync_fleet(world.store, world.fleet, now_ms=world.now_ms)


def declaring(*listed: str, **pool: object) -> Fleet:
    return Fleet.parse({"pools": [{"name": "p", "gpu": "H100:2", "min": 1, "max": 6, "emulated": True, "boot": "60s",
                                   **pool}],
                        "nodes": [{"name": name, "pool": "p"} for name in listed]})


def events(world: World) -> list[str]:
    return [event.kind for event in views.events_after(world.store, None, 0)]


def test_a_busy_node_the_file_drops_leaves_when_its_gang_ends(world: World) -> None:
    memory = fleet.Tending()
    gang = world.submit(size=4)
    world.run(gang)
    sync(world, "p-4")
    fleet.tend(world.store, world.fleet, memory, now_ms=world.now_ms)
    assert names(world) == ["p-1", "p-2", "p-3", "p-4"]
    world.exit_all(gang)
    world.everywhere(gang, Empty)
    version = world.store.version()
    fleet.tend(world.store, world.fleet, memory, now_ms=world.now_ms)
    assert names(world) == ["p-1", "p-2", "p-3"]
    assert world.store.version() == version + 1
    fleet.tend(world.store, world.fleet, memory, now_ms=world.now_ms)
    assert world.store.version() == version + 1, "nothing due, nothing changed"


def test_a_dropped_node_that_comes_back_to_the_file_serves_again(world: World) -> None:
    gang = world.submit(size=4)
    world.run(gang)
    sync(world, "p-4")
    sync(world)
    assert views.nodes(world.store)[3].drain is None
    world.exit_all(gang)
    world.everywhere(gang, Empty)
    fleet.tend(world.store, world.fleet, fleet.Tending(), now_ms=world.now_ms)
    assert len(names(world)) == 4
    sync(world, "p-4")
    assert len(names(world)) == 3
    sync(world)
    assert len(names(world)) == 4


def test_a_person_s_drain_outlives_its_node(world: World) -> None:
    nodes.drain(world.store, "p-4", "alice", "disk", now_ms=world.now_ms)
    sync(world, "p-4")
    assert names(world) == ["p-1", "p-2", "p-3"]
    assert fleet.provision(world.store, world.fleet.pools[0], 1, now_ms=world.now_ms) == ("p-5",), \
        "a new machine does not take the name"
    sync(world)
    drain = views.nodes(world.store)[3].drain
    assert drain is not None
    assert drain.owner == "alice"
    world.hello("p-4")
    nodes.node_lost(world.store, "p-4", "gone", now_ms=world.now_ms)
    world.hello("p-4")
    assert views.nodes(world.store)[3].drain == drain


def test_a_dropped_busy_node_is_kept_from_work_whoever_undrains_it(world: World) -> None:
    gang = world.submit(size=4)
    world.run(gang)
    nodes.drain(world.store, "p-4", "alice", "disk", now_ms=world.now_ms)
    sync(world, "p-4")
    nodes.undrain(world.store, "p-4", "alice", now_ms=world.now_ms)
    fleet.tend(world.store, world.fleet, fleet.Tending(), now_ms=world.now_ms)
    drain = views.nodes(world.store)[3].drain
    assert drain is not None
    assert (drain.owner, drain.reason) == ("fleet", "no longer in the fleet file")


def test_a_node_that_does_not_boot_fails_and_its_pool_is_left_alone_for_longer_and_longer(world: World) -> None:
    memory = fleet.Tending()
    pool = FLEET.pools[0]

    def ask() -> tuple[str, ...]:
        return fleet.provision(world.store, pool, 2, now_ms=world.now_ms, backoff=memory.backoff)

    def tend() -> int | None:
        return fleet.tend(world.store, world.fleet, memory, now_ms=world.now_ms)

    waits = []
    for _ in range(7):
        assert ask() == ("p-5", "p-6")
        due_ms = tend()
        assert due_ms == world.now_ms + 120_000, "a minute to boot, and as much again"
        world.later(119.9)
        tend()
        assert len(names(world)) == 6
        world.later(0.1)
        again_ms = tend()
        assert again_ms is not None
        assert len(names(world)) == 4
        assert ask() == ()
        waits.append((again_ms - world.now_ms) // 1000)
        world.now_ms = again_ms
        version = world.store.version()
        tend()
        assert world.store.version() > version, "a plan is due again"
    assert waits == [30, 60, 120, 240, 480, 600, 600]
    assert events(world).count("capacity.failed") == 14


def test_a_node_that_comes_ends_the_back_off(world: World) -> None:
    memory = fleet.Tending()
    memory.backoff.failed("p", world.now_ms)
    world.later(31)
    fleet.provision(world.store, FLEET.pools[0], 1, now_ms=world.now_ms, backoff=memory.backoff)
    fleet.tend(world.store, FLEET, memory, now_ms=world.now_ms)
    world.hello("p-5")
    fleet.tend(world.store, FLEET, memory, now_ms=world.now_ms)
    assert memory.backoff.failed("p", world.now_ms) == world.now_ms + FIRST_MS


def test_a_pool_with_a_size_is_asked_again_after_its_back_off(world: World) -> None:
    memory = fleet.Tending()
    fleet.scale(world.store, FLEET, "p", 5, now_ms=world.now_ms)
    world.later(120)
    again_ms = fleet.tend(world.store, FLEET, memory, now_ms=world.now_ms)
    assert len(names(world)) == 4
    assert again_ms == world.now_ms + 30_000
    world.now_ms = again_ms
    fleet.tend(world.store, FLEET, memory, now_ms=world.now_ms)
    assert names(world)[4] == "p-5"


def test_a_declared_node_that_did_not_come_is_asked_for_again(world: World) -> None:
    memory = fleet.Tending()
    sync(world)
    fleet.scale(world.store, world.fleet, "p", 3, now_ms=world.now_ms)
    fleet.scale(world.store, world.fleet, "p", 4, now_ms=world.now_ms)
    world.later(120)
    fleet.tend(world.store, world.fleet, memory, now_ms=world.now_ms)
    assert names(world) == ["p-1", "p-2", "p-3"]
    world.later(30)
    fleet.tend(world.store, world.fleet, memory, now_ms=world.now_ms)
    assert names(world) == ["p-1", "p-2", "p-3", "p-4"]


def test_failures_at_one_time_are_one_failure() -> None:
    backoff = Backoff()
    assert backoff.failed("p", 0) == backoff.failed("p", 10) == FIRST_MS
    assert backoff.holds("p", FIRST_MS - 1)
    assert not backoff.holds("p", FIRST_MS)
    assert not backoff.holds("q", 0)
    at_ms = FIRST_MS
    for _ in range(20):
        at_ms = backoff.failed("p", at_ms)
    assert backoff.failed("p", at_ms) == at_ms + LONGEST_MS
    assert backoff.ended(at_ms + LONGEST_MS) == ("p",)
    assert backoff.ended(at_ms + LONGEST_MS) == ()


NODES = st.sampled_from(["p-1", "p-2", "p-3", "p-4", "p-5"])


class FleetOperations(RuleBasedStateMachine):
    """Operators, the file, sizes, losses and time, in any order."""

    @initialize()
    def begin(self) -> None:
        self.world = World(fresh_store(), Path("/nonexistent"))
        self.memory = fleet.Tending()
        self.drained: dict[str, str] = {}
        self.running: list[str] = []
        self.wanted: int | None = None
        sync(self.world)

    @rule(node=NODES)
    def drain(self, node: str) -> None:
        try:
            nodes.drain(self.world.store, node, "alice", "why", now_ms=self.world.now_ms)
        except GanglineError:
            return
        self.drained[node] = "alice"

    @rule(node=NODES)
    def undrain(self, node: str) -> None:
        try:
            nodes.undrain(self.world.store, node, "alice", now_ms=self.world.now_ms)
        except GanglineError:
            return
        self.drained.pop(node, None)

    @rule(gone=st.sets(NODES, max_size=3))
    def reload(self, gone: set[str]) -> None:
        sync(self.world, *gone)

    @rule(wanted=st.none() | st.integers(1, 6))
    def scale(self, wanted: int | None) -> None:
        fleet.scale(self.world.store, self.world.fleet, "p", wanted, now_ms=self.world.now_ms)
        self.wanted = wanted

    @rule(size=st.integers(1, 3))
    def run_gang(self, size: int) -> None:
        self.boot()
        slot = f"slot-{self.world.made}"
        gang = self.world.submit(slot, size=size, retries={"lost": 0})
        if gang not in self.world.plan().accepted:
            self.world_cancel(gang)
            return
        self.world.order(gang)
        self.running.append(gang)

    def world_cancel(self, gang: str) -> None:
        submit.cancel(self.world.store, gang, None, "enough", now_ms=self.world.now_ms)

    @precondition(lambda self: self.running)
    @rule(which=st.integers(0, 9))
    def end_gang(self, which: int) -> None:
        gang = self.running.pop(which % len(self.running))
        self.world_cancel(gang)
        self.world.everywhere(gang, Empty)

    @rule(seconds=st.sampled_from([1, 30, 130, 700]))
    def tend(self, seconds: int) -> None:
        self.world.later(seconds)
        fleet.tend(self.world.store, self.world.fleet, self.memory, now_ms=self.world.now_ms)

    @rule()
    def boot(self) -> None:
        for node in views.nodes(self.world.store):
            if node.incarnation is None:
                self.world.hello(node.node)

    @invariant()
    def the_picture_knows_whether_anything_is_due(self) -> None:
        picture = Picture(self.world.store, self.world.fleet)
        picture.refresh()
        picture.close()
        with self.world.store.transaction() as tx:
            assert picture.settled == (not tx.nodes.unsettled("scale") and not tx.pools.wanted())

    @invariant()
    def persons_drains_stand(self) -> None:
        with self.world.store.transaction() as tx:
            known = {node.name: node for node in tx.nodes.all()}
            leased = set(tx.leases.busy())
        for node in self.drained:
            assert known[node].drain_owner == "alice"
        assert not any(node.drain_owner == "alice" and name not in self.drained for name, node in known.items())
        assert all(known[name].lifecycle is not NodeLifecycle.GONE for name in leased)

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        while self.running:
            self.end_gang(0)
        self.boot()
        for _ in range(4):  # sizes settle: the last wish is met but for what persons drained
            self.tend(700)
            self.boot()
        check_invariants(self.world.store)
        present = views.nodes(self.world.store)
        if self.wanted is not None:
            fixed = sum(node.node in self.drained for node in present)
            assert len(present) == max(self.wanted, fixed)
        declared = {node.name for node in self.world.fleet.nodes}
        assert not any(node.drain and node.drain.owner in ("fleet", "scale") for node in present)
        assert all(node.node in declared or node.node.startswith("p-") for node in present)


def test_operations_in_any_order() -> None:
    options: dict[str, Any] = {"max_examples": 15, "stateful_step_count": 20, "deadline": None,
                               "suppress_health_check": list(HealthCheck)}
    run_state_machine_as_test(FleetOperations, settings=settings(**options))
