"""The life of an attempt, driven by hand-written reports."""

from __future__ import annotations

import pytest
from service_world import FLEET, World, kinds, phases

from gangline.model.errors import Conflict
from gangline.model.gang import Progress
from gangline.model.orders import Advanced, Empty, OrderPhase, RankExit, Ready, Refused, Reports, Started
from gangline.model.states import Cause, GangState, NodeLifecycle
from gangline.service import loop, nodes, usage, views


def test_a_gang_goes_from_queued_to_succeeded(world: World) -> None:
    gang = world.submit()
    assert world.view(gang).state == GangState.QUEUED
    assert world.plan().accepted == (gang,)
    assert world.view(gang).state == GangState.PLACED
    assert phases(list(world.order(gang).values())) == [OrderPhase.ASSEMBLE] * 2
    world.everywhere(gang, Ready)
    assert world.view(gang).state == GangState.STARTING
    assert phases(list(world.order(gang).values())) == [OrderPhase.START] * 2
    world.everywhere(gang, Started)
    assert world.view(gang).state == GangState.RUNNING
    assert {rank.state for rank in world.view(gang).ranks} == {"running"}
    world.exit_all(gang)
    assert world.view(gang).state == GangState.COMMITTING
    assert phases(list(world.order(gang).values())) == [OrderPhase.STOP] * 2
    assert {order.grace_s for order in world.order(gang).values()} == {0.0}
    world.later(1)
    world.everywhere(gang, Empty)
    view = world.view(gang)
    assert view.state == GangState.SUCCEEDED
    assert view.result == {"rank": 0}
    assert [rank.result for rank in view.ranks] == [{"rank": n} for n in range(4)]
    assert view.end is not None
    assert view.end.cause == Cause.SUCCESS
    assert world.orders(view.attempts[0].nodes[0].node) == ()
    assert kinds(world, gang) == [
        "gang.submitted", "gang.placed", "lease.opened", "lease.opened", "attempt.ready", "attempt.ready",
        "gang.starting", "gang.running", "rank.exited", "rank.exited", "rank.exited", "rank.exited",
        "gang.committing", "attempt.ended", "lease.closed", "lease.closed", "gang.succeeded"]


def test_a_task_tells_each_node_its_part(world: World) -> None:
    gang = world.submit(env={"A": "1"})
    world.plan()
    first, second = world.order(gang).values()
    assert first.task is not None
    assert second.task is not None
    assert [r.rank for r in first.task.ranks] == [0, 1]
    assert [r.rank for r in second.task.ranks] == [2, 3]
    assert [r.gpus for r in second.task.ranks] == [(0,), (1,)]
    assert first.task.ranks_by_node == ((0, 1), (2, 3))
    assert first.task.world_size == 4
    assert first.task.nodes == second.task.nodes
    assert first.task.master_addr == first.task.nodes[0].address
    assert 20_000 <= first.task.master_port <= 29_999
    assert first.task.emulated
    assert second.task.node_rank == 1
    assert second.task.env == {"A": "1"}


def test_roles_get_their_ranks_in_order_and_their_own_command(world: World) -> None:
    roles = {"trainer": {"size": 1, "gpu": "H100:2", "command": ["train"], "env": {"WHO": "t"}},
             "rollout": {"size": 2, "gpu": "H100:2", "command": ["roll"], "ranks_per_node": 1}}
    world.ensure(_roles_submission(roles))
    gang = views.list_gangs(world.store)[0].gang
    world.plan()
    tasks = [order.task for order in world.order(gang).values()]
    assert [(t.role, [r.rank for r in t.ranks], t.command) for t in tasks if t is not None] == [
        ("trainer", [0, 1], ("train",)), ("rollout", [2], ("roll",)), ("rollout", [3], ("roll",))]
    assert tasks[1] is not None
    assert tasks[1].ranks[0].gpus == (0, 1)  # one rank has the whole node


