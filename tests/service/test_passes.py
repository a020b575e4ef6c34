"""Passes are kept, the newest ones, and writing them never takes much of the loop's time."""

from __future__ import annotations

import pytest
from service_world import World

from gangline.model.errors import NotFound
from gangline.plan.outcome import WaitCode, Waiting
from gangline.plan.planner import plan
from gangline.plan.policy import Policy
from gangline.plan.wire import Inputs, read_inputs, read_plan
from gangline.service import loop
from gangline.service.passes import COST, MOST_NAMED, Recorder, decided, get_pass, list_passes


def look(world: World) -> Inputs:
    return Inputs(loop.snapshot(world.store, world.fleet, now_ms=world.now_ms), Policy(), world.now_ms)


def keep(recorder: Recorder, inputs: Inputs) -> int:
    found = plan(inputs.snapshot, inputs.policy, inputs.now_ms)
    packed = recorder.pack(inputs) if decided(found) else None
    return recorder.keep(inputs, packed, found, trigger="change", duration_us=7, refused=0)


def test_a_pass_is_kept_with_all_it_was_made_from(world: World) -> None:
    world.submit("a")
    world.submit("b", size=4)
    recorder, inputs = Recorder(world.store), look(world)
    number = keep(recorder, inputs)
    found = get_pass(world.store, number, inputs=True)
    assert found.inputs is not None
    back = read_inputs(found.inputs)
    assert (back.snapshot.nodes, back.snapshot.pending) == (inputs.snapshot.nodes, inputs.snapshot.pending)
    assert read_plan(found.plan) == plan(back.snapshot, back.policy, back.now_ms)
    summary = list_passes(world.store)[0]
    assert (summary.id, summary.placed, summary.pending, summary.replayable, summary.duration_us) == (
        number, 1, 2, True, 7)
    assert summary.size_bytes > 0


def test_only_the_newest_are_kept_by_number_and_by_size(world: World) -> None:
    world.submit()
    recorder = Recorder(world.store, most_passes=3)
    numbers = [keep(recorder, look(world)) for _ in range(5)]
    assert [each.id for each in list_passes(world.store)] == numbers[:1:-1]
    assert [each.id for each in list_passes(world.store, before=numbers[-1], limit=1)] == [numbers[-2]]
    with pytest.raises(NotFound):
        get_pass(world.store, numbers[0])
    small = Recorder(world.store, most_bytes=1)
    last = keep(small, look(world))
    assert [each.id for each in list_passes(world.store)] == [last]


def test_inputs_that_take_long_to_write_are_not_written_each_time(world: World) -> None:
    world.submit()
    clock_s = [0.0]

    def ticking() -> float:
        clock_s[0] += 1.0
        return clock_s[0]

    recorder = Recorder(world.store, clock_s=ticking)
    assert recorder.pack(look(world)) is not None
    assert recorder.pack(look(world)) is None
    clock_s[0] += 2 * COST
    assert recorder.pack(look(world)) is not None


def test_a_reason_of_a_backlog_names_only_some_when_nobody_can_make_the_plan_again(world: World) -> None:
    inputs = look(world)
    many = tuple(f"g-{i}" for i in range(MOST_NAMED + 5))
    found = plan(inputs.snapshot, inputs.policy, inputs.now_ms)
    waiting = Waiting(gangs=many, code=WaitCode.BUSY, text="t", short=1)
    found = type(found)(base=found.base, now_ms=found.now_ms, waiting=(waiting,))
    recorder = Recorder(world.store)
    number = recorder.keep(inputs, None, found, trigger="time", duration_us=1, refused=0)
    kept = get_pass(world.store, number, inputs=True)
    assert kept.inputs is None
    assert (len(kept.plan["waiting"][0]["gangs"]), kept.plan["waiting"][0]["more"]) == (MOST_NAMED, 5)
    assert len(read_plan(kept.plan).waiting[0].gangs) == MOST_NAMED
