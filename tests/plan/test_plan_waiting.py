"""Who waits, for what, until when, and what is kept or asked for meanwhile."""

from __future__ import annotations

from dataclasses import replace

import pytest
from plan_worlds import NOW_MS, commit, gang, node, pool, role, running, world

from gangline.plan.check import check
from gangline.plan.never import never_fits
from gangline.plan.outcome import Plan, Waiting
from gangline.plan.planner import plan
from gangline.plan.policy import Policy
from gangline.plan.snapshot import PendingGang, Snapshot

MINUTE_MS = 60_000


def planned(snapshot: Snapshot, policy: Policy | None = None) -> Plan:
    made = plan(snapshot, policy or Policy(), NOW_MS)
    assert check(snapshot, made, policy or Policy()) == ()
    return made


def waits(made: Plan, name: str) -> Waiting:
    return made.waits()[name]


def starts(made: Plan) -> set[str]:
    return {p.gang for p in made.placements}


class TestReservations:
    def fleet(self, *others: object) -> Snapshot:
        return world(node("n1"), node("n2", used=8), node("n3", used=8),
                     running("soon", ("n2", 8), ends_by_ms=NOW_MS + 10 * MINUTE_MS),
                     running("later", ("n3", 8)), gang("big", 2), *others)

    def test_the_set_is_the_free_nodes_and_those_of_gangs_that_end_soonest(self) -> None:
        made = planned(self.fleet())
        assert [(r.gang, r.nodes, r.at_ms) for r in made.reservations] == [
            ("big", ("n1", "n2"), NOW_MS + 10 * MINUTE_MS)]
        assert waits(made, "big").earliest_ms == NOW_MS + 10 * MINUTE_MS

    def test_only_a_gang_that_surely_ends_before_may_use_a_kept_node(self) -> None:
        made = planned(self.fleet(gang("x-short", limit_ms=10 * MINUTE_MS)))
        assert starts(made) == {"x-short"}
        for limit_ms in (None, 10 * MINUTE_MS + 1):
            made = planned(self.fleet(gang("x-long", limit_ms=limit_ms)))
            assert starts(made) == set()
            wait = waits(made, "x-long")
            assert (wait.code, wait.blocked_by) == ("reserved", ("big",))

    def test_an_unknown_end_keeps_the_nodes_without_exception(self) -> None:
        made = planned(world(node("n1"), node("n2", used=8), running("r", ("n2", 8)), gang("big", 2),
                             gang("x", limit_ms=1)))
        assert starts(made) == set()
        assert made.reservations[0].at_ms is None
        assert waits(made, "big").earliest_ms is None

    def test_only_the_first_blocked_gangs_are_protected(self) -> None:
        made = planned(self.fleet(gang("x")), Policy(reserve_first=0))
        assert (starts(made), made.reservations) == ({"x"}, ())

    def test_a_later_reservation_counts_the_end_of_an_earlier_one(self) -> None:
        made = planned(world(node("n1", used=8), running("r", ("n1", 8), ends_by_ms=NOW_MS + MINUTE_MS),
                             gang("a", limit_ms=MINUTE_MS), gang("b")))
        assert waits(made, "b").earliest_ms == NOW_MS + 2 * MINUTE_MS

    def test_rdma_reserves_on_the_fabric_where_it_can_start_earliest(self) -> None:
        made = planned(world(
            node("a1"), node("a2", used=8),
            node("b1", fabric="ib-2", used=8), node("b2", fabric="ib-2", used=8),
            running("r", ("a2", 8)), running("s", ("b1", 8), ("b2", 8), ends_by_ms=NOW_MS + MINUTE_MS),
            gang("g", 2, rdma=True), gang("x")))
        assert made.reservations[0].nodes == ("b1", "b2")
        assert starts(made) == {"x"}

    def test_a_single_is_promised_the_rest_of_a_node_that_another_has_just_got_a_part_of(self) -> None:
        made = planned(world(node("n1", used=7), running("r", ("n1", 7), ends_by_ms=NOW_MS + MINUTE_MS),
                             gang("first", gpu="H100:1", priority=100, limit_ms=10 * MINUTE_MS),
                             gang("g", gpu="H100:4")))
        assert starts(made) == {"first"}
        assert (made.reservations[0].nodes, made.reservations[0].at_ms) == (("n1",), NOW_MS + MINUTE_MS)

    def test_a_single_is_promised_the_gpus_that_come_free_first(self) -> None:
        made = planned(world(node("n1", used=8), node("n2", used=7),
                             running("r", ("n1", 8), ends_by_ms=NOW_MS + 2 * MINUTE_MS),
                             running("s", ("n2", 7), ends_by_ms=NOW_MS + MINUTE_MS), gang("g", gpu="H100:4")))
        assert (made.reservations[0].nodes, made.reservations[0].at_ms) == (("n2",), NOW_MS + MINUTE_MS)


