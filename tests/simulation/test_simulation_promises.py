"""What must hold of every replay, however long: all jobs run once, nothing is leased twice, seeds repeat."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from replays import H, fleet, job, overlaps, run, without_times, world

from gangline.cli.render_simulation import plain
from gangline.model.gpu import GpuAsk
from gangline.plan.check import check
from gangline.plan.planner import plan
from gangline.plan.policy import POLICIES
from gangline.simulation.compare import compare
from gangline.simulation.demand import Demand, Limits
from gangline.simulation.engine import Conditions, replay
from gangline.simulation.generator import Recipe, generate
from gangline.simulation.metrics import metrics
from gangline.simulation.trace import Trace
from gangline.simulation.world import read_topology, world_of

MIXED = generate(Recipe(jobs=150, load=1.1, most=6, median_ms=1_800_000, sigma=1.0), 8, seed=3)
ROUGH = {"failures_per_node_day": 1.0, "repair_ms": 2 * H * 1000, "seed": 4}
GOLDEN = Path(__file__).with_name("tiny_replay.json")


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_every_job_runs_once_on_its_own(policy: str) -> None:
    result = run(MIXED.jobs, policy, world(8))
    assert [len(each.spans) for each in result.runs] == [1] * len(MIXED.jobs)
    for each in result.runs:
        (span,) = each.spans
        assert span.start_ms >= each.job.submit_ms
        assert span.end_ms - span.start_ms == each.job.duration_ms
        assert each.waited_ms == span.start_ms - each.job.submit_ms
    assert overlaps(result) == []


@pytest.mark.parametrize("policy", ["submit-order", "short-first"])
def test_jobs_that_fail_and_are_preempted_do_all_their_work(policy: str) -> None:
    jobs = [job(each.submit_ms / 1000, each.nodes, each.duration_ms / 1000, priority=100 * (index % 7 == 0))
            for index, each in enumerate(MIXED.jobs)]
    result = run(jobs, policy, world(8), **ROUGH)
    numbers = metrics(result)
    assert numbers["failures"] > 0
    assert numbers["preemptions"] > 0
    assert numbers["starved"] == 0
    for each in result.runs:
        assert len(each.spans) == 1 + each.failed + each.preempted
        kept_ms = sum((span.end_ms - span.start_ms) // 1_800_000 * 1_800_000 for span in each.spans[:-1])
        assert kept_ms + each.spans[-1].end_ms - each.spans[-1].start_ms == each.job.duration_ms
    assert overlaps(result) == []


def test_every_plan_of_a_rough_replay_keeps_the_rules() -> None:
    on = world(6, max=8, boot="5m", idle="20m", spares=1)
    broken: list[str] = []

    def watched(snapshot, policy, now_ms):  # type: ignore[no-untyped-def]
        decided = plan(snapshot, policy, now_ms)
        broken.extend(check(snapshot, decided))
        return decided

    gangs = [(each, gang) for each, gang in Demand(on, Limits("factor", 2.0)).gangs(MIXED) if gang is not None]
    result = replay(on, gangs, POLICIES["submit-order"], Conditions(failures_per_node_day=1.0, seed=4), planner=watched)
    assert broken == []
    assert overlaps(result) == []


def test_the_same_seed_gives_the_same_bytes() -> None:
    on, limits = world(8), Limits("exact")
    one, again, other = (
        json.dumps(without_times(plain(MIXED, [on], limits, list(compare(
            MIXED, [on], [POLICIES["submit-order"]], limits, Conditions(seed=seed, failures_per_node_day=1.0))))))
        for seed in (1, 1, 2))
    assert one == again
    assert one != other


def test_a_tiny_trace_as_json() -> None:
    trace = Trace.of("tiny.csv", [job(0, 3, 100), job(10, 4, 50), job(20, 1, 60), job(30, 1, 500, gpus=4)], skipped=1)
    on, limits = world_of(fleet(4), "the fleet"), Limits("exact")
    cases = list(compare(trace, [on], [POLICIES["fifo"], POLICIES["easy"]], limits, Conditions()))
    assert without_times(plain(trace, [on], limits, cases)) == json.loads(GOLDEN.read_text())


def test_locality_on_leaves_of_eight(tmp_path: Path) -> None:
    path = tmp_path / "topo.csv"
    path.write_text("DSW,PSW,ASW\n" + "".join(f"G,P{leaf // 4},S{leaf}\n" for leaf in range(16) for _ in range(8)))
    on = read_topology(path, GpuAsk("H800", 8))
    trace = generate(Recipe(jobs=300, load=0.6, least=2, most=32), on.node_count, seed=0)
    numbers = metrics(run(trace.jobs, "submit-order", on))
    assert 1 <= numbers["leaves_over_minimum"] < 1.3
    assert numbers["fragmentation"] == 0  # one fabric cannot be fragmented
