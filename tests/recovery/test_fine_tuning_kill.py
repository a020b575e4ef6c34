"""The example's fine-tuning, killed in mid-training, ends as the uninterrupted one does."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest
from fleet_world import World

from gangline.client.submission import Origin, prepare, submit
from gangline.model.gang import GangView
from gangline.model.states import Cause, GangState

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
from posttrain import steps

STEPS, SAVE_EVERY = 24, 6
TOLERANCE = 1e-6  # of the loss in nats per byte


@pytest.mark.slow
@pytest.mark.torch
def test_a_killed_fine_tuning_resumes_and_comes_to_the_same_losses(world: World,
                                                                  monkeypatch: pytest.MonkeyPatch) -> None:
    base = run(world, "test:pretrain", steps.pretrain.options(gpu="H100:8", ranks_per_node=2), steps=3)
    tune = steps.finetune.options(volumes=steps.mounts(base=base.ranks[0].result["version"]), rdma=False)
    whole = run(world, "test:whole", tune, steps=STEPS, save_every=SAVE_EVERY)

    gang = start(world, "test:killed", tune, steps=STEPS, save_every=SAVE_EVERY)
    world.until_step(gang, SAVE_EVERY + 2)
    os.kill(a_rank_of(world, gang), signal.SIGKILL)
    killed = world.until_final(gang)

    assert killed.state is GangState.SUCCEEDED, killed.end
    assert killed.attempts[0].end is not None
    assert killed.attempts[0].end.cause is Cause.LOST
    result = killed.ranks[0].result
    assert result["resumed_at"] in range(SAVE_EVERY, STEPS, SAVE_EVERY)
    assert [step for step, _ in result["curve"]] == [step for step, _ in whole.ranks[0].result["curve"]]
    apart = [abs(a - b) for (_, a), (_, b) in zip(result["curve"], whole.ranks[0].result["curve"], strict=True)]
    assert max(apart) < TOLERANCE
    assert killed.versions[-1].step == whole.versions[-1].step == STEPS


def start(world: World, slot: str, target: object, **args: object) -> str:
    prepared = prepare(target, args, origin=Origin(slot=slot, home=world.home))  # type: ignore[arg-type]
    return submit(world.client, [prepared])[0].gang


def run(world: World, slot: str, target: object, **args: object) -> GangView:
    view = world.until_final(start(world, slot, target, **args))
    assert view.state is GangState.SUCCEEDED, view.end
    return view


def a_rank_of(world: World, gang: str) -> int:
    """The pid of some rank of the gang: it writes to a log that is named after both."""
    for path in Path("/proc").glob("[0-9]*"):
        try:
            files = [os.readlink(link) for link in (path / "fd").iterdir()]
        except OSError:
            continue
        if any(f"/{gang}." in name and Path(name).name.startswith("rank-") for name in files):
            return int(path.name)
    raise AssertionError(f"no process writes a log of {gang}")
