"""Gangs that make room and gangs that change their size: what they save, keep, give back and cost."""

from __future__ import annotations

import pytest
from service_world import World, check_invariants, phases

from gangline.model.errors import Conflict
from gangline.model.node import Strike, suspicious
from gangline.model.orders import Empty, OrderPhase, RankExit, Ready, Started
from gangline.model.states import Cause, GangState
from gangline.service import loop, nodes, saves, submit, usage

CKPT = {"/ckpt": "sft"}


def stop(world: World, gang: str, *, leave: bool = True) -> None:
    """Every node does what a stop order asks; with `leave` its ranks exit with code 0 first."""
    for node, order in world.order(gang).items():
        assert order.phase is OrderPhase.STOP
        for rank in [rank for rank in world.view(gang).ranks if rank.node == node and leave]:
            world.report(node, RankExit(**world.about(gang), rank=rank.rank, cause=Cause.CANCELLED, exit_code=0))
        world.report(node, Empty(**world.about(gang)))
    check_invariants(world.store)


def test_it_keeps_its_nodes_for_its_grace_and_gives_all_of_them_back(world: World) -> None:
    low, high = world.submit("dag/low", grace="40s"), world.submit("dag/high", name="big", tenant="research", size=4)
    world.run(low)
    held = world.leases(low)
    assert world.preempt(low, high)
    assert world.leases(low) == held
    assert {(order.phase, order.grace_s) for order in world.order(low).values()} == {(OrderPhase.STOP, 40.0)}
    assert world.view(low).state is GangState.RUNNING

    stop(world, low)
    view = world.view(low)
    assert (view.state, world.leases(low)) == (GangState.QUEUED, {})
    end = view.attempts[0].end
    assert end is not None
    assert (end.cause, end.text) == (Cause.PREEMPTED, "made room for big (tenant research, slot dag/high)")
    with world.store.transaction() as tx:
        assert tx.gangs.get(low).preempted_ms == world.now_ms
    told = [event.kind for event in submit.watch(world.store, low, world.tokens[low], 0, now_ms=world.now_ms).events]
    assert told.index("preempt.requested") < told.index("attempt.ended") < told.index("gang.queued")


def test_what_is_saved_in_the_grace_is_what_it_resumes_from(world: World) -> None:
    low = world.submit("dag/low", volumes=CKPT)
    world.run(low)
    world.save(low, "step-1")
    assert world.preempt(low)
    assert world.save(low, "step-2", step=2) == 2
    stop(world, low)
    with pytest.raises(Conflict):
        saves.open_save(world.store, saves.OpenSave(**world.about(low), mount="/ckpt", key="late"),
                        now_ms=world.now_ms, volumes_root=world.root)
    world.run(low)
    assert [resume.version for resume in world.view(low).attempts[1].resume] == [2]
    world.exit_all(low)
    world.everywhere(low, Empty)
    assert world.view(low).state is GangState.SUCCEEDED


def test_only_what_was_done_since_the_last_version_is_lost(world: World) -> None:
    saves_, loses = world.submit("dag/saves", volumes=CKPT), world.submit("dag/loses")
    world.plan()
    for gang in (saves_, loses):
        for kind in (Ready, Started):
            world.order(gang)
            world.everywhere(gang, kind)
    world.later(100)
    for gang in (saves_, loses):
        assert world.preempt(gang)
    world.later(20)
    world.save(saves_)
    for gang in (saves_, loses):
        stop(world, gang)
    spent = usage.usage(world.store, ("gang", "cause"), None, None, now_ms=world.now_ms)
    assert {(row.by["gang"], row.by["cause"]): row.node_ms for row in spent if row.node_ms} == {
        (saves_, "running"): 200_000, (saves_, "draining"): 40_000, (loses, "lost"): 200_000,
        (loses, "draining"): 40_000}


def test_its_place_in_the_queue_is_the_one_of_its_submission(world: World) -> None:
    low = world.submit("dag/low")
    world.run(low)
    later = world.submit("dag/later", size=4)
    assert world.preempt(low, later)
    stop(world, low)
    assert [gang.gang for gang in loop.snapshot(world.store, world.fleet, now_ms=world.now_ms).pending] == [low, later]


def test_ranks_that_leave_well_when_asked_to_are_not_done(world: World) -> None:
    low = world.submit("dag/low", size=1)
    world.run(low)
    world.preempt(low)
    for rank in world.view(low).ranks:
        world.exit(low, rank.rank, Cause.SUCCESS, result="half")  # a supervisor that had not heard it yet
    world.everywhere(low, Empty)
    assert world.view(low).state is GangState.QUEUED


def test_a_budget_of_none_means_that_it_fails(world: World) -> None:
    low = world.submit("dag/low", retries={"preempted": 0})
    world.run(low)
    assert world.preempt(low)
    stop(world, low)
    view = world.view(low)
    assert view.state is GangState.FAILED
    assert view.end is not None
    assert view.end.cause is Cause.PREEMPTED