def _roles_submission(roles: dict[str, object]):  # type: ignore[no-untyped-def]
    from gangline.model.gang import Submission
    from gangline.model.spec import GangSpec

    return Submission(slot="s", spec=GangSpec.parse({"name": "two", "roles": roles}))


def test_the_first_failure_decides_and_peers_are_stopped_at_once(world: World) -> None:
    gang = world.submit()
    world.run(gang)
    world.exit(gang, 3, Cause.USER, exit_code=7, text="ValueError: no", last_lines=("a", "b"))
    assert {(o.phase, o.grace_s) for o in world.order(gang).values()} == {(OrderPhase.STOP, 0.0)}
    world.exit(gang, 0, Cause.LOST, signal="SIGKILL", exit_code=None)
    world.everywhere(gang, Empty)
    view = world.view(gang)
    assert view.state == GangState.FAILED
    assert view.end is not None
    assert (view.end.rank, view.end.cause, view.end.exit_code) == (3, Cause.USER, 7)
    assert view.end.last_lines == ("a", "b")
    assert view.end.node == view.attempts[0].nodes[1].node


def test_ranks_may_end_before_their_node_says_started(world: World) -> None:
    gang = world.submit()
    world.plan()
    world.everywhere(gang, Ready)
    world.exit_all(gang)
    assert world.view(gang).state == GangState.COMMITTING
    world.everywhere(gang, Started)
    world.everywhere(gang, Empty)
    assert world.view(gang).state == GangState.SUCCEEDED


def test_repeated_late_and_foreign_reports_do_nothing(world: World) -> None:
    gang = world.submit()
    world.plan()
    one, two = (share.node for share in world.view(gang).attempts[0].nodes)
    about = world.about(gang)
    other = next(n.node for n in views.nodes(world.store) if n.node not in (one, two))
    assert world.report(other, Ready(**about)) == 0
    assert world.report(one, Ready(**{**about, "generation": 0})) == 0
    assert world.report(one, Ready(**{**about, "attempt": 2})) == 0
    assert world.report(one, Ready(**{**about, "gang": "g-unknown"})) == 0
    assert world.report(one, Ready(**about), Ready(**about)) == 1
    assert world.view(gang).state == GangState.PLACED
    world.report(two, Ready(**about))
    for node in (one, two):
        assert world.report(node, Started(**about), Started(**about)) == 1
    wrong_node = RankExit(**about, rank=0, cause=Cause.USER)
    assert world.report(two, wrong_node) == 0
    assert world.report(one, RankExit(**about, rank=99, cause=Cause.USER)) == 0
    assert world.exit(gang, 0) == 1
    assert world.exit(gang, 0, Cause.USER) == 0
    assert world.view(gang).state == GangState.RUNNING


def test_a_supervisor_that_was_replaced_is_refused(world: World) -> None:
    node = views.nodes(world.store)[0].node
    old = world.incarnations[node]
    world.hello(node)
    for call in (lambda: nodes.orders(world.store, node, old, now_ms=1, volumes_root=world.root),
                 lambda: nodes.reports(world.store, node, Reports(incarnation=old, reports=()), now_ms=1)):
        with pytest.raises(Conflict):
            call()


def test_progress_is_seen_but_asks_for_no_plan(world: World) -> None:
    gang = world.submit()
    world.run(gang)
    before = world.store.version()
    node = world.view(gang).attempts[0].nodes[0].node
    progress = Progress(step=3, total=9, metrics={"loss": 1.5})
    world.report(node, Advanced(**world.about(gang), progress=progress))
    assert world.view(gang).progress.step == 3
    assert world.store.version() == before


@pytest.mark.parametrize(("cause", "retries", "expected"), [
    (Cause.USER, {}, 1), (Cause.USER, {"user": 2}, 3), (Cause.OOM, {"user": 1}, 2),
    (Cause.HARDWARE, {"hardware": 1}, 2), (Cause.LOST, {"lost": 2}, 3), (Cause.LAUNCH, {}, 6),
    (Cause.PREEMPTED, {"preempted": 1}, 2), (Cause.LOST, {}, 4),
])
def test_the_cause_decides_how_often_it_is_tried_again(world: World, cause: Cause, retries: dict[str, int],
                                                       expected: int) -> None:
    gang = world.submit(retries=retries)
    for _ in range(20):
        if world.view(gang).state.final:
            break
        world.run(gang)
        world.later(1)
        world.fail(gang, cause)
    view = world.view(gang)
    assert view.state == GangState.FAILED
    assert len(view.attempts) == expected
    assert view.end is not None
    assert view.end.cause == cause


