"""The checker finds every kind of broken plan."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from plan_worlds import NOW_MS, gang, node, pool, running, world

from gangline.plan.check import check
from gangline.plan.outcome import CapacityRequest, Plan, Release
from gangline.plan.planner import plan
from gangline.plan.policy import Policy
from gangline.plan.snapshot import Held, NodeState, Snapshot

WORLD = world(
    pool(most=9), pool("q", "B300:8", zone="z2", fabric="ib-2", rdma=False),
    node("n1"), node("n2"), node("n4"), node("n3", used=8), node("h1", used=8), node("far", fabric="ib-9"),
    node("b1", "B300:8", pool="q", zone="z2", fabric="ib-2"), node("down", usable=False),
    running("r", ("n3", 8), ends_by_ms=NOW_MS + 60_000),
    gang("pair", 2, rdma=True, priority=9), gang("fix", 1, held=(Held(node="h1", gpus=tuple(range(8))),)),
    gang("wide", 9, "B300:8", priority=-5), gang("need", 3, rdma=True, priority=-1),
    gang("tail", 1, "B300:8", priority=-9))


def good() -> Plan:
    return plan(WORLD, Policy(), NOW_MS)


def move(made: Plan, name: str, *nodes: str) -> Plan:
    """The plan with one gang's members renamed, in order."""
    changed = []
    for placement in made.placements:
        if placement.gang == name:
            members = tuple(replace(m, node=n) for m, n in zip(placement.nodes, nodes, strict=False))
            placement = replace(placement, nodes=members)
        changed.append(placement)
    return replace(made, placements=tuple(changed))


def part(made: Plan) -> Plan:
    first = made.placements[0]
    cut = replace(first, nodes=tuple(replace(m, gpus=m.gpus[:3]) for m in first.nodes))
    return replace(made, placements=(cut, *made.placements[1:]))


def reserve_for_first(made: Plan) -> Plan:
    return replace(made, reservations=tuple(
        replace(r, nodes=("b1",)) for r in made.reservations if r.gang == "need"))


BROKEN: list[tuple[str, Callable[[Plan], Plan]]] = [
    ("version", lambda p: replace(p, base=7)),
    ("answered 0 times", lambda p: replace(p, waiting=p.waiting[1:])),
    ("answered 2 times", lambda p: replace(p, placements=p.placements + p.placements[:1])),
    ("not pending",
     lambda p: replace(p, placements=(replace(p.placements[0], gang="ghost"), *p.placements[1:]))),
    ("given to", lambda p: move(p, "fix", "n1")),
    ("has a node twice", lambda p: move(p, "pair", "n1", "n1")),
    ("1 of 2 nodes", lambda p: move(p, "pair", "n1")),
    ("unknown nodes", lambda p: move(p, "pair", "n1", "nowhere")),
    ("takes no work", lambda p: move(p, "pair", "down", "n1")),
    ("is B300:8, not H100:8", lambda p: move(p, "pair", "n1", "b1")),
    ("has no rdma", lambda p: move(p, "pair", "n1", "b1")),
    ("has not GPUs", lambda p: move(p, "pair", "n1", "n3")),
    ("spans fabrics", lambda p: move(p, "pair", "n1", "far")),
    ("is said to be", lambda p: move(p, "pair", "n1", "far")),
    ("not in topology order", lambda p: move(p, "pair", "n2", "n1")),
    ("gives 3 GPUs instead of 8", part),
    ("must be either kept or released", lambda p: move(p, "fix", "far")),
    ("does not hold", lambda p: replace(p, releases=(Release(gang="pair", nodes=("n1",)),))),
    ("reserved for", reserve_for_first),
    ("without waiting", lambda p: replace(p, reservations=(replace(p.reservations[0], gang="pair"),))),
    ("reserves unknown", lambda p: replace(p, reservations=(replace(p.reservations[0], nodes=("no",)),))),
    ("may add", lambda p: replace(p, capacity=(replace(p.capacity[0], nodes=50),))),
    ("more nodes than its gangs need", lambda p: replace(p, capacity=(replace(p.capacity[0], nodes=4),))),
    ("or unknown", lambda p: replace(p, capacity=p.capacity * 2)),
    ("do not wait for capacity",
     lambda p: replace(p, capacity=(CapacityRequest(pool="p", nodes=1, gangs=("pair",)),))),
    ("not explained", lambda p: replace(p, waiting=(replace(p.waiting[0], text=""), *p.waiting[1:]))),
]


def test_the_unbroken_plan_is_clean_and_has_every_part() -> None:
    made = good()
    assert check(WORLD, made) == ()
    assert {p.gang for p in made.placements} == {"pair", "fix", "tail"}
    assert {w.gang: w.code for w in made.waiting} == {"need": "capacity", "wide": "never"}


@pytest.mark.parametrize(("said", "breaks"), BROKEN, ids=[said for said, _ in BROKEN])
def test_a_broken_plan_is_caught(said: str, breaks: Callable[[Plan], Plan]) -> None:
    found = check(WORLD, breaks(good()))
    assert any(said in line for line in found), found


@pytest.mark.parametrize(("field", "value", "said"), [
    ("zone", "z2", "in zone z1, not z2"), ("pool", "q", "of pool p, not q"),
    ("exclude", frozenset({"n1"}), "is excluded"), ("within", "leaf", "not within one leaf")])
def test_a_constraint_that_was_not_honoured_is_caught(field: str, value: object, said: str) -> None:
    nodes = tuple(replace(n, path=(n.name,)) for n in WORLD.nodes)
    plain = replace(WORLD, nodes=nodes)
    made = plan(plain, Policy(), NOW_MS)
    strict = replace(plain, pending=tuple(
        replace(g, **{field: value}) if g.gang == "pair" else g for g in plain.pending))
    assert any(said in line for line in check(strict, made))


def test_mixing_real_and_emulated_nodes_is_caught() -> None:
    def emulate(node: NodeState) -> NodeState:
        return replace(node, emulated=node.name == "n2")

    mixed: Snapshot = replace(WORLD, nodes=tuple(map(emulate, WORLD.nodes)))
    assert any("mixes real and emulated" in line for line in check(mixed, good()))