@pytest.mark.parametrize("ready", [0, 1, 2])
def test_while_it_assembles_or_starts(world: World, ready: int) -> None:
    low = world.submit("dag/low")
    world.plan()
    for node in list(world.order(low))[:ready]:
        world.report(node, Ready(**world.about(low)))
    assert world.preempt(low)
    orders = world.order(low)
    assert phases(list(orders.values())) == [OrderPhase.STOP] * 2
    for node in orders:  # reports that were on their way change nothing
        world.report(node, Ready(**world.about(low)), Started(**world.about(low)))
    stop(world, low, leave=False)
    assert (world.view(low).state, world.leases(low)) == (GangState.QUEUED, {})


def test_twice(world: World) -> None:
    low = world.submit("dag/low", volumes=CKPT)
    for attempt in (1, 2):
        world.run(low)
        world.later(10)
        assert world.save(low, f"step-{attempt}", step=attempt) == attempt
        assert world.preempt(low)
        stop(world, low)
    world.succeed(low)
    view = world.view(low)
    assert [a.end.cause for a in view.attempts if a.end] == [Cause.PREEMPTED, Cause.PREEMPTED, Cause.SUCCESS]
    assert [[resume.version for resume in a.resume] for a in view.attempts] == [[], [1], [2]]


def test_only_what_nothing_has_ended_yet_can_be_interrupted(world: World) -> None:
    queued, failing, done, committing = (world.submit(f"dag/{name}", size=1) for name in "abcd")
    assert not world.preempt(queued)
    world.plan()
    for gang in (failing, done, committing):
        world.order(gang)
        world.everywhere(gang, Ready)
        world.order(gang)
        world.everywhere(gang, Started)
    world.exit(failing, 0, Cause.USER)
    for gang in (done, committing):
        world.exit_all(gang)
    world.everywhere(done, Empty)
    assert [world.view(gang).state for gang in (done, committing)] == [GangState.SUCCEEDED, GangState.COMMITTING]
    before = [world.view(gang) for gang in (failing, done, committing)]
    assert not any(world.preempt(gang) for gang in (failing, done, committing))
    assert before == [world.view(gang) for gang in (failing, done, committing)]
    assert not world.resize(failing, 1)


def test_a_cancel_during_the_grace_is_final(world: World) -> None:
    low = world.submit("dag/low")
    world.run(low)
    world.preempt(low)
    submit.cancel(world.store, low, None, "enough", now_ms=world.now_ms)
    assert not world.preempt(low)
    stop(world, low)
    view = world.view(low)
    assert (view.state, world.leases(low)) == (GangState.CANCELLED, {})
    assert view.attempts[0].end is not None
    assert view.attempts[0].end.cause is Cause.PREEMPTED


def test_a_node_lost_during_the_grace_is_not_waited_for(world: World) -> None:
    low = world.submit("dag/low")
    world.run(low)
    world.preempt(low)
    first, second = (share.node for share in world.view(low).attempts[0].nodes)
    nodes.node_lost(world.store, first, "died", now_ms=world.now_ms)
    world.report(second, Empty(**world.about(low)))
    assert world.view(low).state is GangState.QUEUED
    with world.store.transaction() as tx:
        assert tx.gangs.get(low).avoid == (first,)


def test_shrinking_gives_up_what_it_is_told_to_and_keeps_the_rest(world: World) -> None:
    gang = world.submit(size="2..4", volumes=CKPT)
    other = world.submit("dag/other", name="big")
    world.run(gang)
    assert len(world.view(gang).ranks) == 8
    held = world.leases(gang)
    assert world.resize(gang, 2, "p-1", "p-3", for_gangs=[other])
    assert world.save(gang) == 1
    stop(world, gang)
    assert world.leases(gang) == {node: held[node] for node in ("p-2", "p-4")}
    with world.store.transaction() as tx:
        known, attempt = tx.gangs.get(gang), tx.attempts.get(gang, 1)
    assert (attempt.want, attempt.give_up, known.resized_ms) == (2, ("p-1", "p-3"), world.now_ms)
    assert attempt.end is not None
    assert attempt.end.text == ("goes on with 2 nodes instead of 4, to make room for big "
                                "(tenant default, slot dag/other); this costs no retry")
    pending = loop.snapshot(world.store, world.fleet, now_ms=world.now_ms).pending
    assert [(p.gang, sorted(h.node for h in p.held), p.nodes, p.most) for p in pending if p.gang == gang] == [
        (gang, ["p-2", "p-4"], 2, 2)]

    assert gang in world.plan(job=2).accepted
    view = world.view(gang)
    task = world.orders("p-2")[0].task
    assert [share.node for share in view.attempts[1].nodes] == ["p-2", "p-4"]
    assert task is not None
    assert (task.world_size, len(task.nodes), task.least, task.most) == (4, 2, 2, 4)
    assert [resume.version for resume in view.attempts[1].resume] == [1]
    assert other in world.plan().accepted or world.view(other).state is GangState.PLACED


