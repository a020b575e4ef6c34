"""A plan that breaks a rule moves nothing, is kept once, and is told of until one is accepted again."""

from __future__ import annotations

import logging

import pytest
from service_world import World

from gangline.model.states import GangState
from gangline.plan.planner import plan
from gangline.plan.wire import read_inputs, read_plan
from gangline.scheduler import planning as module
from gangline.scheduler.planning import FAULT_PAUSE_MS, Planning
from gangline.service import views
from gangline.service.backoff import Backoff
from gangline.service.passes import get_pass, list_passes
from gangline.service.picture import Picture


@pytest.fixture
def planning(world: World) -> Planning:
    picture = Picture(world.store, world.fleet)
    picture.refresh()
    return Planning(world.store, world.fleet, picture, lambda: world.now_ms, Backoff())


def test_a_refused_plan_is_kept_and_said_once_until_it_changes(
        world: World, planning: Planning, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    gang = world.submit()
    planning.picture.refresh()
    faults = [("n1: leased twice",)]
    monkeypatch.setattr(module, "check", lambda *_: faults[0])
    began_ms = world.now_ms
    with caplog.at_level(logging.ERROR, "gangline.loop"):
        for _ in range(3):
            planning.run()
            world.later(FAULT_PAUSE_MS / 1000)
        faults[0] = ("n2: leased twice", "n3: leased twice")
        planning.run()
    assert views.observe(world.store, gang).state is GangState.QUEUED
    assert len(caplog.messages) == 2
    last, first = list_passes(world.store)
    assert (first.faults, last.faults) == (("n1: leased twice",), ("n2: leased twice", "n3: leased twice"))
    assert planning.refused is not None
    assert (planning.refused.number, planning.refused.since_ms, planning.refused.faults) == (
        last.id, began_ms, last.faults)

    detail = get_pass(world.store, first.id, inputs=True)
    assert detail.inputs is not None
    inputs = read_inputs(detail.inputs)
    assert read_plan(detail.plan) == plan(inputs.snapshot, inputs.policy, inputs.now_ms)

    faults[0] = ()
    world.later(FAULT_PAUSE_MS / 1000)
    planning.run()
    assert planning.refused is None
    assert views.observe(world.store, gang).state is GangState.PLACED
