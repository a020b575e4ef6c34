"""Where whole gangs go."""

from __future__ import annotations

import pytest
from plan_worlds import NOW_MS, gang, leaf, node, pool, role, running, world

from gangline.plan.check import check
from gangline.plan.outcome import Plan
from gangline.plan.planner import plan
from gangline.plan.policy import Policy
from gangline.plan.snapshot import Held, Snapshot


def planned(snapshot: Snapshot, policy: Policy | None = None) -> Plan:
    made = plan(snapshot, policy or Policy(), NOW_MS)
    assert check(snapshot, made, policy or Policy()) == ()
    return made


def nodes_of(made: Plan, name: str) -> list[str]:
    return [m.node for p in made.placements if p.gang == name for m in p.nodes]


def test_a_fits_in_one_zone_and_b_gets_its_free_node_kept_and_one_more_asked() -> None:
    snapshot = world(
        pool("b300", "B300:8", zone="zone-1", fabric="ib-1"),
        pool("h100", zone="zone-2", fabric="ib-2", most=8),
        *(node(f"b{i}", "B300:8", pool="b300", zone="zone-1") for i in range(4)),
        node("h0", pool="h100", zone="zone-2", fabric="ib-2"),
        gang("A", 4, "B300:8", rdma=True), gang("B", 2, rdma=True))
    made = planned(snapshot)
    (placed,) = made.placements
    assert (placed.gang, placed.zone, placed.fabric) == ("A", "zone-1", "ib-1")
    assert nodes_of(made, "A") == ["b0", "b1", "b2", "b3"]
    assert [(c.pool, c.nodes, c.gangs) for c in made.capacity] == [("h100", 1, ("B",))]
    assert [(r.gang, r.nodes, r.at_ms) for r in made.reservations] == [("B", ("h0",), NOW_MS + 60_000)]
    assert [(w.gangs, w.code, w.short, w.earliest_ms) for w in made.waiting] == [
        (("B",), "capacity", 1, NOW_MS + 60_000)]


def test_priority_goes_first_then_submission_then_id() -> None:
    one = node("n1")
    assert planned(world(one, gang("b"), gang("a"))).placements[0].gang == "a"
    assert planned(world(one, gang("b"), gang("a", submitted_ms=1))).placements[0].gang == "b"
    assert planned(world(one, gang("b"), gang("a", submitted_ms=1, priority=1))).placements[0].gang == "a"


def test_a_gang_takes_the_tightest_leaf_that_holds_it_all() -> None:
    made = planned(world(
        *leaf("a", 4, "s1", "l1"), *leaf("b", 3, "s1", "l2"), *leaf("c", 2, "s1", "l3"), gang("g", 3)))
    assert nodes_of(made, "g") == ["b0", "b1", "b2"]


def test_a_gang_over_a_leaf_stays_under_one_spine_on_as_few_leaves_as_it_can() -> None:
    made = planned(world(
        *leaf("a", 2, "s1", "l1"), *leaf("b", 3, "s1", "l2"), *leaf("c", 1, "s1", "l3"),
        *leaf("d", 3, "s2", "l4"), gang("g", 5)))
    assert nodes_of(made, "g") == ["a0", "a1", "b0", "b1", "b2"]


def test_rdma_keeps_a_gang_on_one_fabric_of_a_pool_that_has_it() -> None:
    nodes = [node("a1"), node("a2"), *(node(f"b{i}", fabric="ib-2") for i in (1, 2, 3))]
    assert nodes_of(planned(world(*nodes, gang("g", 3, rdma=True))), "g") == ["b1", "b2", "b3"]
    assert planned(world(*nodes, gang("g", 4, rdma=True))).placements == ()
    assert len(nodes_of(planned(world(*nodes, gang("g", 4))), "g")) == 4
    dark = world(pool(rdma=False), *nodes, gang("g", 1, rdma=True))
    assert planned(dark).waiting[0].code == "never"


