"""The checker finds every kind of broken plan."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from plan_worlds import NOW_MS, changed, gang, node, pool, running, tenant, world

from gangline.plan.check import check
from gangline.plan.outcome import CapacityRequest, Plan, Preemption, Release, Resize, Retirement
from gangline.plan.planner import plan
from gangline.plan.policy import HOUR_MS, Policy
from gangline.plan.snapshot import Held, NodeState, RunningGang, Snapshot

MINUTE_MS = 60_000
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
            members = tuple(m._replace(node=n) for m, n in zip(placement.nodes, nodes, strict=False))
            placement = replace(placement, nodes=members)
        changed.append(placement)
    return replace(made, placements=tuple(changed))


def part(made: Plan) -> Plan:
    first = made.placements[0]
    cut = replace(first, nodes=tuple(m._replace(gpus=m.gpus[:3]) for m in first.nodes))
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
    ("is reserved for 2 gangs", lambda p: replace(p, reservations=(
        *p.reservations, replace(p.reservations[0], gang="wide")))),
    ("without waiting", lambda p: replace(p, reservations=(replace(p.reservations[0], gang="pair"),))),
    ("reserves unknown", lambda p: replace(p, reservations=(replace(p.reservations[0], nodes=("no",)),))),
    ("may add", lambda p: replace(p, capacity=(replace(p.capacity[0], nodes=50),))),
    ("more nodes than its gangs need", lambda p: replace(p, capacity=(replace(p.capacity[0], nodes=4),))),
    ("or unknown", lambda p: replace(p, capacity=p.capacity * 2)),
    ("do not wait for capacity",
     lambda p: replace(p, capacity=(CapacityRequest(pool="p", nodes=1, gangs=("pair",)),))),
    ("not explained", lambda p: replace(p, waiting=(replace(p.waiting[0], text=""), *p.waiting[1:]))),
    ("nobody waits", lambda p: replace(p, waiting=(*p.waiting, replace(p.waiting[0], gangs=())))),
]


def test_the_unbroken_plan_is_clean_and_has_every_part() -> None:
    made = good()
    assert check(WORLD, made) == ()
    assert {p.gang for p in made.placements} == {"pair", "fix", "tail"}
    assert {name: w.code for name, w in made.waits().items()} == {"need": "capacity", "wide": "never"}


@pytest.mark.parametrize(("said", "breaks"), BROKEN, ids=[said for said, _ in BROKEN])
def test_a_broken_plan_is_caught(said: str, breaks: Callable[[Plan], Plan]) -> None:
    found = check(WORLD, breaks(good()))
    assert any(said in line for line in found), found


@pytest.mark.parametrize(("field", "value", "said"), [
    ("zone", "z2", "in zone z1, not z2"), ("pool", "q", "of pool p, not q"),
    ("exclude", frozenset({"n1"}), "is excluded"), ("within", "leaf", "not within one leaf"),
    ("domain_size", 2, "not in blocks of 2 nodes")])
def test_a_constraint_that_was_not_honoured_is_caught(field: str, value: object, said: str) -> None:
    plain = changed(WORLD, nodes=[replace(n, path=(n.name,)) for n in WORLD.nodes])
    made = plan(plain, Policy(), NOW_MS)
    strict = changed(plain, pending=[
        replace(g, **{field: value}) if g.gang == "pair" else g for g in plain.pending])
    assert any(said in line for line in check(strict, made))


def test_mixing_real_and_emulated_nodes_is_caught() -> None:
    def emulate(node: NodeState) -> NodeState:
        return replace(node, emulated=node.name == "n2")

    mixed = changed(WORLD, nodes=map(emulate, WORLD.nodes))
    assert any("mixes real and emulated" in line for line in check(mixed, good()))


def busy(*runs: RunningGang, **other: object) -> Snapshot:
    """Four nodes of two tenants in one cohort, an idle node, and a gang of higher priority that waits."""
    return world(
        pool(idle_ms=MINUTE_MS, most=9, warm=1), *(node(f"n{i}", used=8) for i in range(4)),
        node("idle", gpu="B300:8", pool="q", idle_ms=1), node("n9", idle_ms=NOW_MS - MINUTE_MS),
        pool("q", "B300:8", idle_ms=MINUTE_MS), tenant("t", quota={"H100": 16}, cohort="c"),
        tenant("u", quota={"H100": 16}, cohort="c"), *runs)


LOW = running("low", ("n0", 8), ("n1", 8), priority=-1, since_ms=NOW_MS - HOUR_MS)
WIDE = running("wide", ("n2", 8), ("n3", 8), since_ms=NOW_MS - HOUR_MS, least=1, most=3)
ROOM = busy(LOW, WIDE, gang("high", 2, tenant="u"))


def test_a_plan_that_preempts_and_one_that_grows_are_clean() -> None:
    policy = Policy(capacity=False)
    made = plan(ROOM, policy, NOW_MS)
    assert (made.preemptions, made.resizes) == ((), (SHRINK,))  # what its tenant borrowed is enough
    assert check(ROOM, made, policy) == ()
    rigid = changed(ROOM, running=[replace(run, least=0) for run in ROOM.running])
    made = plan(rigid, policy, NOW_MS)
    assert made.preemptions == (END,)
    assert check(rigid, made, policy) == ()
    calm = world(*(node(f"n{i}") for i in range(3)), running("e", ("n0", 8), most=3, again=gang("e", 1, most=3)))
    grown = plan(calm, Policy(), NOW_MS)
    assert [(r.gang, r.size) for r in grown.resizes] == [("e", 3)]
    assert check(calm, grown, Policy()) == ()


def told(**parts: object) -> Plan:
    """A plan for `ROOM` that ends `low` for `high`, with other parts."""
    waiting = plan(ROOM, Policy(), NOW_MS).waiting
    return Plan(**{"base": 1, "now_ms": NOW_MS, "waiting": waiting, "preemptions": (END,), **parts})


END = Preemption(gang="low", gangs=("high",))
SHRINK = Resize(gang="wide", size=1, nodes=("n3",), gangs=("high",))
EFFECTS: list[tuple[str, Plan]] = [
    ("does not run", told(preemptions=(replace(END, gang="ghost"),))),
    ("gangs that do not wait", told(preemptions=(replace(END, gangs=()),))),
    ("of no higher priority", told(preemptions=(replace(END, gang="wide"),))),
    ("has not borrowed", told(preemptions=(replace(END, reclaim=True),))),
    ("told 2 times", told(resizes=(replace(SHRINK, gang="low", nodes=("n0",)),))),
    ("before it ran for long enough", told(now_ms=LOW.since_ms + MINUTE_MS)),
    ("leaves not 1", told(preemptions=(), resizes=(replace(SHRINK, nodes=("n0",)),))),
    ("leaves not 1", told(preemptions=(), resizes=(replace(SHRINK, nodes=("n2", "n3")),))),
    ("fewer than", told(preemptions=(), resizes=(replace(SHRINK, size=0, nodes=("n2", "n3")),))),
    ("grows while gangs wait", told(resizes=(Resize(gang="wide", size=3),))),
    ("may have 3", told(resizes=(Resize(gang="wide", size=4),))),
    ("in use, kept", told(retirements=(Retirement(pool="p", nodes=("n0",)),))),
    ("unknown nodes", told(retirements=(Retirement(pool="p", nodes=("n9", "n9")),))),
    ("gives back nothing", told(retirements=(Retirement(pool="p", nodes=()),))),
    ("asked for more nodes", told(capacity=(CapacityRequest(pool="p", nodes=2, gangs=()),))),
]


@pytest.mark.parametrize(("said", "made"), EFFECTS, ids=[said for said, _ in EFFECTS])
def test_a_wrong_effect_is_caught(said: str, made: Plan) -> None:
    found = check(ROOM, made, Policy())
    assert any(said in line for line in found), found


def test_the_effects_these_were_made_from_are_clean() -> None:
    retired = Retirement(pool="p", nodes=("n9",))
    assert check(ROOM, told(retirements=(retired,)), Policy()) == ()
    assert check(ROOM, told(preemptions=(), resizes=(SHRINK,)), Policy()) == ()
    kept = changed(ROOM, pools=[replace(each, least=5) for each in ROOM.pools])
    assert any("fewer than 5" in line for line in check(kept, told(retirements=(retired,)), Policy()))


@pytest.mark.parametrize(("changes", "policy", "said"), [
    ({"preempted_ms": NOW_MS - 1}, Policy(), "again too soon"), ({"ending": True}, Policy(), "is ending"),
    ({"preemptible": False}, Policy(), "may not be preempted"), ({}, Policy(preempt=False), "the policy never does")])
def test_who_may_not_be_preempted_is_caught(changes: dict[str, object], policy: Policy, said: str) -> None:
    runs = [replace(run, **changes) if run.gang == "low" else run for run in ROOM.running]
    assert any(said in line for line in check(changed(ROOM, running=runs), told(), policy))


@pytest.mark.parametrize(("quotas", "said"), [
    ({"t": 8}, "has 16 H100 of a quota of 8"),
    ({"t": (8, "c", 4), "u": (64, "c", None)}, "more than its quota of 8 and 4 borrowed"),
    ({"t": (8, "c", None), "u": (4, "c", None)}, "borrows H100: its cohort has 16 of 12"),
    ({"t": (8, "c", 8), "u": (8, "c", None)}, ""), ({"t": (16, None, None)}, ""), ({"u": 0}, "")])
def test_a_quota_that_is_broken_is_caught(quotas: dict[str, object], said: str) -> None:
    def limited(name: str, given: object) -> object:
        nominal, cohort, borrow = given if isinstance(given, tuple) else (given, None, None)
        return tenant(name, quota={"H100": nominal}, cohort=cohort, borrow=borrow)

    free = world(node("n1"), node("n2"), gang("a"), gang("b"))
    made = plan(free, Policy(), NOW_MS)
    assert len(made.placements) == 2
    found = check(changed(free, tenants=[limited(name, given) for name, given in quotas.items()]), made)
    assert (said in "".join(found)) if said else found == ()


def test_a_gang_in_repair_that_is_passed_over_keeps_what_it_holds() -> None:
    held = (Held(node="n1", gpus=tuple(range(8))),)
    snapshot = world(node("n1", used=8), gang("head", 2, priority=1), gang("fix", 1, held=held))
    made = plan(snapshot, Policy(strict=True), NOW_MS)
    assert (made.placements, made.releases) == ((), ())
    assert check(snapshot, made) == ()
