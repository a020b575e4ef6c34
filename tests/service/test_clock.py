"""What the clock alone decides: timeouts, orphans, start deadlines."""

from __future__ import annotations

import pytest
from service_world import World

from gangline.model.orders import Empty, OrderPhase, Ready
from gangline.model.states import Cause, GangState
from gangline.model.volume import FileEntry
from gangline.service import loop, saves, submit


def tick(world: World, seconds: float) -> int | None:
    return loop.tick(world.store, now_ms=world.later(seconds))


def test_nothing_to_do_means_no_deadline(world: World) -> None:
    assert loop.tick(world.store, now_ms=world.now_ms) is None


def test_the_timeout_counts_running_time_of_all_attempts(world: World) -> None:
    gang = world.submit("cli/x", timeout="100s", retries={"user": 1}, grace="5s")
    tick(world, 1000)
    world.run(gang)
    assert tick(world, 60) == world.now_ms + 40_000
    world.fail(gang)
    tick(world, 1000)
    world.run(gang)
    assert tick(world, 39) == world.now_ms + 1_000
    assert world.view(gang).cancel_requested is None
    tick(world, 1)
    assert {(o.phase, o.grace_s) for o in world.order(gang).values()} == {(OrderPhase.STOP, 5.0)}
    world.everywhere(gang, Empty)
    view = world.view(gang)
    assert view.state == GangState.FAILED
    assert view.end is not None
    assert view.end.cause == Cause.TIMEOUT


def test_the_plan_knows_when_a_limit_ends_a_gang(world: World) -> None:
    gang = world.submit("cli/x", timeout="100s")
    assert loop.snapshot(world.store, world.fleet, now_ms=1).pending[0].limit_ms == 100_000
    world.run(gang)
    assert loop.snapshot(world.store, world.fleet, now_ms=1).running[0].ends_by_ms == world.now_ms + 100_000


def test_a_step_nobody_watches_is_ended_with_time_for_a_checkpoint(world: World) -> None:
    gang = world.submit(orphan_after="60s", grace="9s")
    world.run(gang)
    assert tick(world, 59) == world.now_ms + 1_000
    submit.watch(world.store, gang, world.tokens[gang], 0, now_ms=world.now_ms)
    assert tick(world, 59) == world.now_ms + 1_000
    tick(world, 1)
    assert {o.grace_s for o in world.order(gang).values()} == {9.0}
    world.everywhere(gang, Empty)
    view = world.view(gang)
    assert view.state == GangState.CANCELLED
    assert view.end is not None
    assert view.end.cause == Cause.ORPHANED


def test_an_orphan_can_be_ended_at_once(world: World) -> None:
    gang = world.submit(orphan_after="60s", on_orphan="cancel")
    world.run(gang)
    tick(world, 60)
    assert {o.grace_s for o in world.order(gang).values()} == {0.0}


@pytest.mark.parametrize(("slot", "fields"), [("cli/1", {}), ("dag/x", {"on_orphan": "keep"})])
def test_some_gangs_are_kept_without_anybody(world: World, slot: str, fields: dict[str, str]) -> None:
    gang = world.submit(slot, orphan_after="60s", **fields)
    assert tick(world, 10_000) is None
    assert world.view(gang).state == GangState.QUEUED


def test_a_queued_orphan_is_cancelled(world: World) -> None:
    gang = world.submit(orphan_after="60s")
    tick(world, 60)
    assert world.view(gang).state == GangState.CANCELLED


def test_ensure_renews_the_owners_lease(world: World) -> None:
    gang = world.submit(orphan_after="60s")
    world.later(59)
    assert world.submit(orphan_after="60s") == gang
    tick(world, 59)
    assert world.view(gang).state == GangState.QUEUED


def test_an_attempt_that_does_not_get_going_is_tried_again(world: World) -> None:
    gang = world.submit("cli/x")
    world.plan()
    late = world.view(gang).attempts[0].nodes[1].node
    world.report(world.view(gang).attempts[0].nodes[0].node, Ready(**world.about(gang)))
    assert loop.tick(world.store, now_ms=world.now_ms) == world.now_ms + loop.START_DEADLINE_MS
    tick(world, loop.START_DEADLINE_MS / 1000)
    end = world.view(gang).attempts[0].end
    assert end is not None
    assert end.cause == Cause.LAUNCH
    assert late in end.text
    world.everywhere(gang, Empty)
    assert world.view(gang).state == GangState.QUEUED


def test_reading_a_large_version_before_the_start_has_its_time(world: World) -> None:
    gang = world.submit("cli/x", size=1, gpu="H100:2", volumes={"/ckpt": "sft"}, retries={"user": 1})
    world.run(gang)
    number = world.open_save(gang)
    large = FileEntry(path="shard", bytes=400_000_000_000, sha256="0" * 64)
    for rank in world.view(gang).ranks:
        saves.report_save(world.store, world.saved(gang, number, rank.rank, files=(large,)),
                          now_ms=world.now_ms, volumes_root=world.root)
    world.fail(gang)
    world.plan()
    assert world.view(gang).attempts[-1].resume
    assert tick(world, loop.START_DEADLINE_MS / 1000) == world.now_ms + 400_000_000_000 // loop.VERIFY_BYTES_PER_MS
    assert world.view(gang).state == GangState.PLACED
