"""Ensure, watch and cancel by slot, epoch and owner token."""

from __future__ import annotations

import pytest
from service_world import World, kinds, phases, submission

from gangline.model.errors import Conflict, NotFound, Rejected, Superseded
from gangline.model.orders import Empty, OrderPhase
from gangline.model.states import Cause, GangState
from gangline.service import loop, submit, versions, views

SLOT = "dag/run/step"


def watch(world: World, gang: str, token: str | None = None, cursor: int = 0):  # type: ignore[no-untyped-def]
    return submit.watch(world.store, gang, token or world.tokens[gang], cursor, now_ms=world.now_ms)


def test_the_same_epoch_attaches_again_and_deposes_the_owner_before(world: World) -> None:
    first = world.ensure(submission())[0]
    again = world.ensure(submission())[0]
    assert (again.gang, again.created) == (first.gang, False)
    assert first.created
    with pytest.raises(Superseded):
        watch(world, first.gang, first.token)
    assert watch(world, first.gang, again.token).view.gang == first.gang
    assert "owner.changed" in kinds(world, first.gang)


def test_tokens_are_not_stored_as_they_are(world: World) -> None:
    ensured = world.ensure(submission())[0]
    with world.store.transaction() as tx:
        assert ensured.token not in repr(tx.gangs.get(ensured.gang))


def test_other_work_in_a_held_slot_is_a_conflict_that_names_both(world: World) -> None:
    gang = world.submit()
    with pytest.raises(Conflict) as caught:
        world.ensure(submission(snapshot="a" * 64))
    assert gang in str(caught.value)
    assert submission(snapshot="a" * 64).digest()[:12] in str(caught.value)
    assert world.view(gang).digest[:12] in str(caught.value)


def test_success_is_returned_and_not_done_again(world: World) -> None:
    gang = world.submit()
    world.succeed(gang)
    again = world.ensure(submission())[0]
    assert (again.gang, again.created, again.state) == (gang, False, GangState.SUCCEEDED)
    assert watch(world, gang, again.token).view.result == {"rank": 0}


def test_after_a_failure_the_slot_gets_a_new_gang_linked_to_the_old(world: World) -> None:
    gang = world.submit()
    world.run(gang)
    world.fail(gang)
    new = world.ensure(submission())[0]
    assert new.created
    assert world.view(new.gang).previous == gang
    assert world.view(new.gang).epoch == 0
    assert world.view(gang).state == GangState.FAILED


def test_other_work_is_accepted_once_the_slot_is_free(world: World) -> None:
    gang = world.submit()
    world.run(gang)
    world.fail(gang)
    assert world.ensure(submission(snapshot="a" * 64))[0].created
    done = world.submit("other")
    world.succeed(done)
    assert world.ensure(submission("other", snapshot="b" * 64))[0].created


def test_an_older_epoch_is_refused(world: World) -> None:
    world.submit(epoch=3)
    with pytest.raises(Conflict, match="epoch 3"):
        world.ensure(submission(epoch=2))


def test_a_newer_epoch_replaces_a_queued_gang_at_once(world: World) -> None:
    old = world.submit()
    new = world.submit(epoch=1)
    assert world.view(old).state == GangState.CANCELLED
    assert world.view(new).previous == old
    assert new in world.plan().accepted


def test_a_newer_epoch_waits_until_the_old_gang_has_released(world: World) -> None:
    old = world.submit(grace="30s")
    world.run(old)
    old_token = world.tokens[old]
    new = world.submit(epoch=1)
    view = world.view(new)
    assert view.state == GangState.QUEUED
    assert view.wait is not None
    assert (view.wait.code, view.wait.blocked_by[0].gang) == ("order", old)
    assert loop.snapshot(world.store, world.fleet, now_ms=world.now_ms).pending == ()
    assert {(o.phase, o.grace_s) for o in world.order(old).values()} == {(OrderPhase.STOP, 30.0)}
    with pytest.raises(Superseded):
        watch(world, old, old_token)
    stale = submit.cancel(world.store, new, old_token, "on_kill", now_ms=world.now_ms)
    assert stale.cancel_requested is None
    world.everywhere(old, Empty)
    assert world.view(old).state == GangState.CANCELLED
    assert world.view(old).end.text == "superseded by epoch 1"  # type: ignore[union-attr]
    world.run(new)


