"""Ports that are away: gone, down for long, or up and down again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gangline.fabric.signals.values import Sample, Signal, SignalLevel, StateRules

_SOURCE_GONE = "NVSentinel"
_SOURCE_LINK = "gpud"


@dataclass(frozen=True, slots=True)
class _Away:
    """A stretch of time a port was down; `end_s` is when it was seen up again, None while it is down."""

    start_s: float
    end_s: float | None
    downed: int | None  # link_downed when it began


def state_signals(series: Sequence[Sample], rules: StateRules) -> Iterator[Signal]:
    """What the states of one port say; `series` is in the order of time and not empty."""
    last = series[-1]
    tail = series[-rules.gone_samples:]
    if len(tail) == rules.gone_samples and not any(sample.present for sample in tail):
        yield _signal(last, "device gone", "drain", f"the device was not found {rules.gone_samples} times in a row",
                      rules.gone_samples, rules.gone_samples, _SOURCE_GONE)
        return
    if last.present and not any(sample.state for sample in series):
        yield _signal(last, "state unknown", "unknown", "the port's state cannot be read", 0, 0, _SOURCE_LINK)
        return
    away = tuple(_stretches(series))
    yield from _dropped(series, away, rules)
    yield from _flapped(last, away, rules)


def _dropped(series: Sequence[Sample], away: Sequence[_Away], rules: StateRules) -> Iterator[Signal]:
    """Down for long. Only with an unchanged count is it this one stretch and no flapping."""
    last = series[-1]
    if not away or away[-1].end_s is not None:
        return
    down_s = last.at_s - away[-1].start_s
    downed = last.counters.get("link_downed")
    same = downed is None or away[-1].downed is None or downed == away[-1].downed
    if down_s >= rules.drop_after_s and same:
        yield _signal(last, "link down", "drain", f"the port has been down for {down_s:g} s", down_s,
                      rules.drop_after_s, _SOURCE_LINK)
    elif down_s >= rules.flap_down_s:
        yield _signal(last, "link down", "warn", f"the port has been down for {down_s:g} s", down_s,
                      rules.flap_down_s, _SOURCE_LINK)


def _flapped(last: Sample, away: Sequence[_Away], rules: StateRules) -> Iterator[Signal]:
    since = last.at_s - rules.flap_window_s
    times = sum(one.end_s is not None and one.end_s >= since and one.end_s - one.start_s >= rules.flap_down_s
                for one in away)
    if times >= rules.flap_times:
        yield _signal(last, "link flaps", "drain", f"the port went down and came back {times} times within "
                      f"{rules.flap_window_s / 3600:g} h", times, rules.flap_times, _SOURCE_LINK)


def _stretches(series: Sequence[Sample]) -> Iterator[_Away]:
    """When the port was down. A sample that could not be read changes nothing: the last known state holds."""
    start: Sample | None = None
    for sample in series:
        up = _is_up(sample)
        if up is False and start is None:
            start = sample
        elif up and start is not None:
            yield _Away(start.at_s, sample.at_s, start.counters.get("link_downed"))
            start = None
    if start is not None:
        yield _Away(start.at_s, None, start.counters.get("link_downed"))


def _is_up(sample: Sample) -> bool | None:
    if sample.present and sample.state is None:
        return None
    return sample.present and sample.state == "ACTIVE" and sample.phys_state in (None, "LinkUp")


def _signal(last: Sample, rule: str, level: SignalLevel, text: str, value: float, limit: float, source: str) -> Signal:
    return Signal(rule=rule, level=level, device=last.device, port=last.port, text=text, value=value, limit=limit,
                  source=source)