def test_zone_pool_exclude_and_within_are_honoured() -> None:
    nodes = [node("a"), node("b", zone="z2"), node("c", zone="z2", pool="q"), node("d", zone="z2", pool="q")]
    asked = gang("g", zone="z2", pool="q", exclude=frozenset("c"))
    assert nodes_of(planned(world(*nodes, asked)), "g") == ["d"]
    leaves = [node("a", path=("s", "l1")), node("b", path=("s", "l2"))]
    assert planned(world(*leaves, gang("g", 2, within="leaf"))).placements == ()
    assert nodes_of(planned(world(*leaves, gang("g", 2, within="spine"))), "g") == ["a", "b"]
    unknown = [node("a", path=(), fabric=None), node("b", path=(), fabric=None)]
    assert planned(world(*unknown, gang("g", 2, within="fabric"))).placements == ()
    assert len(nodes_of(planned(world(*unknown, gang("g", 2))), "g")) == 2


def test_real_and_emulated_nodes_never_mix_and_real_ones_go_first() -> None:
    mixed = [node("a"), node("b", emulated=True, pool="q"), node("c", emulated=True, pool="q")]
    assert nodes_of(planned(world(*mixed, gang("g", 2))), "g") == ["b", "c"]
    assert planned(world(*mixed, gang("g", 3))).placements == ()
    assert nodes_of(planned(world(*mixed, gang("g", 1))), "g") == ["a"]


def test_the_first_alternative_that_fits_wins_and_all_nodes_of_a_role_get_the_same() -> None:
    nodes = [node("a1", "H200:8", pool="q"), node("b1"), node("b2")]
    assert nodes_of(planned(world(*nodes, gang("g", 1, ("H200:8", "H100:8")))), "g") == ["a1"]
    assert nodes_of(planned(world(*nodes, gang("g", 2, ("H200:8", "H100:8")))), "g") == ["b1", "b2"]
    assert planned(world(*nodes, gang("g", 3, ("H200:8", "H100:8")))).placements == ()


def test_singles_fill_used_nodes_first_and_get_single_gpus() -> None:
    made = planned(world(node("a"), node("b", used=6), node("c", used=4), gang("g", gpu="H100:2"),
                         gang("h", gpu="H100:2")))
    assert {p.gang: [(m.node, m.gpus) for m in p.nodes] for p in made.placements} == {
        "g": [("b", (6, 7))], "h": [("c", (4, 5))]}


def test_a_single_breaks_a_node_of_the_emptiest_leaf() -> None:
    made = planned(world(*(node(f"a{i}", path=("l1",)) for i in range(3)), node("b0", path=("l2",)),
                         gang("g", gpu="H100:1")))
    assert nodes_of(made, "g") == ["b0"]


def test_gangs_of_several_nodes_take_whole_nodes_even_of_processors() -> None:
    made = planned(world(node("a", "cpu:4"), node("b", "cpu:4", used=1), node("c", "cpu:4"), node("gpu"),
                         gang("g", 2, "cpu"), gang("h", 1, "cpu:3")))
    assert [(m.node, m.gpus) for m in made.placements[0].nodes] == [("a", (0, 1, 2, 3)), ("c", (0, 1, 2, 3))]
    assert [(m.node, m.gpus) for m in made.placements[1].nodes] == [("b", (1, 2, 3))]


def test_roles_are_placed_together_and_ranked_in_order() -> None:
    made = planned(world(
        *leaf("a", 3, "s1", "l1"), node("c1", "cpu:4", path=("s1", "l9"), pool="c"),
        *leaf("b", 9, "s2", "l2"), node("c2", "cpu:4", path=("s3", "l8"), pool="c"),
        gang("g", roles=(role("rollout", 1, "H100:8"), role("trainer", 2, "H100:8"), role("env", 1, "cpu")))))
    assert [(m.role, m.node) for m in made.placements[0].nodes] == [
        ("rollout", "a0"), ("trainer", "a1"), ("trainer", "a2"), ("env", "c1")]


