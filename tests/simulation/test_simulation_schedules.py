"""Schedules small enough to be worked out by hand, for every policy that is compared."""

from __future__ import annotations

from dataclasses import replace

import pytest
from replays import H, ends_s, job, overlaps, run, starts_s, world

from gangline.model.errors import Bug
from gangline.model.fleet import Fleet
from gangline.plan.outcome import NodeChoice, Placement, Plan
from gangline.plan.policy import POLICIES, Policy
from gangline.simulation.demand import Demand, Limits
from gangline.simulation.engine import Conditions, replay
from gangline.simulation.metrics import metrics
from gangline.simulation.trace import Trace
from gangline.simulation.world import resized, world_of

# Four nodes. The first job leaves one free; the second needs all four; the third fits the one that is left and is
# over before the first; the fourth fits it too and is not.
BLOCKED = [job(0, 3, 100), job(10, 4, 50), job(20, 1, 60), job(30, 1, 500)]


@pytest.mark.parametrize(("policy", "expected"), [
    ("fifo", [0, 100, 150, 150]),  # nobody passes the second
    ("best-effort-fifo", [0, 580, 20, 80]),  # the fourth, let through at 80, holds up the second until 580
    ("easy", [0, 100, 20, 150]),  # only who is gone when the second starts
    ("submit-order", [0, 100, 20, 150]),
    (replace(POLICIES["short-first"], reserve_first=1, reserve_after_ms=0), [0, 100, 20, 150]),
    (replace(POLICIES["short-first"], reserve_first=1, reserve_after_ms=3600_000), [0, 580, 20, 80]),
])
def test_a_blocked_gang_and_those_behind_it(policy: str | Policy, expected: list[float]) -> None:
    result = run(BLOCKED, policy)
    assert starts_s(result) == expected
    assert overlaps(result) == []


def test_the_shortest_goes_first_until_the_oldest_is_protected() -> None:
    jobs = [job(0, 4, 5 * H), job(60, 4, 3 * H), job(120, 4, H), job(4.5 * H, 4, H), job(5.5 * H, 4, H)]
    # At 5 h the second has waited more than four hours: it is the oldest, and comes first for all its length.
    soon = replace(POLICIES["short-first"], protect_after_ms=4 * H * 1000, age_after_ms=None)
    assert starts_s(run(jobs, soon)) == [0, 5 * H, 8 * H, 9 * H, 10 * H]
    assert starts_s(run(jobs, replace(soon, protect_after_ms=None))) == [0, 8 * H, 5 * H, 6 * H, 7 * H]


def test_parts_of_a_node_are_shared() -> None:
    result = run([job(0, 1, 100, gpus=4), job(0, 1, 100, gpus=4), job(0, 1, 100, gpus=1)], on=world(1))
    assert starts_s(result) == [0, 0, 100]
    assert metrics(result)["utilisation"] == pytest.approx((800 + 100) / (8 * 200), abs=1e-4)


def test_a_job_over_its_limit_is_killed_at_it() -> None:
    result = run([job(0, 4, 100, limit_s=60), job(1, 4, 10, limit_s=20)], limits="trace")
    assert ends_s(result) == [60, 70]
    assert metrics(result)["over_limit"] == 1


def test_limits_are_what_the_planner_believes() -> None:
    jobs = [job(0, 3, 100), job(10, 4, 50), job(20, 1, 60)]
    assert starts_s(run(jobs, "easy", limits="exact"))[2] == 20
    assert starts_s(run(jobs, "easy", limits="x3"))[2] == 20  # 20 + 180 <= 300
    assert starts_s(run(jobs, "easy", limits="none"))[2] == 150  # nobody knows that it will be gone in time