def test_growing_keeps_every_lease(world: World) -> None:
    gang = world.submit(size="2..4")
    world.run(gang, job=2)
    held = world.leases(gang)
    assert world.resize(gang, 4)
    stop(world, gang)
    assert world.leases(gang) == held
    world.run(gang)
    assert held.items() < world.leases(gang).items()
    assert len(world.view(gang).attempts[1].nodes) == 4


def test_resizing_costs_no_retry(world: World) -> None:
    gang = world.submit(size="1..2", retries={"user": 1, "lost": 0, "hardware": 0, "preempted": 0})
    for attempt in range(8):
        size = attempt % 2 + 1
        world.run(gang, job=size)
        assert world.resize(gang, 3 - size, *(list(world.leases(gang))[1:] if size == 2 else ()))
        stop(world, gang)
    world.run(gang)
    world.fail(gang)
    assert world.view(gang).state is GangState.QUEUED, "its own retry is still there"


@pytest.mark.parametrize(("size", "give_up"), [
    (3, ()), (5, ()), (1, ("p-1", "p-2")), (2, ()), (2, ("p-1", "p-2")), (2, ("p-4",)), (4, ("p-1",))])
def test_sizes_that_do_not_come_of_what_it_has_are_refused(world: World, size: int, give_up: tuple[str, ...]) -> None:
    gang = world.submit(size="2..4")
    world.run(gang, job=3)
    before = world.view(gang)
    assert not world.resize(gang, size, *give_up)
    assert world.view(gang) == before


def test_a_gang_of_one_size_is_never_resized(world: World) -> None:
    gang = world.submit(size=2)
    world.run(gang)
    assert not world.resize(gang, 1, "p-1")
    assert not world.resize(gang, 3)


def test_a_node_lost_while_it_changes_its_size_is_not_kept(world: World) -> None:
    gang = world.submit(size="2..4")
    world.run(gang)
    world.resize(gang, 3, "p-1")
    nodes.node_lost(world.store, "p-2", "died", now_ms=world.now_ms)
    for node in ("p-1", "p-3", "p-4"):
        world.report(node, Empty(**world.about(gang)))
    assert sorted(world.leases(gang)) == ["p-3", "p-4"]


def test_failed_hardware_is_left_and_the_healthy_nodes_are_kept(world: World) -> None:
    gang = world.submit(size=3)
    world.run(gang)
    held = world.leases(gang)
    world.exit(gang, 2, Cause.HARDWARE)
    world.everywhere(gang, Empty)
    bad = world.view(gang).attempts[0].end.node  # type: ignore[union-attr]
    assert bad is not None
    kept = {node: lease for node, lease in held.items() if node != bad}
    assert world.leases(gang) == kept
    [pending] = loop.snapshot(world.store, world.fleet, now_ms=world.now_ms).pending
    assert {one.node for one in pending.held} == set(kept)
    assert pending.exclude == {bad}
    world.run(gang)
    assert kept.items() < world.leases(gang).items()
    assert bad not in world.leases(gang)


def test_a_node_that_several_gangs_blame_is_told_of_and_left_in_service(world: World) -> None:
    for number in range(3):
        gang = world.submit(f"dag/{number}", size=1, retries={"hardware": 0})
        world.run(gang)
        world.later(3600)
        world.fail(gang, Cause.HARDWARE)
        told = kinds_of_all(world).count("node.suspect")
        assert told == (1 if number == 2 else 0)
    node = world.view(gang).attempts[0].nodes[0].node
    with world.store.transaction() as tx:
        known = tx.nodes.get(node)
    assert known.usable
    assert len({strike.gang for strike in known.strikes}) == 3


def test_a_day_later_and_by_one_gang_alone_a_node_is_not_suspect(world: World) -> None:
    gang = world.submit(size=1, retries={"hardware": "unlimited"})
    for _ in range(2):
        world.run(gang)
        world.fail(gang, Cause.HARDWARE)
    for number in range(3):
        world.later(13 * 3600)
        one = world.submit(f"dag/{number}", size=1, retries={"hardware": 0})
        world.run(one)
        world.fail(one, Cause.HARDWARE)
    assert "node.suspect" not in kinds_of_all(world)


def test_one_loss_that_hits_many_gangs_counts_once() -> None:
    def strikes(*at: int) -> list[Strike]:
        return [Strike(gang=f"g-{n}", attempt=1, cause=Cause.LOST, at_ms=at_ms) for n, at_ms in enumerate(at)]

    assert not suspicious(strikes(5, 5, 5, 9))
    assert suspicious(strikes(5, 5, 7, 9))


def kinds_of_all(world: World) -> list[str]:
    with world.store.transaction() as tx:
        return [event.kind for event in tx.events.after(0, None, 10_000)]
