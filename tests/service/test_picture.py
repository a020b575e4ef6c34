"""The picture that follows each commit is the one that is made anew; what it says of gangs beyond their specs."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule
from pictures import assert_same
from service_world import World, submission
from test_machine import NODES, Machine

from gangline.model.errors import Conflict
from gangline.model.fleet import Fleet
from gangline.model.gang import Progress
from gangline.model.orders import Advanced, Empty
from gangline.plan.outcome import Plan, Reservation, Retirement
from gangline.plan.snapshot import PendingGang, Promise, RunningGang, Snapshot, TenantState
from gangline.service import fleet as fleet_service
from gangline.service import life, loop, nodes, submit, views
from gangline.service import picture as picture_module
from gangline.service.picture import Picture
from gangline.service.placing import commit_plan
from gangline.service.sighting import Sighting


class PictureMachine(Machine):
    """Whatever happens, a picture that follows it shows what one made anew shows."""

    @initialize()
    def begin(self) -> None:
        super().begin()
        self.picture = Picture(self.world.store, self.world.fleet)
        self.picture.refresh()

    @rule(slot=st.sampled_from(["dag/a", "e", "f"]), name=st.sampled_from(["x", "y"]), priority=st.integers(0, 2))
    def submit_without_a_limit(self, slot: str, name: str, priority: int) -> None:
        with suppress(Conflict):
            gang = self.world.ensure(submission(slot, self.epochs.get(slot, 0), name=name, size=1, ranks_per_node=1,
                                                priority=priority))[0].gang
            self.acknowledged.add(gang)

    @rule(node=NODES, owner=st.sampled_from(["ann", "bob"]))
    def a_node_is_drained_or_not(self, node: str, owner: str) -> None:
        try:
            nodes.drain(self.world.store, node, owner, "", now_ms=self.world.now_ms)
        except Conflict:
            nodes.undrain(self.world.store, node, {"ann": "bob", "bob": "ann"}[owner], now_ms=self.world.now_ms)

    def converge(self) -> None:
        for node in ("p-1", "p-2", "p-3", "p-4"):
            for owner in ("ann", "bob"):
                with suppress(Conflict):
                    nodes.undrain(self.world.store, node, owner, now_ms=self.world.now_ms)
        fleet_service.provision(self.world.store, self.world.fleet.pools[0], 6, now_ms=self.world.now_ms)
        super().converge()

    @rule(size=st.one_of(st.none(), st.integers(0, 8)))
    def a_pool_is_scaled(self, size: int | None) -> None:
        with self.world.store.transaction() as tx:
            tx.pools.want("p", size, self.world.now_ms)

    @rule()
    def idle_nodes_are_given_back(self) -> None:
        with self.world.store.transaction() as tx:
            fleet_service.retire(tx, [node.name for node in tx.nodes.all()], self.world.now_ms)

    @invariant()
    def it_shows_what_a_new_one_shows(self) -> None:
        if not hasattr(self, "picture"):
            return
        self.picture.refresh()
        assert not self.picture.stale
        seen = self.picture.snapshot(self.world.now_ms)
        assert_same(seen, loop.snapshot(self.world.store, self.world.fleet, now_ms=self.world.now_ms))
        assert_same(seen, Snapshot.of(version=seen.version, nodes=seen.nodes, pools=seen.pools,
                                      pending=seen.pending, running=seen.running, tenants=seen.tenants))


TestPictureMachine = PictureMachine.TestCase
TestPictureMachine.settings = settings(max_examples=15, stateful_step_count=30, deadline=None,
                                       suppress_health_check=list(HealthCheck))


def look(world: World) -> Snapshot:
    return loop.snapshot(world.store, world.fleet, now_ms=world.now_ms)


def running(world: World) -> RunningGang:
    return look(world).running[0]


def pending(world: World) -> PendingGang:
    return look(world).pending[0]


def ran(world: World, slot: str, seconds: float, **fields: object) -> str:
    """A gang called "like" that succeeded after so long."""
    gang = world.submit(slot, **{"name": "like", **fields})
    world.run(gang)
    world.later(seconds)
    world.exit_all(gang)
    world.everywhere(gang, Empty)
    return gang


def test_how_long_the_like_of_a_gang_ran_is_learned_from_the_last_five_that_succeeded(world: World) -> None:
    picture = Picture(world.store, world.fleet)

    def likely() -> int | None:
        picture.refresh()
        assert_same(picture.snapshot(world.now_ms), look(world))
        return picture.snapshot(world.now_ms).pending[-1].likely_ms

    world.submit("waits", name="like", size=4, priority=-1)
    world.submit("also", name="like", tenant="other", size=4, priority=-2)
    assert (likely(), pending(world).likely_ms) == (None, None)
    told = []
    for slot, seconds in enumerate((50, 40, 30, 20, 10, 5)):
        ran(world, f"s/{slot}", seconds)
        picture.refresh()
        told.append(picture.snapshot(world.now_ms).queue.gangs[0].likely_ms)
    assert told == [50_000, 50_000, 50_000, 50_000, 50_000, 40_000]
    assert likely() is None  # another tenant's
    world.submit("limited", name="like", timeout="60s", size=4, priority=-9)
    assert likely() is None


def test_a_failure_teaches_nothing(world: World) -> None:
    gang = world.submit("f", name="like")
    world.run(gang)
    world.later(9)
    world.fail(gang)
    world.submit("g", name="like")
    assert pending(world).likely_ms is None


def test_a_gang_without_a_limit_ends_when_its_like_did_until_it_has_outlived_it(world: World) -> None:
    ran(world, "a", 50)
    began_ms = world.now_ms
    world.run(world.submit("b", name="like"))
    picture = Picture(world.store, world.fleet)
    picture.refresh()
    for seconds, expected in ((1, began_ms + 50_000), (48, began_ms + 50_000), (1, None), (100, None)):
        seen = picture.snapshot(world.later(seconds))
        assert seen.running[0].ends_by_ms == expected
        assert_same(seen, look(world))


def test_a_gang_that_was_told_to_end_does_so_within_its_grace(world: World) -> None:
    gang = world.submit(grace="30s", timeout="1h", priority=7)
    world.run(gang)
    before = running(world)
    assert (before.ending, before.ends_by_ms, before.priority, before.grace_ms) == (
        False, world.now_ms + 3_600_000, 7, 30_000)
    submit.cancel(world.store, gang, None, "enough", now_ms=world.later(5))
    after = running(world)
    assert (after.ending, after.ends_by_ms) == (True, world.now_ms + 30_000)


def test_what_was_saved_counts_from_the_newest_version_of_this_attempt(world: World) -> None:
    gang = world.submit(volumes={"/ckpt": "v"}, retries={"user": 1})
    world.run(gang)
    assert running(world).saved_ms is None
    picture = Picture(world.store, world.fleet)
    picture.refresh()
    for key in ("one", "two"):
        world.later(10)
        assert world.save(gang, key) is not None
        picture.refresh()
        assert picture.snapshot(world.now_ms).running[0].saved_ms == world.now_ms
    world.fail(gang)
    world.run(gang)
    assert running(world).saved_ms is None


def test_an_elastic_gang_may_shrink_and_grow_and_goes_on_with_what_it_kept(world: World) -> None:
    gang = world.submit(size="2..4", retries={"user": 1})
    asked = pending(world)
    assert (asked.nodes, asked.most) == (2, 4)
    world.run(gang)
    now = running(world)
    assert (now.least, now.most, len(now.holds)) == (2, 4, 4)
    with world.store.transaction() as tx:
        life.resize(tx, tx.gangs.get(gang), 3, [now.holds[0].node], world.now_ms)
    assert (running(world).ending, running(world).resized_ms) == (True, world.now_ms)
    world.everywhere(gang, Empty)
    again = pending(world)
    assert (len(again.held), again.nodes, again.most) == (3, 3, 3)


def test_a_preempted_gang_is_remembered_and_one_that_must_not_be_says_so(world: World) -> None:
    gang = world.submit()
    world.run(gang)
    with world.store.transaction() as tx:
        life.preempt(tx, tx.gangs.get(gang), ("g-x",), world.now_ms)
    assert (running(world).preempted_ms, running(world).ending) == (world.now_ms, True)
    world.everywhere(gang, Empty)
    assert pending(world).since_ms == world.now_ms
    world.submit("stays", retries={"preempted": 0})
    world.plan()
    assert [gang.preemptible for gang in look(world).running if gang.slot == "stays"] == [False]


def test_pools_and_tenants_are_what_the_file_and_a_person_say(world: World) -> None:
    world.fleet = Fleet.parse({
        "pools": [{**world.fleet.pools[0].wire(), "warm": 1, "spares": 2, "delay": "30s", "idle": "10m"}],
        "tenants": [{"name": "a", "weight": 2, "quota": {"H100": 8}, "cohort": "c", "borrow": 4}]})
    pool = look(world).pools[0]
    assert (pool.least, pool.most, pool.warm, pool.spares, pool.delay_ms, pool.idle_ms) == (
        4, 6, 1, 2, 30_000, 600_000)
    assert look(world).tenants[0] == TenantState(name="a", weight=2, quota=(("H100", 8),), cohort="c", borrow=4)
    picture = Picture(world.store, world.fleet)
    picture.refresh()
    with world.store.transaction() as tx:
        tx.pools.want("p", 5, world.now_ms)
    picture.refresh()
    assert picture.snapshot(world.now_ms).pools[0].least == 5
    assert_same(picture.snapshot(world.now_ms), look(world))


def test_another_fleet_file_is_followed_without_reading_every_gang_again(world: World) -> None:
    world.submit()
    picture = Picture(world.store, world.fleet)
    picture.refresh()
    world.fleet = Fleet.parse({"pools": [{**world.fleet.pools[0].wire(), "boot": "9s", "max": 9}]})
    picture.follow(world.fleet)
    assert picture.stale
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Sighting, "page", lambda *_: 1 / 0)
        picture.refresh()
    assert not picture.stale
    assert_same(picture.snapshot(world.now_ms), look(world))


def test_what_could_ever_be_is_known_as_soon_as_it_was_read(world: World) -> None:
    picture = Picture(world.store, world.fleet)
    assert picture.inventory.nodes == ()
    picture.refresh()
    assert len(picture.inventory.nodes) == 4
    fleet_service.provision(world.store, world.fleet.pools[0], 1, now_ms=world.now_ms)
    picture.refresh()
    assert len(picture.inventory.nodes) == 5
    assert picture.inventory.pools == picture.look().pools


def test_a_pass_keeps_to_what_the_one_before_it_expected(world: World) -> None:
    gang = world.submit(size=4)
    picture = Picture(world.store, world.fleet)
    picture.refresh()
    picture.promise((Reservation(gang=gang, nodes=("p-2", "p-3"), at_ms=7), Reservation(gang="g-x", nodes=("p-1",),
                                                                                     at_ms=None)))
    assert picture.look().pending[0].promise == Promise(node="p-2", at_ms=7)
    with world.store.transaction() as tx:
        tx.gangs.leave_slot(gang)  # its row is read again
    picture.refresh()
    assert picture.look().pending[0].promise == Promise(node="p-2", at_ms=7)
    picture.promise(())
    assert picture.look().pending[0].promise is None


def test_a_still_picture_stays_as_it_is(world: World) -> None:
    gang = world.submit()
    picture = Picture(world.store, world.fleet)
    picture.refresh()
    still = picture.still()
    world.run(gang)
    picture.refresh()
    assert [len(node.free_gpus) for node in still.nodes] == [2, 2, 2, 2]
    assert sorted(len(node.free_gpus) for node in picture.look().nodes) == [0, 0, 2, 2]


def test_only_nodes_that_were_made_idle_and_can_be_given_back(world: World) -> None:
    made = fleet_service.provision(world.store, world.fleet.pools[0], 2, now_ms=world.now_ms)
    for node in made:
        world.hello(node)
    idle = {node.name: node.idle_ms for node in look(world).nodes}
    assert idle == {"p-1": 0, "p-2": 0, "p-3": 0, "p-4": 0, "p-5": world.now_ms, "p-6": world.now_ms}
    picture = Picture(world.store, world.fleet)
    picture.refresh()
    world.later(60)
    commit_plan(world.store, Plan(base=0, retirements=(Retirement(pool="p", nodes=("p-1", "p-5")),)),
                now_ms=world.now_ms)
    picture.refresh()
    assert [node.name for node in picture.snapshot(world.now_ms).nodes] == ["p-1", "p-2", "p-3", "p-4", "p-6"]
    assert [event.data for event in views.events_after(world.store, None, 0) if event.kind == "node.retired"] == [
        {"node": "p-5", "pool": "p", "idle_ms": 60_000}]


def test_a_picture_that_could_not_be_read_is_made_anew(world: World) -> None:
    picture = Picture(world.store, world.fleet)
    picture.refresh()
    world.submit()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Sighting, "of", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            picture.refresh()
    assert picture.stale
    picture.refresh()
    assert_same(picture.snapshot(world.now_ms), look(world))


def test_progress_and_owners_are_nothing_to_read_anew(world: World) -> None:
    gang = world.submit()
    world.run(gang)
    picture = Picture(world.store, world.fleet)
    picture.refresh()
    world.report(world.view(gang).attempts[0].nodes[0].node,
                 Advanced(**world.about(gang), progress=Progress(step=1)))
    world.submit()
    assert not picture.stale
    picture.close()
    world.submit("other")
    assert not picture.stale


def test_what_changes_between_two_reads_of_a_refresh_is_read_again(world: World) -> None:
    gangs = [world.submit(f"s/{number}") for number in range(5)]
    picture = Picture(world.store, world.fleet)
    picture.begin()
    assert len(picture.inventory.nodes) == 4
    assert picture.stale
    applied, pages = Picture._apply, 0

    def apply(self: Picture, news: Sighting) -> None:
        """After the first page: a gang that was read ends, others start that were not, and one more comes."""
        nonlocal pages
        applied(self, news)
        if self is picture:
            pages += 1
            if pages == 1:
                submit.cancel(world.store, gangs[0], None, "enough", now_ms=world.now_ms)
                assert world.plan().accepted
                world.submit("s/new")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(picture_module, "MOST_AT_ONCE", 1)
        patch.setattr(Picture, "_apply", apply)
        picture.refresh()
    assert pages > len(gangs)
    assert not picture.stale
    assert_same(picture.snapshot(world.now_ms), look(world))