def test_bigger_asks_of_one_type_choose_before_smaller_ones() -> None:
    made = planned(world(node("big"), node("small", "H100:4", pool="q"),
                         gang("g", roles=(role("a", 1, "H100:2"), role("b", 1, "H100:8")))))
    assert nodes_of(made, "g") == ["small", "big"]


def test_nodes_that_take_no_work_are_left_alone() -> None:
    made = planned(world(node("a", usable=False), node("b", usable=False, usable_ms=NOW_MS + 5),
                         node("c", usable=False, gone=True), gang("g")))
    assert made.placements == ()


class TestRepair:
    def held(self, *names: str) -> tuple[Held, ...]:
        return tuple(Held(node=n, gpus=tuple(range(8))) for n in names)

    def test_it_keeps_its_nodes_and_completes_them_nearby(self) -> None:
        made = planned(world(
            node("a1", used=8, path=("s1", "l1")), node("a2", path=("s1", "l1"), usable=False),
            node("b1", used=8, path=("s1", "l2")), node("b2", path=("s1", "l2")),
            *(node(f"c{i}", path=("s2", "l3")) for i in range(3)),
            gang("g", 3, rdma=True, held=self.held("a1", "b1"), submitted_ms=9), gang("early", 1)))
        assert nodes_of(made, "g") == ["a1", "b1", "b2"]
        assert made.releases == ()

    def test_it_goes_before_equals_but_not_before_higher_priority(self) -> None:
        parts = [node("a1", used=8), node("a2"), gang("g", 2, held=self.held("a1"), submitted_ms=9)]
        assert nodes_of(planned(world(*parts, gang("early", 1))), "g") == ["a1", "a2"]
        made = planned(world(*parts, gang("urgent", 1, priority=100)))
        assert nodes_of(made, "urgent") == ["a2"]
        assert [(r.gang, r.nodes) for r in made.releases] == [("g", ("a1",))]

    def test_what_it_gives_back_is_not_used_before_the_next_pass(self) -> None:
        made = planned(world(node("a1", used=8), gang("g", 2, held=self.held("a1")), gang("next", 1)),
                       Policy(reserve_first=0))
        assert made.placements == ()
        assert made.releases[0].nodes == ("a1",)

    def test_it_does_not_cross_fabrics_with_rdma(self) -> None:
        made = planned(world(node("a1", used=8), node("b1", fabric="ib-2"), node("b2", fabric="ib-2"),
                             gang("g", 2, rdma=True, held=self.held("a1"))))
        assert made.placements == ()
        assert made.releases[0].nodes == ("a1",)

    def test_a_held_node_that_no_longer_serves_is_replaced(self) -> None:
        made = planned(world(node("a1", used=8), node("a2", used=8, usable=False), node("a3"),
                             gang("g", 2, held=self.held("a1", "a2"))))
        assert nodes_of(made, "g") == ["a1", "a3"]
        assert made.releases[0].nodes == ("a2",)

    def test_a_single_gang_gets_its_own_gpus_again(self) -> None:
        made = planned(world(node("a1", used=4), node("a2", used=7),
                             gang("g", gpu="H100:2", held=(Held(node="a1", gpus=(1, 3)),))))
        assert [(m.node, m.gpus) for m in made.placements[0].nodes] == [("a1", (1, 3))]

    def test_it_asks_for_the_missing_node_and_keeps_the_rest_while_it_boots(self) -> None:
        snapshot = world(pool(most=3), node("a1", used=8), node("a2", usable=False),
                         gang("g", 2, held=self.held("a1")))
        made = planned(snapshot)
        assert [(c.pool, c.nodes) for c in made.capacity] == [("p", 1)]
        assert made.reservations[0].nodes == ("a1",)


@pytest.mark.parametrize("holder", [
    running("r", ("n1", 8)), gang("r", 2, held=(Held(node="n1", gpus=tuple(range(8))),))])
def test_leased_nodes_are_never_offered(holder: object) -> None:
    made = planned(world(node("n1", used=8), holder, gang("g", 1, priority=-1)))
    assert made.placements == ()
