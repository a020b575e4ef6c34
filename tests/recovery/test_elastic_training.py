"""The example's training, preempted, grown and shrunk, learns what it learns undisturbed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from fleet_world import World, fleet_world

from gangline.client.submission import Origin, prepare, submit
from gangline.model.gang import GangView
from gangline.model.states import Cause, GangState

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
import elastic

HERE = Path(__file__).parent
FLEET = """
pools: [{name: a, gpu: "H100:8", fabric: ib-1, zone: z1, min: 4, max: 4, emulated: true}]
scheduling: {min_runtime: 0s, cool_down: 0s, resize_every: 0s}
"""
STEPS = 400
TOLERANCE = 1e-4  # of the loss: sums over 2 and over 4 ranks round differently


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    with fleet_world(monkeypatch, FLEET, preload="torch,torch.distributed.checkpoint,torch._dynamo") as made:
        yield made


@pytest.mark.slow
@pytest.mark.torch
def test_it_learns_the_same_however_often_it_is_interrupted(world: World) -> None:
    whole = world.until_final(start(world, "test:whole", size=2, step_s=0.0))
    assert whole.state is GangState.SUCCEEDED, whole.end

    gang = start(world, "test:elastic", size="2..4", step_s=0.03)
    reach(world, gang, 1, 4)
    urgent = hold(world, 1, size=2)
    reach(world, gang, 2, 2)
    let_go(world, urgent, 1)
    reach(world, gang, 3, 4)
    urgent = hold(world, 2, size=4)
    world.until(urgent, lambda view: view.state is GangState.RUNNING, "running")
    let_go(world, urgent, 2)
    view = world.until_final(gang)

    assert view.state is GangState.SUCCEEDED, view.end
    causes = [attempt.end.cause for attempt in view.attempts if attempt.end is not None]
    assert causes == [Cause.RESIZED, Cause.RESIZED, Cause.PREEMPTED, Cause.SUCCESS]
    steps = {version.version: version.step for version in view.versions}
    resumed = [[steps[resume.version] for resume in attempt.resume] for attempt in view.attempts]
    assert resumed[0] == []
    assert resumed[1] < resumed[2] < resumed[3] == [view.result["resumed_at"]]
    apart = [abs(a - b) for a, b in zip(view.result["losses"], whole.result["losses"], strict=True)]
    assert max(apart) < TOLERANCE
    assert view.result["losses"][-1] < view.result["losses"][0] / 4


@pytest.mark.slow
@pytest.mark.torch
def test_workers_below_torchrun_save_when_their_gang_makes_room(world: World) -> None:
    command = ["python", "-m", "torch.distributed.run", "--nproc-per-node", "2", "torchrun_train.py"]
    spec = {"name": "below", "gpu": "H100:8", "ranks_per_node": 1, "command": command, "workdir": str(HERE),
            "priority": "low", "volumes": {"/ckpt": "below"}}
    prepared = prepare(spec, {}, origin=Origin(slot="test:below", home=world.home))
    gang = submit(world.client, [prepared])[0].gang
    world.until_step(gang, 10)
    urgent = hold(world, 1, size=4)
    world.until(urgent, lambda view: view.state is GangState.RUNNING, "running")
    view = world.client.observe(gang)
    assert [attempt.end.cause for attempt in view.attempts if attempt.end] == [Cause.PREEMPTED]
    [version] = view.versions
    assert version.step is not None
    assert version.step >= 10
    world.client.cancel(gang, None, "enough")
    let_go(world, urgent, 1)


def start(world: World, slot: str, *, size: int | str, step_s: float) -> str:
    target = elastic.train.options(size=size)
    prepared = prepare(target, {"steps": STEPS, "step_s": step_s}, origin=Origin(slot=slot, home=world.home))
    return submit(world.client, [prepared])[0].gang


def reach(world: World, gang: str, attempt: int, size: int) -> GangView:
    """The gang once its attempt of that number, with so many nodes, has made some steps."""
    def begun(view: GangView) -> bool:
        return len(view.attempts) == attempt and view.state is GangState.RUNNING and bool(view.progress.step)

    view = world.until(gang, begun, f"in attempt {attempt}")
    assert len(view.attempts[-1].nodes) == size
    return world.until_step(gang, (view.progress.step or 0) + 10)


def hold(world: World, number: int, size: int) -> str:
    folder = world.marks / f"urgent-{number}"
    folder.mkdir()
    return world.start("hold", f"test:urgent-{number}", size=size, marks=str(folder),
                       spec={"priority": "high", "volumes": {}}).gang


def let_go(world: World, gang: str, number: int) -> None:
    (world.marks / f"urgent-{number}" / "go").touch()
    assert world.until_final(gang).state is GangState.SUCCEEDED
