"""Which ports are sick, from samples over time. Pure: the same samples always give the same signals."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from importlib.resources import files
from itertools import pairwise

import yaml

from gangline.fabric.signals.states import state_signals
from gangline.fabric.signals.values import Rule, Rules, Sample, Signal


@cache
def load_rules() -> Rules:
    """The shipped rules."""
    return Rules.parse(yaml.safe_load(files("gangline.fabric.signals").joinpath("signals.yaml").read_text()))


def signals(samples: Iterable[Sample], rules: Rules | None = None) -> tuple[Signal, ...]:
    """What is wrong at the time of each port's last sample, the worst first.

    Samples may come in any order and of any number of ports; a few a minute are enough. Only differences
    count: a counter that fell was reset and is counted from there, one that stands at the end of its range
    cannot tell, and one that was not read is unknown, which is never healthy.
    """
    rules = rules or load_rules()
    by_port: dict[tuple[str, int], list[Sample]] = defaultdict(list)
    for sample in samples:
        by_port[sample.device, sample.port].append(sample)
    found: list[Signal] = []
    for _, series in sorted(by_port.items()):
        series.sort(key=lambda sample: sample.at_s)
        found += state_signals(series, rules.states)
        for rule in rules.rules:
            found += _grown(series, rule)
    order = ("drain", "unknown", "warn", "note")
    return tuple(sorted(found, key=lambda signal: order.index(signal.level)))


def _grown(series: Sequence[Sample], rule: Rule) -> Iterator[Signal]:
    now_s = series[-1].at_s
    for counter in rule.counters:
        seen = _values(series, counter, now_s - rule.window_s)
        if len(seen) < 2:
            yield from _not_read(series, rule, counter)
            continue
        grown = sum(max(0, after - before) for (_, before), (_, after) in pairwise(seen))
        full = (1 << rule.bits) - 1
        if grown == 0 and seen[-1][1] >= full:
            yield _signal(series, rule, "unknown", f"{counter} stands at {full}, the end of its range: it cannot "
                          "tell any more (reset the port's counters)", grown)
            continue
        span_s = seen[-1][0] - seen[0][0]
        value = grown if rule.per_s is None else grown / span_s * rule.per_s if span_s > 0 else 0.0
        if value > rule.more_than:
            yield _signal(series, rule, rule.level, f"{rule.text} ({counter} {_rate(value, rule)})", value)


def _values(series: Sequence[Sample], counter: str, since_s: float) -> list[tuple[float, int]]:
    """When a counter was read since then, and what it said."""
    found = []
    for sample in series:
        value = sample.counters.get(counter)
        if value is not None and sample.at_s >= since_s:
            found.append((sample.at_s, value))
    return found


def _not_read(series: Sequence[Sample], rule: Rule, counter: str) -> Iterator[Signal]:
    """A counter that was there and is no longer read. One a device never had says nothing."""
    last = series[-1]
    had = any(sample.counters.get(counter) is not None for sample in series)
    if counter in last.counters and last.counters[counter] is None and (had or last.present):
        yield _signal(series, rule, "unknown", f"{counter} cannot be read", 0)


def _rate(value: float, rule: Rule) -> str:
    if rule.per_s is None:
        return f"+{value:g} within {rule.window_s:g} s"
    return f"+{value:.3g} " + ("a second" if rule.per_s == 1 else "a minute" if rule.per_s == 60 else
                               f"in {rule.per_s:g} s")


def _signal(series: Sequence[Sample], rule: Rule, level: str, text: str, value: float) -> Signal:
    return Signal.model_validate({"rule": rule.name, "level": level, "device": series[-1].device,
                                  "port": series[-1].port, "text": text, "value": value, "limit": rule.more_than,
                                  "source": rule.source})