def test_failures_lose_what_came_after_the_last_checkpoint() -> None:
    jobs = [job(0, 2, 10 * H)]
    calm = run(jobs, on=world(2))
    assert ends_s(calm) == [10 * H]
    rough = run(jobs, on=world(2), failures_per_node_day=2.0, repair_ms=H * 1000, checkpoint_ms=H * 1000, seed=1)
    (only,) = rough.runs
    assert only.failed == len(only.spans) - 1 > 0
    # Each attempt saves whole hours, and waits for the repair of one of only two nodes.
    saved = [(span.end_ms - span.start_ms) // (H * 1000) for span in only.spans[:-1]]
    last = only.spans[-1]
    assert (last.end_ms - last.start_ms) == (10 - sum(saved)) * H * 1000
    assert only.waited_ms == only.failed * H * 1000
    assert metrics(rough)["lost_gpu_hours"] > 0
    assert overlaps(rough) == []


def test_a_spare_replaces_a_failed_node_at_once() -> None:
    jobs = [job(0, 2, 10 * H)]
    result = run(jobs, on=world(3), failures_per_node_day=4.0, repair_ms=H * 1000, checkpoint_ms=H * 1000, seed=5)
    (only,) = result.runs
    assert only.failed > 0
    first, second = only.spans[0], only.spans[1]
    assert second.start_ms == first.end_ms
    assert len({held.node for held in first.holds} & {held.node for held in second.holds}) == 1  # repaired, not moved


def test_who_matters_more_ends_who_matters_less() -> None:
    jobs = [job(0, 4, 10 * H, priority=-100), job(2 * H + 600, 4, H)]
    result = run(jobs, "submit-order")
    low, high = result.runs
    # Told to end at once, gone after its grace of 60 s; its last checkpoint is 10 minutes old.
    assert high.first_ms == (2 * H + 660) * 1000
    assert low.preempted == 1
    assert low.end_ms == ((2 * H + 660) + H + 8 * H) * 1000
    assert metrics(result)["preemptions"] == 1
    assert starts_s(run(jobs, "easy"))[1] == 10 * H


def test_a_pool_boots_what_is_short_and_gives_back_what_idles() -> None:
    on = world(1, max=4, boot="5m", idle="30m")
    result = run([job(0, 4, H), job(3 * H, 1, H)], "submit-order", on)
    assert starts_s(result) == [300, 3 * H]
    gpus = list(result.tally.series.gpus)
    assert max(gpus) == 32
    assert gpus[-1] == 8


def test_more_nodes_are_a_thought_away() -> None:
    base = Fleet.parse({"pools": [{"name": "p", "gpu": "H100:8", "min": 2, "max": 2}]})
    jobs = [job(0, 2, 100), job(0, 2, 100)]
    assert ends_s(run(jobs, on=world_of(base))) == [100, 200]
    assert ends_s(run(jobs, on=world_of(resized(base, {"p": 4})))) == [100, 100]


def test_gangs_that_could_never_run_are_left_out_and_those_that_never_do_are_counted() -> None:
    trace = Trace.of("test", [job(0, 5, 10), job(0, 1, 10, gpu="B300"), job(0, 1, 10, gpus=9), job(0, 4, 10)])
    assert [gang is not None for _, gang in Demand(world(), Limits("exact")).gangs(trace)] == [False] * 3 + [True]
    quota = Fleet.parse({"pools": [{"name": "p", "gpu": "H100:8", "min": 4, "max": 4}],
                         "tenants": [{"name": "small", "quota": {"H100": 8}}]})
    result = run([job(0, 4, 10, tenant="small"), job(0, 1, 10)], "submit-order", world_of(quota))
    assert starts_s(result) == [None, 0]
    assert metrics(result)["starved"] == 1


def test_a_plan_that_books_twice_is_a_bug() -> None:
    on, trace = world(1), Trace.of("test", [job(0, 1, 10), job(0, 1, 10)])

    def greedy(snapshot, policy, now_ms):  # type: ignore[no-untyped-def]
        ask = snapshot.pending[0].roles[0].asks[0]
        member = NodeChoice(node="p-1", gpus=tuple(range(8)), ask=ask)
        return Plan(base=0, placements=tuple(
            Placement(gang=gang.gang, nodes=(member,), zone="local", fabric=None) for gang in snapshot.pending))

    gangs = [(each, gang) for each, gang in Demand(on, Limits("exact")).gangs(trace) if gang is not None]
    with pytest.raises(Bug, match="job-2 was placed on GPUs of p-1 that another gang holds"):
        replay(on, gangs, POLICIES["fifo"], Conditions(), planner=greedy)
