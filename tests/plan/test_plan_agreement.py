"""The fast planner and the reference decide alike, gang for gang and byte for byte."""

from __future__ import annotations

from dataclasses import fields

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from plan_worlds import NOW_MS, POLICIES, advance, commit, worlds
from reference import reference_plan

from gangline.plan.outcome import Plan
from gangline.plan.planner import plan
from gangline.plan.policy import Policy
from gangline.plan.snapshot import Snapshot

many = settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
TEXTS = {"waiting", "due_ms"}  # the reference writes no reasons


def decisions(made: Plan) -> dict[str, object]:
    """What a plan does, and the code of each gang that waits."""
    found = {field.name: getattr(made, field.name) for field in fields(made) if field.name not in TEXTS}
    return {**found, "codes": {gang: waiting.code for gang, waiting in made.waits().items()}}


@many
@given(worlds(), POLICIES)
def test_both_decide_alike(snapshot: Snapshot, policy: Policy) -> None:
    assert decisions(plan(snapshot, policy, NOW_MS)) == decisions(reference_plan(snapshot, policy, NOW_MS))


@settings(many, max_examples=50)
@given(worlds(most=12), POLICIES)
def test_both_decide_alike_on_larger_fleets(snapshot: Snapshot, policy: Policy) -> None:
    assert decisions(plan(snapshot, policy, NOW_MS)) == decisions(reference_plan(snapshot, policy, NOW_MS))


@settings(many, max_examples=50)
@given(worlds(), POLICIES, st.lists(st.sampled_from([0, 20_000, 60_000, 600_000]), min_size=1, max_size=5))
def test_both_decide_alike_on_what_their_plans_lead_to(snapshot: Snapshot, policy: Policy, steps: list[int]) -> None:
    now_ms = NOW_MS
    for step_ms in steps:
        made = plan(snapshot, policy, now_ms)
        assert decisions(made) == decisions(reference_plan(snapshot, policy, now_ms))
        snapshot = commit(snapshot, made, now_ms)
        now_ms += step_ms
        snapshot = advance(snapshot, now_ms)
