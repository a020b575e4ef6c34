"""Sick ports, from samples: differences count, unknown is not healthy."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline.fabric.signals import Sample, Signal, load_rules, signals

COUNTERS = sorted({counter for rule in load_rules().rules for counter in rule.counters})


def port(*values: int | None, counter: str = "link_downed", every_s: float = 10, state: str = "ACTIVE") -> list[Sample]:
    """One counter of a port that is up, over time."""
    return [Sample(at_s=number * every_s, device="mlx5_0", state=state, phys_state="LinkUp", counters={counter: value})
            for number, value in enumerate(values)]


def states(*spans: tuple[float, str | None], every_s: float = 5) -> list[Sample]:
    """A port's states, each for so many seconds; None could not be read."""
    samples, now = [], 0.0
    for length_s, state in spans:
        end = now + length_s
        while now < end:
            samples.append(Sample(at_s=now, device="mlx5_0", state=state, counters={"link_downed": 7}))
            now += every_s
    return samples


def told(samples: list[Sample]) -> list[tuple[str, str]]:
    return [(signal.rule, signal.level) for signal in signals(samples)]


@pytest.mark.parametrize(("counter", "values", "expected"), [
    ("link_downed", (3, 3, 3), []),
    ("link_downed", (3, 4, 4), [("link downed", "drain")]),
    ("link_downed", (255, 255, 255), [("link downed", "unknown")]),
    ("link_downed", (254, 255, 255), [("link downed", "drain")]),
    ("link_downed", (9, 0, 0), []),
    ("link_downed", (9, 0, 1), [("link downed", "drain")]),
    ("link_downed", (3, None, 3), []),
    ("link_downed", (3, 3, None), []),
    ("link_downed", (None, None, None), [("link downed", "unknown")]),
    ("symbol_error", (0, 50, 100), []),
    ("symbol_error", (0, 60, 120), []),
    ("symbol_error", (0, 60, 121), [("symbol errors per hour", "drain")]),
    ("symbol_error", (0, 150, 300), [("symbol errors per hour", "drain"), ("symbol errors", "warn")]),
    ("port_rcv_errors", (0, 100, 200), []),
    ("port_rcv_errors", (0, 101, 202), [("receive errors", "warn")]),
    ("port_xmit_discards", (0, 1000, 2001), [("transmit discards", "warn")]),
    ("excessive_buffer_overrun_errors", (0, 0, 1), [("buffer overrun", "drain")]),
    ("local_link_integrity_errors", (0, 1, 1), [("buffer overrun", "drain")]),
    ("rnr_nak_retry_err", (5, 5, 6), [("retries without end", "drain")]),
    ("local_ack_timeout_err", (0, 20, 40), [("acknowledge timeouts", "warn")]),
    ("roce_slow_restart", (0, 100, 201), [("slow restarts", "warn")]),
    ("out_of_sequence", (0, 1, 1), [("sequence errors", "note")]),
    ("no_completion_cmds", (0, 0, 1), [("commands without completion", "drain")]),
    ("cmds_err", (0, 2, 4), [("command errors", "warn")]),
    ("cmds_err", (0, 1, 3), []),
    ("rx_drops", (0, 1000, 2001), [("receive drops", "warn")]),
    ("retrans_timeout_events", (0, 11, 21), [("remote trouble", "warn")]),
    ("carrier_changes", (2, 4, 4), []),
    ("carrier_changes", (2, 4, 5), [("carrier changes", "warn")]),
    ("link_error_recovery", (0, 1, 2), [("link error recovery", "warn")]),
    ("port_xmit_data", (0, 10**15, 10**16), []),
])
def test_counters_are_compared_with_what_they_were(counter: str, values: tuple[int | None, ...],
                                                   expected: list[tuple[str, str]]) -> None:
    assert told(port(*values, counter=counter)) == expected


def test_an_old_increase_is_forgotten() -> None:
    samples = port(3, 4, *[4] * 400)
    assert told(samples) == []
    assert told(samples[:300]) == [("link downed", "drain")]


@pytest.mark.parametrize(("spans", "expected"), [
    (((600, "ACTIVE"),), []),
    (((60, "ACTIVE"), (20, "DOWN")), []),
    (((60, "ACTIVE"), (60, "DOWN")), [("link down", "warn")]),
    (((60, "ACTIVE"), (300, "DOWN")), [("link down", "drain")]),
    (((60, "ACTIVE"), (300, "INIT")), [("link down", "drain")]),
    (((60, "ACTIVE"), (300, "DOWN"), (60, "ACTIVE")), []),
    (((60, "ACTIVE"), (100, None)), []),
    (((60, "DOWN"), (300, None)), [("link down", "drain")]),
    (((60, None),), [("state unknown", "unknown")]),
    (((30, "DOWN"), (30, "ACTIVE")) * 2, []),
    (((30, "DOWN"), (30, "ACTIVE")) * 3, [("link flaps", "drain")]),
    (((20, "DOWN"), (30, "ACTIVE")) * 5, []),
    (((30, "DOWN"), (30, "ACTIVE")) * 3 + ((43300, "ACTIVE"),), []),
])
def test_how_long_and_how_often_a_port_is_away(spans: tuple[tuple[float, str | None], ...],
                                               expected: list[tuple[str, str]]) -> None:
    long = sum(length_s for length_s, _ in spans) > 10_000
    assert told(states(*spans, every_s=10 if long else 5)) == expected


def test_a_link_that_went_down_again_meanwhile_is_no_drop() -> None:
    samples = [Sample(at_s=at, device="mlx5_0", state="DOWN" if at else "ACTIVE", counters={"link_downed": downed})
               for at, downed in ((0, 1), (10, 1), (300, 3))]
    assert told(samples) == [("link downed", "drain"), ("link down", "warn")]


@pytest.mark.parametrize(("present", "expected"), [
    ((True, False, False), [("link down", "warn")]), ((True, False, False, False), [("device gone", "drain")]),
    ((False, False, False, True), []),
])
def test_a_device_that_is_not_found(present: tuple[bool, ...], expected: list[tuple[str, str]]) -> None:
    samples = [Sample(at_s=number * 30, device="mlx5_0", present=here, state="ACTIVE" if here else None)
               for number, here in enumerate(present)]
    assert told(samples) == expected


def test_ports_are_judged_apart_and_in_any_order() -> None:
    sick = [sample.model_copy(update={"device": "mlx5_1"}) for sample in port(1, 2, 2)]
    found = signals([*reversed(sick), *port(1, 1, 1)])
    assert [(signal.device, signal.rule) for signal in found] == [("mlx5_1", "link downed")]


def test_the_worst_comes_first_and_every_limit_has_a_source() -> None:
    assert all(rule.source for rule in load_rules().rules)
    mixed = [Sample(at_s=at, device="mlx5_0", state="ACTIVE", counters={"out_of_sequence": at, "link_downed": at})
             for at in (0, 10)]
    assert [signal.level for signal in signals(mixed)] == ["drain", "note"]


SAMPLES = st.lists(st.builds(
    Sample, at_s=st.floats(-1e6, 1e9), device=st.sampled_from(("a", "b")), present=st.booleans(),
    state=st.sampled_from((None, "ACTIVE", "DOWN", "")), phys_state=st.sampled_from((None, "LinkUp", "Polling")),
    counters=st.dictionaries(st.sampled_from(COUNTERS), st.none() | st.integers(-5, 1 << 70), max_size=4)), max_size=8)


@given(SAMPLES)
def test_any_samples_give_signals(samples: list[Sample]) -> None:
    assert all(isinstance(signal, Signal) for signal in signals(samples))
