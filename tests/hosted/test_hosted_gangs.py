"""Whole gangs over a real cluster: they end well, and survive what clusters do to them."""

from __future__ import annotations

import os
import signal

import pytest
from fleet_world import dead
from hosted_world import HostedWorld

from gangline.model.gang import GangView
from gangline.model.node import NodeView
from gangline.model.states import Cause, GangState

pytestmark = pytest.mark.slow

STEPS = 60


def ended_as_if_uninterrupted(view: GangView) -> bool:
    assert view.state is GangState.SUCCEEDED, view.end
    return all(rank.result["step"] == STEPS and rank.result["whole"] for rank in view.ranks)


def node(world: HostedWorld, name: str) -> NodeView:
    return next(each for each in world.client.nodes() if each.node == name)


def test_four_nodes_train_and_commit(world: HostedWorld) -> None:
    gang = world.start("train", "test:four", size=4, steps=20).gang
    view = world.until_final(gang)
    assert view.state is GangState.SUCCEEDED, view.end
    assert len(view.attempts) == 1
    assert {share.node for share in view.attempts[0].nodes} == set(world.cluster.nodes)
    assert [version.step for version in world.client.volume("ckpt").versions] == [20, 10]
    assert view.cost_nano > 0


def test_a_killed_rank_is_repaired_on_the_nodes_it_had(world: HostedWorld) -> None:
    gang = world.start("train", "test:rank", steps=STEPS).gang
    world.until_step(gang, 25)
    first = world.pids(1)
    os.kill(first[1], signal.SIGKILL)
    view = world.until_final(gang)
    assert ended_as_if_uninterrupted(view)
    assert len(view.attempts) == 2
    assert all(dead(pid) for pid in first.values())
    assert view.attempts[0].end is not None
    assert (view.attempts[0].end.cause, view.attempts[0].end.rank) == (Cause.LOST, 1)
    assert view.ranks[0].result["resumed_at"] >= 20


def test_a_node_that_dies_is_replaced(world: HostedWorld) -> None:
    gang = world.start("train", "test:node", steps=STEPS, step_s=0.2).gang
    view = world.until_step(gang, 12)
    lost = view.attempts[0].nodes[1].node
    revive = world.cluster.cut(lost)
    try:
        view = world.until(gang, lambda view: len(view.attempts) > 1, "in attempt 2")
        assert view.attempts[0].end is not None
        assert (view.attempts[0].end.cause, view.attempts[0].end.node) == (Cause.LOST, lost)
        assert lost not in {share.node for share in view.attempts[1].nodes}
        assert ended_as_if_uninterrupted(world.until_final(gang))
    finally:
        revive()


def test_cancel_leaves_nothing_behind(world: HostedWorld) -> None:
    gang = world.start("train", "test:cancel", steps=10_000, child=True).gang
    world.until_step(gang, 3)
    pids = world.pids(1)
    world.client.cancel(gang)
    assert world.until_final(gang).state is GangState.CANCELLED
    assert all(dead(pid) for pid in pids.values())


def test_a_killed_server_finds_its_job_again(world: HostedWorld) -> None:
    gang = world.start("train", "test:server", steps=STEPS, step_s=0.1).gang
    world.until_step(gang, 5)
    job = world.job_of(gang)
    world.kill_server()
    world.start_server()
    view = world.until_final(gang)
    assert ended_as_if_uninterrupted(view)
    assert len(view.attempts) == 1, "the same job went on"
    assert world.events(gang).count("job.launched") == 1
    assert job not in {name for name, state in world.cluster.jobs().items() if state == "PENDING"}


def test_a_server_killed_while_it_launches_makes_no_second_job(world: HostedWorld) -> None:
    gang = world.start("hold", "test:launch").gang
    world.until(gang, lambda view: bool(view.attempts), "placed")
    world.kill_server()  # before, between or after: the job was asked for or not, noted or not
    world.start_server()
    world.until(gang, lambda view: view.state is GangState.RUNNING, "running")
    assert len([name for name in world.cluster.jobs() if gang.removeprefix("g-") in name]) == 1
    (world.marks / "go").touch()
    view = world.until_final(gang)
    assert view.state is GangState.SUCCEEDED, view.end
    assert len(view.attempts) == 1


def test_jobs_of_others_are_planned_around(world: HostedWorld) -> None:
    end = world.cluster.occupy(world.cluster.nodes[0])
    try:
        single = world.start("train", "test:beside", size=1, steps=10, spec={"gpu": "H100:8"}).gang
        view = world.until_final(single)
        assert view.state is GangState.SUCCEEDED, view.end
        assert view.attempts[-1].nodes[0].node != world.cluster.nodes[0]
        assert node(world, world.cluster.nodes[0]).healthy
        gang = world.start("train", "test:foreign", size=4, steps=10).gang
        world.until(gang, lambda view: view.state is GangState.QUEUED and view.wait is not None, "waiting")
    finally:
        end()
    view = world.until_final(gang)
    assert view.state is GangState.SUCCEEDED, view.end


def test_a_drain_of_the_cluster_s_own_is_kept_to(world: HostedWorld) -> None:
    first = world.cluster.nodes[0]
    undo = world.cluster.drain(first)
    gang = world.start("train", "test:drain", size=3, steps=10).gang
    view = world.until_final(gang)
    assert view.state is GangState.SUCCEEDED, view.end
    drain = node(world, first).drain
    undo()
    assert drain is None or "bad DIMM" in drain.reason
    whole = world.start("train", "test:undrain", size=4, steps=10).gang
    assert world.until_final(whole).state is GangState.SUCCEEDED
