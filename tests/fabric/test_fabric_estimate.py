"""Arithmetic that can be done on paper."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline.fabric.estimate import Way, estimate, kv_cache_bytes, ways


@pytest.mark.parametrize(("size_bytes", "gbps", "efficiency", "expected_s"), [
    (717e9, 50, 1.0, 114.72), (717e9, 3200, 1.0, 1.7925), (717e9, 3200, 0.8, 2.240625), (717e9, 6400, 1.0, 0.89625),
    (717e9, 448, 1.0, 12.8036), (10.737e9, 50, 1.0, 1.718), (10.737e9, 400, 1.0, 0.21474),
    (10.737e9, 3200, 1.0, 0.02684),
])
def test_a_copy_for_one_node(size_bytes: float, gbps: float, efficiency: float, expected_s: float) -> None:
    made = estimate(size_bytes, Way(name="network", gbps=gbps, efficiency=efficiency))
    assert made.sources_s == pytest.approx(expected_s, rel=1e-3)
    assert made.line_rate_s == pytest.approx(expected_s * efficiency, rel=1e-3)


def test_under_two_seconds_needs_ninety_per_cent_of_the_wire() -> None:
    made = estimate(717e9, Way(name="network", gbps=3200, efficiency=0.9), within_s=2)
    assert made.needed_efficiency == pytest.approx(0.896, abs=1e-3)
    assert made.sources_s < 2 < estimate(717e9, Way(name="network", gbps=3200, efficiency=0.89)).sources_s


def test_how_the_bytes_are_spread_over_sixteen_nodes() -> None:
    made = estimate(717e9, Way(name="network", gbps=3200, efficiency=1), nodes=16)
    assert made.one_source_s == pytest.approx(16 * 1.7925)
    assert made.tree_s == pytest.approx(5 * 1.7925)
    assert made.sources_s < made.chain_s < 1.01 * made.sources_s
    assert made.sharded_s == pytest.approx(1.7925 / 16)


def test_a_disk_is_nobody_elses() -> None:
    disk = next(way for way in ways() if way.name == "nvme")
    made = estimate(717e9, disk, nodes=16)
    assert made.one_source_s == made.sources_s == made.tree_s == pytest.approx(12.80, abs=0.01)


def test_the_cache_of_a_large_model() -> None:
    assert kv_cache_bytes(80, 8, 128, 32_768) == 10 << 30
    assert kv_cache_bytes(80, 8, 128, 1) == 327_680
    assert kv_cache_bytes(80, 8, 128, 32_768, 1) == 5 << 30


@given(size=st.floats(1, 1e18), gbps=st.floats(1e-3, 1e6), nodes=st.integers(1, 100_000))
def test_more_help_is_never_slower(size: float, gbps: float, nodes: int) -> None:
    made = estimate(size, Way(name="network", gbps=gbps, efficiency=0.9), nodes)
    slack = 1 + 1e-9
    assert made.sharded_s <= made.sources_s * slack
    assert made.sources_s <= made.tree_s * slack
    assert made.tree_s <= made.one_source_s * slack
    assert made.chain_s <= made.one_source_s * slack


@pytest.mark.parametrize(("size", "nodes"), [(0, 1), (-1, 1), (1, 0)])
def test_nothing_to_send_is_refused(size: float, nodes: int) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        estimate(size, ways()[0], nodes)


def test_a_given_fabric_stands_between_tcp_and_disk() -> None:
    assert [way.name for way in ways(3200, "aws.p5")] == ["tcp", "rdma aws.p5", "nvme"]
    assert [way.gbps for way in ways(50.0)] == [50.0]
