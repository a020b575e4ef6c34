"""Failures that users of other schedulers reported, played out over many passes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from plan_worlds import NOW_MS, advance, changed, commit, gang, leaf, node, running, tenant, world

from gangline.plan.check import check
from gangline.plan.outcome import Plan, WaitCode
from gangline.plan.planner import plan
from gangline.plan.policy import Policy
from gangline.plan.snapshot import PendingGang, Snapshot

MINUTE_MS = 60_000


class Play:
    """A fleet through time: each `step` plans, checks the plan, and acts on it."""

    def __init__(self, snapshot: Snapshot, policy: Policy | None = None) -> None:
        self.now, self.now_ms, self.policy = snapshot, NOW_MS, policy or Policy()
        self.started: dict[str, int] = {}
        self.plan = Plan(base=0)

    def step(self) -> Plan:
        self.plan = plan(self.now, self.policy, self.now_ms)
        assert check(self.now, self.plan) == ()
        for placement in self.plan.placements:
            self.started[placement.gang] = self.now_ms
        self.now = commit(self.now, self.plan, self.now_ms)
        return self.plan

    def wait(self, ms: int) -> Plan:
        self.now_ms += ms
        self.now = advance(self.now, self.now_ms)
        return self.step()

    def submit(self, *gangs: PendingGang) -> None:
        new = [replace(each, submitted_ms=self.now_ms, since_ms=self.now_ms) for each in gangs]
        self.now = changed(self.now, pending=(*self.now.pending, *new))

    def nodes(self, names: Iterable[str], **changes: object) -> None:
        wanted = set(names)
        self.now = changed(self.now, nodes=[replace(each, **changes) if each.name in wanted else each
                                            for each in self.now.nodes])

    def until(self, done: Callable[[], bool], *, every_ms: int = MINUTE_MS, most: int = 500) -> None:
        for _ in range(most):
            if done():
                return
            self.wait(every_ms)
        raise AssertionError(f"after {most} steps: {self.plan.waiting}")

    def holders(self, name: str) -> tuple[str, ...]:
        run = next(r for r in self.now.running if r.gang == name)
        return tuple(held.node for held in run.holds)


def test_two_equal_gangs_never_take_half_of_the_nodes_each() -> None:
    play = Play(world(*leaf("n", 4), gang("a", 4, limit_ms=MINUTE_MS), gang("b", 4, limit_ms=MINUTE_MS)))
    assert [p.gang for p in play.step().placements] == ["a"]
    assert play.plan.waits()["b"].blocked_by == ("a",)
    assert play.plan.waits()["b"].earliest_ms == NOW_MS + MINUTE_MS
    play.wait(MINUTE_MS)
    assert play.started == {"a": NOW_MS, "b": NOW_MS + MINUTE_MS}


def test_a_hurt_gang_is_healed_before_others_may_take_what_it_needs() -> None:
    hurt = gang("hurt", 3, held=tuple(running("x", ("n0", 8), ("n1", 8)).holds), submitted_ms=NOW_MS - MINUTE_MS)
    fleet = world(node("n0", used=8), node("n1", used=8), node("n2", usable=False), node("n3"), hurt)
    play = Play(fleet)
    play.submit(*(gang(f"thief{i}") for i in range(5)))
    play.step()
    (placement,) = [p for p in play.plan.placements if p.gang == "hurt"]
    assert [m.node for m in placement.nodes] == ["n0", "n1", "n3"]
    assert [p.gang for p in play.plan.placements] == ["hurt"]


def test_a_hurt_gang_that_nothing_completes_frees_its_nodes_and_is_first_when_it_can_be_healed() -> None:
    hurt = gang("hurt", 2, held=running("x", ("n0", 8)).holds, submitted_ms=NOW_MS - MINUTE_MS)
    play = Play(world(node("n0", used=8), node("n1", usable=False), hurt))
    play.step()
    assert [r.nodes for r in play.plan.releases] == [("n0",)]
    play.submit(gang("thief", limit_ms=3 * MINUTE_MS))
    play.wait(MINUTE_MS)
    assert play.holders("thief") == ("n0",)
    play.nodes(["n1"], usable=True)
    for number in range(10):
        play.submit(gang(f"more{number}", limit_ms=3 * MINUTE_MS))
        play.wait(MINUTE_MS)
    assert play.started["hurt"] == NOW_MS + 4 * MINUTE_MS
    assert not any(name.startswith("more") for name in play.started)


def test_a_full_rack_in_a_fleet_that_is_not_full_is_said_and_passed_by() -> None:
    rack = [node(f"a{i}", path=("s1", "a"), used=8) for i in range(2)]
    fleet = world(*rack, *leaf("b", 4, "s1", "b"), running("r", ("a0", 8), ("a1", 8)))
    play = Play(fleet)
    play.submit(gang("near", 2, within="leaf"))
    play.now_ms += 1
    play.submit(gang("large", 6, within="spine"))
    play.step()
    assert set(play.holders("near")) == {"b0", "b1"}
    waiting = play.plan.waits()["large"]
    assert (waiting.code, waiting.blocked_by) == (WaitCode.BUSY, ("near", "r"))
    assert "2 of 6 are free in spine s1" in waiting.text


def test_endless_small_gangs_do_not_starve_a_large_one() -> None:
    play = Play(world(*leaf("n", 4)))
    play.submit(*(gang(f"s{i}", limit_ms=10 * MINUTE_MS) for i in range(4)))
    play.step()
    play.now_ms += MINUTE_MS
    play.submit(gang("large", 4, limit_ms=MINUTE_MS))
    play.step()
    for number in range(30):  # a new small one every minute, for as long as it would take to starve it
        play.submit(gang(f"more{number:02}", limit_ms=10 * MINUTE_MS))
        play.wait(MINUTE_MS)
    assert play.started["large"] == NOW_MS + 10 * MINUTE_MS


def test_small_gangs_that_end_in_time_fill_the_hole_in_front_of_a_large_one() -> None:
    play = Play(world(*leaf("n", 4), running("r", ("n0", 8), ends_by_ms=NOW_MS + 10 * MINUTE_MS)))
    play.submit(gang("large", 4))
    play.submit(*(gang(f"eval{i}", gpu="H100:1", limit_ms=5 * MINUTE_MS) for i in range(24)))
    play.submit(gang("late", gpu="H100:1", limit_ms=11 * MINUTE_MS))
    play.step()
    assert sum(name.startswith("eval") for name in play.started) == 24
    assert "late" not in play.started
    play.until(lambda: "large" in play.started)
    assert play.started["large"] == NOW_MS + 10 * MINUTE_MS


def test_a_long_queue_is_worked_off_whole_however_long_it_takes() -> None:
    play = Play(world(*leaf("n", 2)))
    play.submit(*(gang(f"g{i:03}", 1 + i % 2, limit_ms=60 * MINUTE_MS) for i in range(60)))
    play.step()
    play.until(lambda: len(play.started) == 60, every_ms=10 * MINUTE_MS)
    assert play.now.pending == ()


def test_no_node_idles_while_a_gang_that_fits_waits() -> None:
    play = Play(world(*leaf("n", 3)))
    play.submit(*(gang(f"g{i}", 1, limit_ms=(i + 1) * MINUTE_MS) for i in range(9)))
    play.step()
    while play.now.pending:
        assert all(not each.whole for each in play.now.nodes)
        play.wait(MINUTE_MS)


def test_work_without_gpus_does_not_sit_on_gpu_nodes() -> None:
    play = Play(world(node("gpu1"), node("gpu2"), node("plain", "cpu:8", pool="c", fabric=None)))
    play.submit(*(gang(f"c{i}", gpu="cpu:8", limit_ms=MINUTE_MS) for i in range(3)), gang("train", 2))
    play.step()
    assert set(play.holders("train")) == {"gpu1", "gpu2"}
    assert play.plan.waits()["c1"].blocked_by == ("c0",)


def test_two_gangs_for_the_same_hosts_within_one_pass_get_different_ones_or_wait() -> None:
    play = Play(world(*leaf("n", 3)))
    play.submit(gang("a", 2, exclude=frozenset({"n2"})), gang("b", 2, exclude=frozenset({"n2"})))
    play.step()
    assert list(play.started) == ["a"]
    assert play.wait(2_300).placements == ()


def test_a_borrowed_node_is_given_back_to_the_tenant_whose_it_is() -> None:
    tenants = [tenant("own", quota={"H100": 16}, cohort="c"), tenant("guest", quota={"H100": 0}, cohort="c")]
    play = Play(world(*leaf("n", 2), *tenants))
    play.submit(*(gang(f"g{i}", tenant="guest") for i in range(3)))
    play.step()
    assert len(play.started) == 2
    assert play.plan.waits()["g2"].code is WaitCode.QUOTA
    play.now_ms += 10 * MINUTE_MS
    play.submit(gang("mine", 2, tenant="own"))
    assert {(p.gang, p.reclaim) for p in play.step().preemptions} == {("g0", True), ("g1", True)}
    play.until(lambda: "mine" in play.started)


def test_a_drained_node_gets_nothing_new_whoever_waits() -> None:
    play = Play(world(*leaf("n", 2), running("r", ("n0", 8), ends_by_ms=NOW_MS + MINUTE_MS)))
    play.nodes(["n0"], usable=False)
    play.submit(gang("a", 2))
    for _ in range(3):
        play.wait(MINUTE_MS)
    assert play.started == {}
    assert play.plan.waits()["a"].code is WaitCode.UNAVAILABLE
    play.nodes(["n0"], usable=True)
    play.wait(MINUTE_MS)
    assert "a" in play.started


def test_what_was_given_back_goes_to_whose_it_is_and_not_again_to_the_borrower() -> None:
    tenants = [tenant("zowner", quota={"H100": 16}, cohort="c"), tenant("borrower", quota={"H100": 16}, cohort="c")]
    play = Play(world(*leaf("n", 4), *tenants))
    play.submit(gang("large", 4, tenant="borrower"))
    play.step()
    play.now_ms += 10 * MINUTE_MS
    play.submit(gang("mine", 2, tenant="zowner"))
    assert [p.gang for p in play.step().preemptions] == ["large"]
    large = gang("large", 4, tenant="borrower")
    play.now_ms += MINUTE_MS
    play.now = advance(play.now, play.now_ms)
    play.submit(large)
    play.step()
    assert play.started["mine"] == play.now_ms
    assert play.plan.waits()["large"].code in (WaitCode.BUSY, WaitCode.QUOTA)