def test_user_and_oom_share_a_budget(world: World) -> None:
    gang = world.submit(retries={"user": 1})
    world.run(gang)
    world.fail(gang, Cause.OOM)
    assert world.view(gang).state == GangState.QUEUED
    world.run(gang)
    world.fail(gang, Cause.USER)
    assert world.view(gang).state == GangState.FAILED


def test_a_retry_keeps_healthy_leases_and_their_meter(world: World) -> None:
    gang = world.submit(retries={"user": 1})
    world.run(gang)
    with world.store.transaction() as tx:
        before = tx.leases.open_of(gang)
    world.later(10)
    world.fail(gang)
    snapshot = loop.snapshot(world.store, world.fleet, now_ms=world.now_ms)
    assert [held.node for held in snapshot.pending[0].held] == [lease.node for lease in before]
    assert not snapshot.running
    world.later(5)
    world.run(gang)
    with world.store.transaction() as tx:
        after = tx.leases.open_of(gang)
        intervals = [i for i in tx.leases.intervals(0, None) if i.lease.id == before[0].id]
    assert [(new.id, new.opened_ms) for new in after] == [(old.id, old.opened_ms) for old in before]
    assert {lease.generation for lease in after} == {2}
    assert [(str(i.phase), i.attempt) for i in intervals] == [
        ("assembling", 1), ("starting", 1), ("running", 1), ("draining", 1), ("assembling", 1),
        ("assembling", 2), ("starting", 2), ("running", 2)]


def test_hardware_that_failed_is_avoided_while_there_is_other(world: World) -> None:
    gang = world.submit()
    world.run(gang)
    world.fail(gang, Cause.HARDWARE, rank=0)
    bad = world.view(gang).attempts[0].nodes[0].node
    pending = loop.snapshot(world.store, world.fleet, now_ms=world.now_ms).pending[0]
    assert bad in pending.exclude
    assert bad not in [held.node for held in pending.held]
    world.run(gang)
    assert bad not in [share.node for share in world.view(gang).attempts[1].nodes]


def test_hardware_is_not_avoided_when_that_would_be_never(world: World) -> None:
    gang = world.submit(size=4)
    world.run(gang)
    world.fail(gang, Cause.HARDWARE, rank=0)
    assert not loop.snapshot(world.store, world.fleet, now_ms=world.now_ms).pending[0].exclude


def test_a_lost_node_ends_the_attempt_and_is_replaced(world: World) -> None:
    gang = world.submit()
    world.run(gang)
    lost, other = (share.node for share in world.view(gang).attempts[0].nodes)
    world.later(3)
    nodes.node_lost(world.store, lost, "its supervisor died", now_ms=world.now_ms)
    view = world.view(gang)
    assert view.state == GangState.RUNNING
    assert view.attempts[0].end is not None
    assert (view.attempts[0].end.cause, view.attempts[0].end.node) == (Cause.LOST, lost)
    assert phases(world.orders(other)) == [OrderPhase.STOP]
    world.report(other, Empty(**world.about(gang)))
    assert world.view(gang).state == GangState.QUEUED
    with world.store.transaction() as tx:
        assert [lease.node for lease in tx.leases.open_of(gang)] == [other]
    world.plan()
    assert lost not in [share.node for share in world.view(gang).attempts[1].nodes]


