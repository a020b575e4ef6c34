"""Gangs that make room, grow and shrink, in real processes: what they saved in their grace goes on."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest
from fleet_world import World, dead, fleet_world
from gang_work import curve

from gangline.model.gang import AttemptView, GangView
from gangline.model.states import Cause, GangState

POOL = ('{{name: a, gpu: "H100:8", fabric: ib-1, zone: z1, min: 4, max: 4, price_per_gpu_hour: "2.50", '
        'emulated: true, spares: {spares}}}')
AT_ONCE = "scheduling: {min_runtime: 0s, cool_down: 0s, resize_every: 3s}"
LOW = {"priority": "low", "grace": "60s"}
HIGH = {"priority": "high", "name": "urgent", "volumes": {}}


@pytest.fixture
def spares() -> int:
    return 0


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch, spares: int) -> Iterator[World]:
    with fleet_world(monkeypatch, f"pools: [{POOL.format(spares=spares)}]\n{AT_ONCE}\n") as made:
        yield made


def cause(attempt: AttemptView) -> Cause | None:
    return None if attempt.end is None else attempt.end.cause


def asked_to_stop(view: GangView) -> bool:
    return cause(view.attempts[-1]) is Cause.PREEMPTED


def urgent(world: World, number: int = 1, size: int = 2) -> str:
    """A gang of high priority that runs until the file `go` appears in a folder of its own."""
    folder = world.marks / f"urgent-{number}"
    folder.mkdir()
    return world.start("hold", f"test:urgent-{number}", size=size, spec=HIGH, marks=str(folder)).gang


def let_go(world: World, gang: str, number: int = 1) -> None:
    (world.marks / f"urgent-{number}" / "go").touch()
    assert world.until_final(gang).state is GangState.SUCCEEDED


def saved_at(world: World, attempt: int) -> int:
    """The step that rank 0 of an attempt saved in its grace; 0 before the first one."""
    return int((world.marks / f"saved-{attempt}").read_text()) if attempt else 0


def test_it_makes_room_twice_and_its_curve_goes_on(world: World) -> None:
    low = world.start("polite", "test:low", size=4, spec=LOW).gang
    for number in (1, 2):
        world.until_step(low, saved_at(world, number - 1) + 10)
        pids = world.pids(number)
        high = urgent(world, number)
        world.until(high, lambda view: view.state is GangState.RUNNING, "running")
        view = world.client.observe(low)
        assert (view.state, len(view.attempts)) == (GangState.QUEUED, number), "what it was ended for is not its own"
        assert view.attempts[-1].end is not None
        assert view.attempts[-1].end.text == f"made room for urgent (tenant default, slot test:urgent-{number})"
        assert all(dead(pid) for pid in pids.values())
        assert {(rank.exit_code, rank.signal, rank.result) for rank in view.ranks} == {(0, None, None)}, "not done"
        let_go(world, high, number)
    world.until_step(low, saved_at(world, 2) + 10)
    (world.marks / "end").touch()
    view = world.until_final(low)
    assert view.state is GangState.SUCCEEDED, view.end
    assert [cause(attempt) for attempt in view.attempts] == [Cause.PREEMPTED, Cause.PREEMPTED, Cause.SUCCESS]
    assert [[resume.version for resume in attempt.resume] for attempt in view.attempts] == [[], [1], [2]]
    assert view.result["resumed_at"] == saved_at(world, 2) > saved_at(world, 1)
    assert view.result["curve"] == curve(len(view.result["curve"]))


def test_a_server_killed_in_the_middle_of_the_grace_changes_nothing(world: World) -> None:
    low = world.start("polite", "test:low", size=4, spec=LOW, gate=True).gang
    world.until_step(low, 10)
    high = urgent(world)
    world.until(low, lambda view: asked_to_stop(view) and len(list(world.marks.glob("asked-1.*"))) == 8, "asked")
    before = world.server()
    os.kill(before, signal.SIGKILL)
    (world.marks / "save").touch()

    world.until(high, lambda view: view.state is GangState.RUNNING, "running")
    assert world.server() != before
    [version] = world.client.observe(low).versions
    (world.marks / "end").touch()
    let_go(world, high)
    view = world.until_final(low)
    assert view.state is GangState.SUCCEEDED, view.end
    assert [cause(attempt) for attempt in view.attempts] == [Cause.PREEMPTED, Cause.SUCCESS]
    assert [resume.version for resume in view.attempts[1].resume] == [version.version]
    assert view.result["resumed_at"] == saved_at(world, 1)
    assert world.events(low).count("preempt.requested") == 1


def test_a_cancel_during_the_grace_ends_it_for_good(world: World) -> None:
    low = world.start("polite", "test:low", size=4, spec=LOW, gate=True)
    world.until_step(low.gang, 10)
    high = urgent(world)
    world.until(low.gang, asked_to_stop, "asked to make room")
    world.client.cancel(low.gang, low.token, "enough")
    assert world.client.observe(low.gang).state is GangState.RUNNING, "its grace is still its own"
    (world.marks / "save").touch()
    view = world.until_final(low.gang)
    assert (view.state, len(view.attempts)) == (GangState.CANCELLED, 1)
    assert len(view.versions) == 1, "what it saved stays"
    world.until(high, lambda view: view.state is GangState.RUNNING, "running")
    let_go(world, high)


def test_a_gang_that_has_hardly_begun_makes_room_too(world: World) -> None:
    low = world.start("polite", "test:low", size=4, spec=LOW, steps=20).gang
    world.until(low, lambda view: view.state is not GangState.QUEUED, "placed")
    high = urgent(world)
    world.until(high, lambda view: view.state is GangState.RUNNING, "running")
    let_go(world, high)
    view = world.until_final(low)
    assert view.state is GangState.SUCCEEDED, view.end
    assert view.result["curve"] == curve(20)
    assert cause(view.attempts[0]) is Cause.PREEMPTED


def test_an_elastic_gang_grows_when_nodes_get_free_and_shrinks_for_another(world: World) -> None:
    first = urgent(world, 1)
    world.until(first, lambda view: view.state is GangState.RUNNING, "running")
    low = world.start("polite", "test:low", size="2..4", spec=LOW).gang
    world.until_step(low, 10)
    let_go(world, first, 1)
    world.until(low, lambda view: len(view.attempts) == 2 and view.state is GangState.RUNNING, "larger")
    world.until_step(low, saved_at(world, 1) + 5)
    second = urgent(world, 2)
    world.until(second, lambda view: view.state is GangState.RUNNING, "running")
    world.until(low, lambda view: len(view.attempts) == 3 and view.state is GangState.RUNNING, "smaller")
    (world.marks / "end").touch()
    view = world.until_final(low)
    let_go(world, second, 2)

    assert view.state is GangState.SUCCEEDED, view.end
    assert [cause(attempt) for attempt in view.attempts] == [Cause.RESIZED, Cause.RESIZED, Cause.SUCCESS]
    assert [len(attempt.nodes) for attempt in view.attempts] == [2, 4, 2]
    assert [[resume.version for resume in attempt.resume] for attempt in view.attempts] == [[], [1], [2]]
    nodes = [{share.node for share in attempt.nodes} for attempt in view.attempts]
    assert nodes[0] < nodes[1]
    assert nodes[2] < nodes[1]
    result = view.result
    assert (result["resumed_at"], result["size"], result["most"]) == (saved_at(world, 2), 2, 4)
    assert result["curve"] == curve(len(result["curve"]))


@pytest.mark.parametrize("spares", [1])
def test_a_spare_takes_the_place_of_a_killed_node(world: World) -> None:
    gang = world.start("train", "test:spare", size=3, steps=60).gang
    view = world.until_step(gang, 15)
    names = [share.node for share in view.attempts[0].nodes]
    [spare] = {node.node for node in world.client.nodes()} - set(names)
    os.kill(world.supervisors()[names[1]], signal.SIGKILL)

    view = world.until_final(gang)
    assert view.state is GangState.SUCCEEDED, view.end
    assert cause(view.attempts[0]) is Cause.LOST
    assert {share.node for share in view.attempts[1].nodes} == {names[0], names[2], spare}
    first_half = [event for event in world.client.events(gang).events if event.kind in ("lease.opened", "lease.closed")]
    assert [(event.kind, event.data["node"]) for event in first_half][3:5] == [
        ("lease.closed", names[1]), ("lease.opened", spare)], "the others kept their leases"