class TestCapacity:
    def test_nodes_in_flight_are_not_asked_for_again(self) -> None:
        snapshot = world(pool(most=9), node("n1"), gang("g", 3))
        first = planned(snapshot)
        assert first.capacity[0].nodes == 2
        after = commit(snapshot, first)
        second = planned(after)
        assert second.capacity == ()
        assert waits(second, "g").code == "capacity"
        assert len(second.reservations[0].nodes) == 3

    def test_an_earlier_gang_takes_the_nodes_in_flight(self) -> None:
        made = planned(world(pool(most=9), node("n1", usable=False, usable_ms=NOW_MS + 5),
                             gang("a"), gang("b")))
        assert [(c.nodes, c.gangs) for c in made.capacity] == [(1, ("b",))]
        assert waits(made, "a").earliest_ms == NOW_MS + 5

    def test_singles_share_the_nodes_they_ask_for(self) -> None:
        made = planned(world(pool(most=9), *(gang(f"g{i}", gpu="H100:2") for i in range(5))))
        assert [(c.nodes, c.gangs) for c in made.capacity] == [(2, ("g0", "g1", "g2", "g3", "g4"))]

    def test_the_soonest_pool_is_asked_then_the_cheapest_then_by_name(self) -> None:
        def asked(**changes: object) -> str:
            a = pool("a", most=5, price_nano_per_gpu_hour=5)
            b = pool("b", most=5, **{"price_nano_per_gpu_hour": 5, **changes})
            return planned(world(a, b, gang("g", 2))).capacity[0].pool
        assert asked() == "a"
        assert asked(price_nano_per_gpu_hour=4) == "b"
        assert asked(price_nano_per_gpu_hour=6, boot_ms=1) == "b"

    def test_several_pools_complete_a_gang_that_none_completes_alone(self) -> None:
        made = planned(world(pool("a", most=2), pool("b", most=2), gang("g", 3)))
        assert [(c.pool, c.nodes) for c in made.capacity] == [("a", 2), ("b", 1)]

    def test_a_pool_is_asked_only_once_nothing_else_is_waited_for(self) -> None:
        def planned_with(ends_by_ms: int) -> Plan:
            return planned(world(pool(most=4), node("n1", used=8), node("n2", used=8), gang("g", 4),
                                 running("r", ("n1", 8), ("n2", 8), ends_by_ms=ends_by_ms)))
        late = planned_with(NOW_MS + 10 * MINUTE_MS)
        assert late.capacity == ()
        assert waits(late, "g").earliest_ms == NOW_MS + 10 * MINUTE_MS
        early = planned_with(NOW_MS + MINUTE_MS)  # gone by the time new nodes have booted
        assert [(c.pool, c.nodes) for c in early.capacity] == [("p", 2)]
        assert waits(early, "g").earliest_ms == NOW_MS + MINUTE_MS

    def test_demand_must_go_unmet_for_the_pools_delay(self) -> None:
        def asked(since_ms: int) -> tuple[object, ...]:
            return planned(world(pool(most=4, delay_ms=MINUTE_MS), gang("g", 2, since_ms=since_ms))).capacity
        assert asked(NOW_MS - MINUTE_MS + 1) == ()
        assert len(asked(NOW_MS - MINUTE_MS)) == 1

    def test_warm_nodes_are_asked_for_beside_what_gangs_need(self) -> None:
        made = planned(world(pool(most=9, warm=2), node("n1"), node("n2", usable=False, usable_ms=NOW_MS + 5),
                             gang("g", 1)))
        assert [(c.pool, c.nodes, c.gangs) for c in made.capacity] == [("p", 1, ())]
        made = planned(world(pool(most=9, warm=2), gang("g", 1)))
        assert [(c.pool, c.nodes, c.gangs) for c in made.capacity] == [("p", 3, ("g",))]

    def test_nodes_that_idle_are_given_back_longest_first_down_to_what_is_kept(self) -> None:
        nodes = [node(f"n{i}", idle_ms=NOW_MS - (i + 1) * MINUTE_MS) for i in range(5)]
        keeping = pool(idle_ms=2 * MINUTE_MS, most=5, warm=1, least=2, spares=1)
        made = planned(world(keeping, *nodes))
        assert [(r.pool, r.nodes) for r in made.retirements] == [("p", ("n3", "n2", "n1"))]
        assert planned(world(replace(keeping, least=4), *nodes)).retirements[0].nodes == ("n3",)
        assert planned(world(replace(keeping, idle_ms=None), *nodes)).retirements == ()

    def test_a_gang_let_in_while_nodes_boot_does_not_make_it_ask_again(self) -> None:
        snapshot = world(pool(most=9), node("n1"), gang("big", 2), gang("short", limit_ms=30_000))
        first = planned(snapshot)
        assert (starts(first), first.capacity[0].nodes) == ({"short"}, 1)
        second = planned(commit(snapshot, first))
        assert second.capacity == ()
        assert second.reservations[0].nodes == ("n1", "p-new-1")
        assert waits(second, "big").earliest_ms == NOW_MS + MINUTE_MS

    def test_rdma_grows_the_fabric_it_needs(self) -> None:
        made = planned(world(pool("a", most=9), pool("b", fabric="ib-2", most=1, boot_ms=1),
                             node("n", pool="a"), gang("g", 2, rdma=True)))
        assert [(c.pool, c.nodes) for c in made.capacity] == [("a", 1)]
        assert made.reservations[0].nodes == ("n",)

    def test_new_nodes_are_trusted_on_a_leaf_only_when_the_pool_has_one(self) -> None:
        one = world(pool(most=4), node("n1", path=("l1",)), gang("g", 2, within="leaf"))
        assert planned(one).capacity[0].nodes == 1
        two = world(pool(most=4), node("n1", path=("l1",)), node("n2", path=("l2",)),
                    gang("g", 2, within="leaf"))
        assert planned(two).capacity == ()

    def test_nothing_is_asked_when_the_policy_forbids_it(self) -> None:
        made = planned(world(pool(most=4), gang("g", 2)), Policy(capacity=False))
        assert (made.capacity, waits(made, "g").code) == ((), "unavailable")