def test_a_third_epoch_also_waits_for_the_first(world: World) -> None:
    old = world.submit()
    world.run(old)
    second, third = world.submit(epoch=1), world.submit(epoch=2)
    assert world.view(second).state == GangState.CANCELLED
    assert loop.snapshot(world.store, world.fleet, now_ms=world.now_ms).pending == ()
    world.everywhere(old, Empty)
    assert [p.gang for p in loop.snapshot(world.store, world.fleet, now_ms=world.now_ms).pending] == [third]


def test_a_gang_told_to_end_no_longer_holds_its_slot(world: World) -> None:
    old = world.submit()
    world.run(old)
    submit.cancel(world.store, old, world.tokens[old], "task killed", now_ms=world.now_ms)
    new = world.ensure(submission(snapshot="c" * 64))[0]
    assert new.created
    assert loop.snapshot(world.store, world.fleet, now_ms=world.now_ms).pending == ()
    assert watch(world, old).view.cancel_requested == "task killed"


def test_many_are_ensured_together_or_not_at_all(world: World) -> None:
    held = world.submit("array#1")
    with pytest.raises(Conflict):
        world.ensure(*(submission(f"array#{i}", name="other") for i in range(3)))
    assert [view.gang for view in views.list_gangs(world.store)] == [held]
    many = world.ensure(*(submission(f"many#{i}") for i in range(3)))
    assert len({one.gang for one in many}) == 3
    with pytest.raises(Rejected, match="2 times"):
        world.ensure(submission("x"), submission("x"))


def test_what_can_never_run_is_refused_and_not_stored(world: World) -> None:
    with pytest.raises(Rejected, match="no such GPU"):
        world.ensure(submission(), refusal=lambda spec: Rejected("no such GPU in the fleet"))
    assert views.list_gangs(world.store) == []
    gang = world.submit()
    again = world.ensure(submission(), refusal=lambda spec: Rejected("the fleet has shrunk"))[0]
    assert (again.gang, again.created) == (gang, False)


def test_fields_without_effect_yet_are_refused(world: World) -> None:
    with pytest.raises(Rejected, match="secrets"):
        world.submit(secrets=["KEY"])


def test_a_seed_version_must_exist(world: World) -> None:
    with pytest.raises(Rejected, match="sft@3"):
        world.submit(volumes={"/ckpt": {"volume": "sft", "from": "sft@3"}})
    with pytest.raises(Rejected, match="named best"):
        world.submit(volumes={"/ckpt": {"volume": "sft", "from": "sft@best"}})
    with pytest.raises(Rejected, match="another volume"):
        world.submit(volumes={"/ckpt": {"volume": "sft", "from": "base@1"}})
    assert versions.volumes(world.store, world.root) == []


def test_watch_gives_the_events_after_the_cursor(world: World) -> None:
    gang = world.submit()
    first = watch(world, gang)
    assert [event.kind for event in first.events] == ["gang.submitted"]
    assert watch(world, gang, cursor=first.cursor).events == ()
    world.run(gang)
    news = watch(world, gang, cursor=first.cursor)
    assert "gang.running" in [event.kind for event in news.events]
    assert news.cursor == news.events[-1].seq
    with pytest.raises(NotFound):
        watch(world, "g-none", "x")


def test_cancel_needs_the_owners_token_or_a_person(world: World) -> None:
    gang = world.submit()
    assert submit.cancel(world.store, gang, "wrong", "no", now_ms=1).state == GangState.QUEUED
    assert submit.cancel(world.store, gang, "", "no", now_ms=1).state == GangState.QUEUED
    assert submit.cancel(world.store, gang, None, "enough", now_ms=1).state == GangState.CANCELLED
    view = submit.cancel(world.store, gang, None, "again", now_ms=2)
    assert view.cancel_requested == "enough"