def test_a_silent_node_keeps_its_lease_until_it_is_swept(world: World) -> None:
    gang = world.submit()
    world.run(gang)
    silent, other = (share.node for share in world.view(gang).attempts[0].nodes)
    nodes.node_lost(world.store, silent, "silent", now_ms=world.now_ms, swept=False)
    world.report(other, Empty(**world.about(gang)))
    assert world.view(gang).state == GangState.RUNNING
    with world.store.transaction() as tx:
        assert len(tx.leases.open_of(gang)) == 2
    world.hello(silent)
    assert world.view(gang).state == GangState.QUEUED


def test_a_silent_node_that_comes_back_is_told_to_stop(world: World) -> None:
    gang = world.submit()
    world.run(gang)
    silent, other = (share.node for share in world.view(gang).attempts[0].nodes)
    nodes.node_lost(world.store, silent, "silent", now_ms=world.now_ms, swept=False)
    assert not next(n for n in views.nodes(world.store) if n.node == silent).healthy
    assert phases(world.orders(silent)) == [OrderPhase.STOP]
    assert next(n for n in views.nodes(world.store) if n.node == silent).healthy
    world.report(other, Empty(**world.about(gang)))
    world.report(silent, Empty(**world.about(gang)))
    assert world.view(gang).state == GangState.QUEUED


def test_a_new_supervisor_loses_what_the_old_one_had_but_not_what_it_never_saw(world: World) -> None:
    from gangline.model.fleet import Fleet
    from gangline.service import fleet as fleet_service

    fleet = Fleet.parse({"pools": [{"name": "q", "gpu": "H100:2", "min": 2, "emulated": True}]})
    fleet_service.sync_fleet(world.store, fleet, now_ms=world.now_ms)
    world.fleet = fleet
    gang = world.submit()
    assert world.plan().accepted == (gang,)  # its nodes have no supervisor yet
    for node in ("q-1", "q-2"):
        world.hello(node)
    assert world.view(gang).attempts[0].end is None
    world.order(gang)
    world.hello("q-1")
    end = world.view(gang).attempts[0].end
    assert end is not None
    assert end.cause == Cause.LOST


def test_a_node_lost_after_every_rank_ended_well_costs_nothing(world: World) -> None:
    gang = world.submit()
    world.run(gang)
    world.exit_all(gang)
    one, two = (share.node for share in world.view(gang).attempts[0].nodes)
    world.report(one, Empty(**world.about(gang)))
    nodes.node_lost(world.store, two, "died", now_ms=world.now_ms)
    assert world.view(gang).state == GangState.SUCCEEDED


def test_a_node_lost_between_attempts_gives_its_lease_back(world: World) -> None:
    gang = world.submit(retries={"user": 1})
    world.run(gang)
    world.fail(gang)
    node = world.view(gang).attempts[0].nodes[0].node
    nodes.node_lost(world.store, node, "died", now_ms=world.now_ms)
    with world.store.transaction() as tx:
        assert node not in [lease.node for lease in tx.leases.open_of(gang)]
    world.run(gang)


def test_a_node_that_is_empty_without_being_told_is_a_loss(world: World) -> None:
    gang = world.submit()
    world.run(gang)
    node = world.view(gang).attempts[0].nodes[1].node
    world.report(node, Empty(**world.about(gang)))
    end = world.view(gang).attempts[0].end
    assert end is not None
    assert (end.cause, end.node) == (Cause.LOST, node)


def test_a_refusal_ends_the_attempt_with_its_cause(world: World) -> None:
    gang = world.submit()
    world.plan()
    port = world.order(gang)
    node = world.view(gang).attempts[0].nodes[1].node
    world.report(node, Refused(**world.about(gang), cause=Cause.LAUNCH, text="port is taken"))
    world.everywhere(gang, Empty)
    assert world.view(gang).state == GangState.QUEUED
    world.plan()
    again = world.order(gang)
    assert [o.task.master_port for o in port.values() if o.task] != [
        o.task.master_port for o in again.values() if o.task]