class TestWords:
    def test_busy_says_what_is_short_and_who_holds_it(self) -> None:
        made = planned(world(
            *(node(f"n{i}", used=8) for i in range(4)), node("n4"), node("n5"),
            running("sft", ("n0", 8), ("n1", 8), ("n2", 8)), running("eval", ("n3", 8)),
            gang("g", 4, rdma=True)))
        wait = waits(made, "g")
        assert wait.text == ("needs 4 x H100:8 on one fabric; 2 of 6 are free in fabric ib-1; "
                             "held by sft (run/sft), eval (run/eval)")
        assert (wait.code, wait.short, wait.blocked_by) == ("busy", 2, ("sft", "eval"))

    def test_out_of_service_says_which(self) -> None:
        made = planned(world(node("n1"), node("n2", usable=False), gang("g", 2)))
        wait = waits(made, "g")
        assert (wait.code, wait.short) == ("unavailable", 1)
        assert wait.text == "needs 2 x H100:8; 1 of 2 nodes that would do is out of service (n2)"

    def test_capacity_says_which_pool_was_asked(self) -> None:
        made = planned(world(pool(most=4), node("n1"), gang("g", 2)))
        assert waits(made, "g").text == ("needs 2 x H100:8; 1 is free in the fleet and kept for it; "
                                         "1 node asked of pool p")


NEVER: list[tuple[PendingGang, str]] = [
    (gang("g", gpu="B200:8"), "gpu: no node and no pool has B200:8; the fleet has H100:8, cpu:4 "
                              "(ask for one of those or add a pool)"),
    (gang("g", gpu="H100:16"), "gpu: no node has H100:16; the largest is H100:8 "
                               "(ask for at most H100:8 per node)"),
    (gang("g", zone="mars"), "placement.zone: there is no zone mars (use one of z1, z2, or leave it out)"),
    (gang("g", pool="q"), "placement.pool: there is no pool q (use one of c, p, or leave it out)"),
    (gang("g", zone="z2"), "placement.zone: no node or pool with H100:8 is in zone z2 "
                           "(change it or leave it out)"),
    (gang("g", 9), "size: needs 9 x H100:8; there can be at most 4 x H100:8 together (lower it to 4)"),
    (gang("g", 2, exclude=frozenset({"n1"}), pool="p", within="leaf"), ""),
    (gang("g", 1, "cpu", rdma=True), "rdma: no pool with cpu has an RDMA network "
                                     "(change it or leave it out)"),
    (gang("g", roles=(role("a", 2, "H100:8"), role("b", 3, "H100:8"))),
     "roles.b.size: needs a 2 x H100:8 + b 3 x H100:8; there can be at most 2 x H100:8 + 2 x H100:8 together "
     "(lower it to 2)"),
]


@pytest.mark.parametrize(("asked", "text"), NEVER)
def test_what_can_never_be_names_the_field_and_what_could_be(asked: PendingGang, text: str) -> None:
    snapshot = world(pool(most=4), pool("c", "cpu:4", zone="z2", fabric=None, rdma=False),
                     node("n1", used=8), node("n2", usable=False),
                     node("c1", "cpu:4", pool="c", zone="z2", fabric=None), asked)
    assert (never_fits(asked, snapshot) or "") == text
    assert (waits(planned(snapshot), "g").code == "never") == bool(text)


def test_a_constraint_that_makes_it_too_big_is_named_beside_the_size() -> None:
    asked = gang("g", 3, rdma=True)
    snapshot = world(node("a1"), node("a2"), node("b1", fabric="ib-2"), node("b2", fabric="ib-2"), asked)
    assert never_fits(asked, snapshot) == (
        "size: needs 3 x H100:8 on one fabric; there can be at most 2 x H100:8 together (fabric ib-1) "
        "(lower it to 2, or leave out rdma)")
