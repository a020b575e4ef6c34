"""What a pass was made from and what it decided survive being written down."""

from __future__ import annotations

import json
from dataclasses import fields, replace

import pytest
from hypothesis import given, settings
from plan_worlds import NOW_MS, gang, leaf, node, pool, running, world, worlds

from gangline.plan.check import check
from gangline.plan.differences import differences, lines_of
from gangline.plan.outcome import Plan, Preemption, Resize, Retirement, WaitCode, Waiting
from gangline.plan.planner import plan
from gangline.plan.policy import POLICIES, Policy
from gangline.plan.snapshot import PendingGang, Promise, Snapshot
from gangline.plan.wire import Inputs, Writer, made, plain, plan_json, read_inputs, read_plan


def again(inputs: Inputs) -> Inputs:
    return read_inputs(json.loads("".join(Writer().pieces(inputs))))


@settings(deadline=None)
@given(worlds())
def test_inputs_come_back_and_make_the_same_plan(snapshot: Snapshot) -> None:
    for policy in POLICIES.values():
        inputs = Inputs(snapshot, policy, NOW_MS)
        back = again(inputs)
        assert (back.policy, back.now_ms, back.snapshot.version) == (policy, NOW_MS, snapshot.version)
        for part in ("nodes", "pools", "pending", "running", "tenants"):
            assert getattr(back.snapshot, part) == getattr(snapshot, part), part
        assert plan(back.snapshot, policy, NOW_MS) == plan(snapshot, policy, NOW_MS)


@settings(deadline=None)
@given(worlds())
def test_plans_come_back(snapshot: Snapshot) -> None:
    decided = plan(snapshot, Policy(), NOW_MS)
    assert read_plan(json.loads(json.dumps(plan_json(decided)))) == decided
    assert check(snapshot, decided) == ()


def test_every_part_of_a_plan_and_of_a_gang_is_written() -> None:
    one = Plan(base=3, now_ms=NOW_MS, preemptions=(Preemption(gang="a", gangs=("b",), reclaim=True),),
               resizes=(Resize(gang="c", size=2, nodes=("n",), gangs=("b",)),),
               retirements=(Retirement(pool="p", nodes=("n",)),), due_ms=9)
    assert read_plan(json.loads(json.dumps(plan_json(one)))) == one
    waits = replace(gang("g", 2, exclude=frozenset({"x"}), within="leaf", zone="z", pool="p", rdma=True, most=4,
                         limit_ms=5, domain_size=2), promise=Promise(node="n", at_ms=7))
    assert made(PendingGang, json.loads(json.dumps(plain(waits)))) == waits
    assert {field.name for field in fields(PendingGang)} == {
        *plain(replace(waits, held=(), likely_ms=1)), "held"}


def test_what_is_not_known_is_passed_over_and_another_format_refused() -> None:
    data = json.loads("".join(Writer().pieces(Inputs(world(node("n"), pool()), Policy(), NOW_MS))))
    data["policy"]["new"] = data["new"] = 1
    assert read_inputs(data).policy == Policy()
    data["format"] = 2
    with pytest.raises(ValueError, match="format 2"):
        read_inputs(data)


def test_nodes_are_written_once_and_their_state_each_time() -> None:
    writer = Writer()
    first = world(node("n"), node("m"), pool())
    busy = replace(first, fleet=replace(first.fleet))
    busy.fleet.hold_named(running("r", ("n", 8)).holds[0], NOW_MS)
    texts = ["".join(writer.pieces(Inputs(each, Policy(), NOW_MS))) for each in (first, busy)]
    assert [len(read_inputs(json.loads(text)).snapshot.nodes) for text in texts] == [2, 2]


def test_differences_say_who_fares_otherwise() -> None:
    snapshot = world(*leaf("n", 2), pool(), gang("a"), gang("b", 3))
    decided = plan(snapshot, Policy(), NOW_MS)
    assert differences(decided, decided) == []
    other = replace(decided, placements=(), waiting=(*decided.waiting, Waiting(
        gangs=("a",), code=WaitCode.ORDER, text="after b", short=0, earliest_ms=NOW_MS + 60_000)))
    assert differences(decided, other) == [
        "+ a waits (order): after b; expected in 1m00s", "- a starts on n0[0,1,2,3,4,5,6,7]"]
    assert lines_of(replace(other, preemptions=(Preemption(gang="v", gangs=("b",), reclaim=True),),
                            resizes=(Resize(gang="e", size=1, nodes=("n9",), gangs=("b",)),),
                            retirements=(Retirement(pool="p", nodes=("n8",)),)))[:3] == [
        "v is preempted for b, which reclaim what was borrowed", "e goes on with 1 node, without n9, for b",
        "pool p gives back n8"]
