"""Why gangs wait lives in memory: who is told, and what it costs a backlog."""

from __future__ import annotations

import dataclasses

from service_world import World, kinds

from gangline.plan.outcome import WaitCode, Waiting
from gangline.service import loop
from gangline.service.reasons import MOST_EVENTS, Reasons, Told, record


def waits(*gangs: str, text: str = "t", **other: object) -> Waiting:
    return Waiting(gangs=gangs, code=WaitCode.BUSY, text=text, short=1, **other)  # type: ignore[arg-type]


class Speaker:
    """A world whose passes are written by hand."""

    def __init__(self, world: World) -> None:
        self.world, self.reasons = world, Reasons()
        world.store.reasons = self.reasons.wait

    def say(self, *waiting: Waiting) -> Told:
        snapshot = loop.snapshot(self.world.store, self.world.fleet, now_ms=self.world.now_ms)
        told = self.reasons.say(waiting, snapshot, self.world.now_ms)
        record(self.world.store, self.reasons, told.reworded, self.world.now_ms)
        return told


def test_a_reason_names_its_holders_and_is_told_again_when_it_changed(world: World) -> None:
    speaker = Speaker(world)
    holder, gang = world.submit("a", size=4), world.submit("b", name="second")
    world.plan()
    assert world.view(gang).wait is None
    at_ms = world.now_ms + 100_000
    why = waits(gang, blocked_by=(holder,), earliest_ms=at_ms)
    assert gang in speaker.say(why)
    wait = world.view(gang).wait
    assert wait is not None
    assert (wait.code, wait.short, wait.earliest_ms) == ("busy", 1, at_ms)
    assert (wait.blocked_by[0].gang, wait.blocked_by[0].slot) == (holder, "a")
    mark = speaker.reasons.mark(gang)
    for drift_ms in (900, -900, 9_999):
        assert not speaker.say(dataclasses.replace(why, earliest_ms=at_ms + drift_ms))
    assert speaker.reasons.mark(gang) == mark
    assert gang in speaker.say(dataclasses.replace(why, earliest_ms=at_ms + 10_001))
    assert speaker.reasons.mark(gang) > mark
    assert kinds(world, gang).count("plan.waiting") == 1  # a forecast is no event
    assert gang in speaker.say(dataclasses.replace(why, text="other"))
    assert kinds(world, gang).count("plan.waiting") == 2


def test_waiting_on_wakes_nobody_and_asks_for_no_plan(world: World) -> None:
    speaker = Speaker(world)
    gang = world.submit()
    speaker.say(waits(gang))
    version, told = world.store.version(), []
    world.store.on_commit.append(lambda gangs, nodes: told.append(gangs))
    assert not speaker.say(waits(gang))
    assert told == []
    assert world.store.version() == version


def test_only_who_comes_to_a_group_is_told(world: World) -> None:
    speaker = Speaker(world)
    gangs = [world.submit(f"s{i}") for i in range(4)]
    speaker.say(waits(*gangs[:3]))
    told = speaker.say(waits(*gangs[1:]))
    assert [gang in told for gang in gangs] == [False, False, False, True]
    assert speaker.reasons.wait(gangs[0]) is None
    told = speaker.say(waits(gangs[1]), waits(*gangs[2:], text="else"))
    assert [gang in told for gang in gangs] == [False, False, True, True]
    told = speaker.say(waits(*gangs[1:]))
    assert [gang in told for gang in gangs] == [False, False, True, True]
    assert 3 not in told


def test_a_backlog_costs_few_events_and_no_rows(world: World) -> None:
    speaker = Speaker(world)
    gangs = [f"g-{i:012d}" for i in range(5_000)]
    told = speaker.say(waits(*gangs))
    assert len(told.reworded) == MOST_EVENTS
    assert gangs[-1] in told
    told = speaker.say(waits(*gangs[:-1]))
    assert not told
    told = speaker.say(waits(gangs[0], text="placed soon"))
    assert told.reworded == (gangs[0],)
    assert len(speaker.reasons._of) == 1


def test_a_gang_that_waits_for_the_one_it_replaces_needs_no_pass(world: World) -> None:
    first = world.submit(epoch=0)
    world.run(first)
    second = world.submit(epoch=1)
    wait = world.view(second).wait
    assert wait is not None
    assert (wait.code, wait.blocked_by[0].gang) == ("order", first)
    assert world.view(first).wait is None
