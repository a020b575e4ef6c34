"""kill -9 of a rank, a supervisor, the server and the pipeline's process, in mid-training."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from fleet_world import SUPPORT, World, dead

from gangline.model.gang import GangView
from gangline.model.states import Cause, GangState

STEPS = 60


def ended_as_if_uninterrupted(view: GangView) -> bool:
    """Every rank counted every step once, through however many attempts."""
    assert view.state is GangState.SUCCEEDED, view.end
    return all(rank.result["step"] == STEPS and rank.result["whole"] for rank in view.ranks)


def test_a_killed_rank_takes_its_gang_down_and_the_next_attempt_resumes(world: World) -> None:
    gang = world.start("train", "test:rank", steps=STEPS).gang
    world.until_step(gang, 25)
    first = world.pids(1)
    os.kill(first[1], signal.SIGKILL)

    view = world.until(gang, lambda v: v.attempts[0].end is not None and len(v.attempts) > 1, "in attempt 2")
    assert all(dead(pid) for pid in first.values())
    end = view.attempts[0].end
    assert end is not None
    assert (end.cause, end.rank, end.signal) == (Cause.LOST, 1, "SIGKILL")

    view = world.until_final(gang)
    assert ended_as_if_uninterrupted(view)
    last = max((v for v in world.client.volume("ckpt").versions if v.attempt == 1), key=lambda v: v.version)
    assert [resume.version for resume in view.attempts[1].resume] == [last.version]
    assert view.ranks[0].result["resumed_at"] == last.step
    first_nodes, then = ([n.node for n in attempt.nodes] for attempt in view.attempts)
    assert first_nodes == then, "healthy nodes are kept"


def test_a_killed_supervisor_takes_its_ranks_and_their_orphans_along(world: World) -> None:
    gang = world.start("train", "test:supervisor", steps=STEPS, child=True).gang
    view = world.until_step(gang, 25)
    first, node = world.pids(1), view.attempts[0].nodes[1].node
    assert len(first) == 8, "4 ranks and their grandchildren"
    os.kill(world.supervisors()[node], signal.SIGKILL)

    view = world.until(gang, lambda v: len(v.attempts) > 1, "in attempt 2")
    assert all(dead(pid) for pid in first.values())
    end = view.attempts[0].end
    assert end is not None
    assert (end.cause, end.node) == (Cause.LOST, node)
    assert ended_as_if_uninterrupted(world.until_final(gang))


def test_a_killed_server_is_restarted_and_takes_the_running_gang_over(world: World) -> None:
    gang = world.start("train", "test:server", steps=STEPS).gang
    world.until_step(gang, 15)
    before, supervisors = world.server(), world.supervisors()
    os.kill(before, signal.SIGKILL)

    view = world.until_final(gang)
    assert ended_as_if_uninterrupted(view)
    assert world.server() != before
    assert len(view.attempts) == 1
    assert world.supervisors() == supervisors, "the same supervisors went on"
    assert world.events(gang).count("gang.submitted") == 1


PIPELINE = """
import sys
from pathlib import Path
import gangline, gang_work
from gangline.client.submission import Origin, prepare, submit
from gangline.client.run import Run
home, marks = map(Path, sys.argv[1:])
target = gangline.clustered(name="train", size=2, gpu="H100:8", ranks_per_node=2, volumes={"/ckpt": "ckpt"})
with gangline.connect(home=home) as client:
    step = prepare(target(gang_work.train), {"marks": str(marks), "steps": 60},
                   origin=Origin(slot="test:pipeline", home=home))
    ensured = submit(client, [step])[0]
    print(ensured.gang, ensured.created, flush=True)
    print(Run(client, ensured).result()["step"], flush=True)
"""


def test_a_killed_pipeline_process_finds_its_gang_again(world: World) -> None:
    def begin() -> subprocess.Popen[str]:
        return subprocess.Popen([sys.executable, "-c", PIPELINE, str(world.home), str(world.marks)],
                                stdout=subprocess.PIPE, text=True, cwd=SUPPORT)

    with begin() as first:
        assert first.stdout is not None
        gang, created = first.stdout.readline().split()
        assert created == "True"
        world.until_step(gang, 15)
        first.kill()
    with begin() as second:
        assert second.stdout is not None
        assert second.stdout.readline().split() == [gang, "False"]
        assert second.stdout.readline().strip() == str(STEPS)
    view = world.client.observe(gang)
    assert len(view.attempts) == 1
    assert world.events(gang).count("gang.submitted") == 1
    assert ended_as_if_uninterrupted(view)


def test_a_cancelled_gang_leaves_nothing_running_and_nothing_leased(world: World) -> None:
    ensured = world.start("train", "test:cancel", steps=2000, child=True)
    world.until_step(ensured.gang, 12)
    pids = world.pids(1)
    world.client.cancel(ensured.gang, ensured.token, "enough")
    view = world.until_final(ensured.gang)
    assert view.state is GangState.CANCELLED
    assert all(dead(pid) for pid in pids.values())
    assert all(len(node.free_gpus) == 8 for node in world.client.nodes())
    assert view.versions[0].step == 10, "what was committed stays"
