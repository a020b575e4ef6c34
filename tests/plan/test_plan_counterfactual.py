"""What would help a gang that waits, where it was tried, and who is in its way."""

from __future__ import annotations

from plan_worlds import NOW_MS, gang, leaf, node, pool, running, world

from gangline.plan.counterfactual import Question, what_if
from gangline.plan.outcome import Reservation
from gangline.plan.policy import Policy
from gangline.plan.snapshot import PendingGang, Snapshot
from gangline.plan.tried import in_the_way, tried

MINUTE_MS = 60_000


def helps(snapshot: Snapshot, asked: PendingGang, *before: PendingGang) -> list[tuple[str, tuple[str, ...]]]:
    answers = what_if(Question(snapshot, Policy(), NOW_MS, asked, before))
    return [(each.change, each.nodes or each.preempts) for each in answers]


def test_rdma_within_type_and_size_are_changed_one_at_a_time() -> None:
    snapshot = world(*leaf("a", 2, "s", "l1"), *leaf("b", 2, "s", "l2"), node("h", "H200:8", pool="q"),
                     pool(), pool("q", "H200:8", rdma=False))
    asked = gang("g", 3, within="leaf")
    assert helps(snapshot, asked) == [("without within leaf", ("a0", "a1", "b0")), ("with size 2", ("a0", "a1"))]
    assert helps(snapshot, gang("g", 1, "B300:8", rdma=True)) == [("as H100:8", ("a0",))]
    assert helps(snapshot, gang("g", 1, "H200:8", rdma=True)) == [("with rdma off", ("h",)), ("as H100:8", ("a0",))]


def test_places_that_were_ruled_out() -> None:
    snapshot = world(node("a"), node("b", zone="z2", pool="q"), pool(), pool("q", zone="z2"),
                     running("r", ("a", 8), since_ms=NOW_MS))
    assert helps(snapshot, gang("g", zone="z1", exclude=frozenset({"b"}))) == []
    assert helps(snapshot, gang("g", zone="z1")) == [("in zone z2", ("b",))]
    assert helps(snapshot, gang("g", pool="p")) == [("in any pool", ("b",))]
    assert helps(snapshot, gang("g", exclude=frozenset({"b"}))) == [("without exclude", ("b",))]


def test_a_higher_priority_may_preempt() -> None:
    snapshot = world(node("a"), pool(), running("r", ("a", 8), since_ms=NOW_MS - 60 * MINUTE_MS))
    assert helps(snapshot, gang("g")) == [("at priority high", ("r",))]


def test_gangs_for_which_nodes_are_kept_stay_before_it() -> None:
    snapshot = world(*leaf("a", 2), pool(), running("r", ("a0", 8), since_ms=NOW_MS, ends_by_ms=NOW_MS + MINUTE_MS))
    assert helps(snapshot, gang("g", 2)) == [("with size 1", ("a1",))]
    assert helps(snapshot, gang("g", 2), gang("first", 2, since_ms=0, submitted_ms=0)) == []


def test_blocks_of_a_domain_shrink_by_whole_blocks() -> None:
    nodes = [node(f"d{i}", domain="d", path=("l",)) for i in range(4)]
    snapshot = world(*nodes, pool())
    assert helps(snapshot, gang("g", 8, domain_size=2)) == [("with size 4", ("d0", "d1", "d2", "d3"))]


def test_where_it_was_tried_and_who_is_there() -> None:
    snapshot = world(*leaf("a", 3, "s", "l1"), *leaf("b", 2, "s", "l2"), pool(),
                     running("r", ("a0", 8), ("a1", 8), ends_by_ms=NOW_MS + MINUTE_MS), running("one", ("b0", 1)))
    asked = gang("g", 2, within="leaf")
    assert [(each.where, each.free, each.could, each.need) for each in tried(snapshot, asked)] == [
        ("leaf l1", 1, 3, 2), ("leaf l2", 1, 2, 2)]
    kept = (Reservation(gang="k", nodes=("a2", "b1"), at_ms=None), Reservation(gang="g", nodes=("a2",), at_ms=1))
    assert [(each.gang, each.nodes, each.ends_ms, each.reserved) for each in in_the_way(snapshot, asked, kept)] == [
        ("r", 2, NOW_MS + MINUTE_MS, False), ("one", 1, None, False), ("k", 2, None, True)]
    single = gang("s", 1, "H100:4")
    assert tried(snapshot, single)[0].free == 3