def test_a_running_gang_is_cancelled_with_its_grace(world: World) -> None:
    gang = world.submit(grace="45s", retries={"user": 3})
    world.run(gang)
    submit.cancel(world.store, gang, world.tokens[gang], "stop", now_ms=world.now_ms)
    assert {(o.phase, o.grace_s) for o in world.order(gang).values()} == {(OrderPhase.STOP, 45.0)}
    world.exit(gang, 0, Cause.USER)
    world.everywhere(gang, Empty)
    view = world.view(gang)
    assert view.state == GangState.CANCELLED
    assert view.end is not None
    assert (view.end.cause, view.end.text) == (Cause.CANCELLED, "stop")


def test_a_cancel_during_the_end_of_a_failed_attempt_forbids_the_next_one(world: World) -> None:
    gang = world.submit(retries={"user": 3})
    world.run(gang)
    world.exit(gang, 0, Cause.USER)
    submit.cancel(world.store, gang, None, "stop", now_ms=world.now_ms)
    world.everywhere(gang, Empty)
    assert world.view(gang).state == GangState.CANCELLED


def test_a_gang_waiting_for_its_next_attempt_gives_its_leases_back_when_cancelled(world: World) -> None:
    gang = world.submit(retries={"user": 3})
    world.run(gang)
    world.fail(gang)
    submit.cancel(world.store, gang, None, "stop", now_ms=world.now_ms)
    assert world.view(gang).state == GangState.CANCELLED
    with world.store.transaction() as tx:
        assert tx.leases.all_open() == ()


def test_a_cancel_after_every_rank_ended_well_comes_too_late(world: World) -> None:
    gang = world.submit()
    world.run(gang)
    world.exit_all(gang)
    submit.cancel(world.store, gang, None, "stop", now_ms=world.now_ms)
    world.everywhere(gang, Empty)
    assert world.view(gang).state == GangState.SUCCEEDED


def test_a_newer_epoch_lets_a_committing_gang_finish_first(world: World) -> None:
    old = world.submit()
    world.run(old)
    world.exit_all(old)
    new = world.submit(epoch=1)
    assert loop.snapshot(world.store, world.fleet, now_ms=world.now_ms).pending == ()
    world.everywhere(old, Empty)
    assert world.view(old).state == GangState.SUCCEEDED
    world.run(new)


def test_a_slot_is_cancelled_up_to_an_epoch(world: World) -> None:
    gang = world.submit(epoch=2)
    world.run(gang)
    assert submit.cancel_slot(world.store, SLOT, 1, "listener", now_ms=world.now_ms) == []
    assert submit.cancel_slot(world.store, SLOT, 2, "listener", now_ms=world.now_ms) == [gang]
    assert submit.cancel_slot(world.store, SLOT, 2, "listener", now_ms=world.now_ms) == []
    assert submit.cancel_slot(world.store, "nothing", 2, "listener", now_ms=world.now_ms) == []
    assert phases(list(world.order(gang).values())) == [OrderPhase.STOP] * 2


def test_a_gang_is_found_by_id_by_name_and_by_beginning(world: World) -> None:
    gang = world.submit("a", name="sft")
    world.submit("b", name="eval-1")
    world.submit("c", name="eval-2")
    for text in (gang, "sft", "sf"):
        assert views.observe(world.store, text).gang == gang
    with pytest.raises(Conflict, match="eval"):
        views.observe(world.store, "eval")
    with pytest.raises(NotFound):
        views.observe(world.store, "nope%")


def test_lists_are_newest_first_and_narrowed(world: World) -> None:
    gangs = [world.submit(f"x/{i}") for i in range(3)]
    world.succeed(gangs[0])
    assert [v.gang for v in views.list_gangs(world.store)] == gangs[::-1]
    assert [v.gang for v in views.list_gangs(world.store, (GangState.SUCCEEDED,))] == gangs[:1]
    assert [v.gang for v in views.list_gangs(world.store, (), "x/1")] == [gangs[1]]
    assert [v.gang for v in views.list_gangs(world.store, limit=1)] == [gangs[2]]
    assert views.list_gangs(world.store, (), "x_") == []
    assert (views.status_counts(world.store).active, views.status_counts(world.store).queued) == (2, 1)
