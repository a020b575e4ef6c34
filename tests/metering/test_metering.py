"""Costs and usage rows add up, to the nano-unit, however the time is cut."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gangline.metering import BY, PhaseInterval, cost_nano, summarise
from gangline.model.errors import Rejected
from gangline.model.gang import UsageRow
from gangline.model.states import Cause, Phase

HOUR_MS = 3_600_000


def interval(start_ms: int = 0, end_ms: int | None = HOUR_MS, **changes: object) -> PhaseInterval:
    base = PhaseInterval(
        lease=1, gang="g", attempt=1, node="n", tenant="t", slot="s", cause=None, pool="p",
        phase=Phase.RUNNING, gpus=8, start_ms=start_ms, end_ms=end_ms, opened_ms=0,
        price_nano_per_gpu_hour=7_100_000_000, currency="USD")
    return replace(base, **changes)


def total(rows: list[UsageRow]) -> tuple[int, int, int]:
    return sum(r.gpu_ms for r in rows), sum(r.node_ms for r in rows), sum(r.cost_nano for r in rows)


def test_an_hour_of_a_node_costs_its_price_times_its_gpus() -> None:
    (row,) = summarise([interval()], ["gang"], None, None, now_ms=0)
    assert row == UsageRow(by={"gang": "g"}, gpu_ms=8 * HOUR_MS, node_ms=HOUR_MS,
                           cost_nano=56_800_000_000, currency="USD")


def test_an_open_interval_lasts_until_now_and_the_window_is_half_open() -> None:
    running = interval(100, None)
    assert total(summarise([running], [], None, None, now_ms=300))[1] == 200
    assert total(summarise([running], [], 150, 250, now_ms=300))[1] == 100
    assert summarise([running], [], 300, 400, now_ms=300) == []
    assert summarise([running], [], 0, 100, now_ms=300) == []


def test_running_after_the_last_commit_of_a_bad_attempt_is_lost() -> None:
    bad = interval(0, 1000, cause=Cause.LOST, kept_until_ms=600)
    assert {r.by["cause"]: r.node_ms for r in summarise([bad], ["cause"], None, None, 0)} == {
        "running": 600, "lost": 400}
    never_saved = replace(bad, kept_until_ms=None)
    assert [r.by["cause"] for r in summarise([never_saved], ["cause"], None, None, 0)] == ["lost"]
    good, open_ = replace(bad, cause=Cause.SUCCESS), replace(bad, cause=None)
    for kept in (good, open_, replace(bad, kept_until_ms=2000)):
        assert [r.by["cause"] for r in summarise([kept], ["cause"], None, None, 0)] == ["running"]
    draining = replace(bad, phase=Phase.DRAINING)
    assert [r.by["cause"] for r in summarise([draining], ["cause"], None, None, 0)] == ["draining"]


def test_currencies_stay_apart_and_attempts_sort_as_numbers() -> None:
    mixed = [interval(currency="EUR"), interval(), interval(attempt=10), interval(attempt=2)]
    assert [(r.by["attempt"], r.currency) for r in summarise(mixed, ["attempt"], None, None, 0)] == [
        ("1", "EUR"), ("1", "USD"), ("2", "USD"), ("10", "USD")]


def test_an_unknown_group_is_refused_by_name() -> None:
    with pytest.raises(Rejected, match=r"by: 'colour' is nothing to group by \(use gang, attempt"):
        summarise([], ["gang", "colour"], None, None, 0)


instants = st.integers(0, 10 * HOUR_MS)


@st.composite
def intervals(draw: st.DrawFn) -> PhaseInterval:
    opened_ms, start_ms, end_ms = sorted(draw(st.tuples(instants, instants, instants)))
    return interval(
        start_ms, draw(st.sampled_from([end_ms, end_ms, None])), opened_ms=opened_ms,
        gang=draw(st.sampled_from("ab")), node=draw(st.sampled_from("xy")), attempt=draw(st.integers(1, 3)),
        cause=draw(st.sampled_from([None, *Cause])), phase=draw(st.sampled_from(Phase)),
        gpus=draw(st.integers(1, 9)), price_nano_per_gpu_hour=draw(st.integers(0, 10**11)),
        kept_until_ms=draw(st.none() | instants))


@settings(max_examples=100, deadline=None)
@given(st.lists(intervals(), max_size=6), st.sets(st.sampled_from(BY)), st.lists(instants, max_size=4))
def test_rows_of_all_groups_and_windows_sum_to_the_whole(
        rows: list[PhaseInterval], by: set[str], cuts: list[int]) -> None:
    now_ms = 10 * HOUR_MS
    whole = total(summarise(rows, [], None, None, now_ms))
    assert total(summarise(rows, sorted(by), None, None, now_ms)) == whole
    edges = [None, *sorted(cuts), None]
    pieces = [total(summarise(rows, ["cause"], a, b, now_ms)) for a, b in pairwise(edges)]
    assert tuple(map(sum, zip(*pieces, strict=True))) == whole


@settings(max_examples=100, deadline=None)
@given(intervals(), st.lists(instants, min_size=1, max_size=5))
def test_a_lease_costs_the_same_in_one_phase_or_in_many(one: PhaseInterval, cuts: list[int]) -> None:
    end_ms = one.end_ms if one.end_ms is not None else 10 * HOUR_MS
    edges = [one.start_ms, *sorted(c for c in cuts if one.start_ms < c < end_ms), end_ms]
    costs = [cost_nano(one, a, b) for a, b in pairwise(edges)]
    assert sum(costs) == cost_nano(one, one.start_ms, end_ms)
    assert min(costs) >= 0