def test_ports_of_one_host_differ_and_are_freed(world: World) -> None:
    first, second = world.submit("a"), world.submit("b")
    world.plan()
    ports = {o.task.master_port for g in (first, second) for o in world.order(g).values() if o.task}
    assert len(ports) == 2
    with world.store.transaction() as tx:
        assert tx.ports.count() == 2
    for gang in (first, second):
        world.everywhere(gang, Ready)
        world.exit_all(gang)
        world.everywhere(gang, Empty)
    with world.store.transaction() as tx:
        assert tx.ports.count() == 0


def test_drains_belong_to_their_owner(world: World) -> None:
    node = views.nodes(world.store)[0].node
    view = nodes.drain(world.store, node, "alice", "fan", now_ms=world.now_ms)
    assert not view.takes_work
    with pytest.raises(Conflict):
        nodes.drain(world.store, node, "bob", "", now_ms=world.now_ms)
    with pytest.raises(Conflict):
        nodes.undrain(world.store, node, "bob", now_ms=world.now_ms)
    snapshot = loop.snapshot(world.store, world.fleet, now_ms=world.now_ms)
    assert [n.usable for n in snapshot.nodes if n.name == node] == [False]
    assert nodes.undrain(world.store, node, "alice", now_ms=world.now_ms).takes_work


def test_the_bill_is_the_sum_of_its_parts(world: World) -> None:
    gang = world.submit(retries={"user": 1})
    world.run(gang)
    world.later(7.001)
    world.fail(gang)
    world.later(3.003)
    world.run(gang)
    world.later(5.5)
    world.exit_all(gang)
    world.later(0.25)
    world.everywhere(gang, Empty)
    world.later(1000)
    whole = usage.usage(world.store, (), None, None, now_ms=world.now_ms)
    by = ("gang", "attempt", "node", "cause")
    parts = usage.usage(world.store, by, None, None, now_ms=world.now_ms)
    held_ms = 7_001 + 3_003 + 5_500 + 250
    assert sum(row.node_ms for row in parts) == whole[0].node_ms == 2 * held_ms
    assert whole[0].gpu_ms == 4 * held_ms
    assert whole[0].cost_nano == 2 * (2 * held_ms * 3_600_000_000 // 3_600_000)
    assert sum(row.cost_nano for row in parts) == whole[0].cost_nano
    assert world.view(gang).cost_nano == whole[0].cost_nano
    cut = world.now_ms - 1_005_000
    halves = [usage.usage(world.store, ("node",), *window, now_ms=world.now_ms)
              for window in ((None, cut), (cut, None))]
    assert sum(row.cost_nano for half in halves for row in half) == whole[0].cost_nano


def test_a_price_is_fixed_when_the_lease_opens(world: World) -> None:
    from gangline.model.fleet import Fleet
    from gangline.service import fleet as fleet_service

    gang = world.submit()
    world.run(gang)
    dearer = Fleet.parse({"pools": [{**world.fleet.pools[0].wire(), "price_per_gpu_hour": "99"}]})
    fleet_service.sync_fleet(world.store, dearer, now_ms=world.now_ms)
    world.later(3600)
    assert world.view(gang).cost_nano == 4 * 3_600_000_000
    with world.store.transaction() as tx:
        assert tx.nodes.get("p-1").price_nano_per_gpu_hour == 99_000_000_000


def test_a_clock_that_goes_backwards_never_makes_negative_time(world: World) -> None:
    gang = world.submit()
    world.run(gang)
    world.later(-100)
    world.exit_all(gang)
    world.everywhere(gang, Empty)
    rows = usage.usage(world.store, ("cause",), None, None, now_ms=world.now_ms)
    assert all(row.node_ms >= 0 and row.cost_nano >= 0 for row in rows)


def test_a_node_that_left_the_fleet_has_no_supervisor(world: World) -> None:
    from gangline.service import fleet as fleet_service

    smaller = FLEET.model_copy(update={"pools": (FLEET.pools[0].model_copy(update={"min": 3}),)})
    fleet_service.sync_fleet(world.store, smaller, now_ms=world.now_ms)
    with pytest.raises(Conflict):
        world.hello("p-4")
    with world.store.transaction() as tx:
        assert tx.nodes.get("p-4").lifecycle is NodeLifecycle.GONE
