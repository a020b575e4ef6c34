"""Plans in lines, one for each decision, and in what two of them differ."""

from __future__ import annotations

from collections.abc import Iterator

from gangline.model.units import format_duration
from gangline.plan.outcome import Placement, Plan, Waiting
from gangline.plan.words import nodes_text, some


def differences(one: Plan, other: Plan) -> list[str]:
    """What only `one` decided, each with "- " before it, and what only `other` did, with "+ "; gang by gang."""
    left, right = set(_said(one)), set(_said(other))
    lines = [(who, "-", text) for who, text in left - right] + [(who, "+", text) for who, text in right - left]
    return [f"{sign} {text}" for _, sign, text in sorted(lines)]


def lines_of(plan: Plan) -> list[str]:
    """What a plan decides, a line each; gangs that wait for one reason share one."""
    waits = [_waiting(waiting, plan.now_ms, some(waiting.gangs, len(waiting.gangs))) for waiting in plan.waiting]
    return [text for _, text in _decided(plan)] + waits


def _said(plan: Plan) -> Iterator[tuple[str, str]]:
    yield from _decided(plan)
    for waiting in plan.waiting:
        for gang in waiting.gangs:
            yield gang, _waiting(waiting, plan.now_ms, gang)


def _decided(plan: Plan) -> Iterator[tuple[str, str]]:
    for placement in plan.placements:
        yield placement.gang, _placement(placement)
    for release in plan.releases:
        yield release.gang, f"{release.gang} gives back {', '.join(release.nodes)}"
    for preemption in plan.preemptions:
        why = ", which reclaim what was borrowed" if preemption.reclaim else ""
        yield preemption.gang, f"{preemption.gang} is preempted for {', '.join(preemption.gangs)}{why}"
    for change in plan.resizes:
        without = f", without {', '.join(change.nodes)}" if change.nodes else ""
        by = f", for {', '.join(change.gangs)}" if change.gangs else ""
        yield change.gang, f"{change.gang} goes on with {nodes_text(change.size)}{without}{by}"
    for request in plan.capacity:
        by = f" for {', '.join(request.gangs)}" if request.gangs else " to keep warm"
        yield f"~{request.pool}", f"pool {request.pool} is asked for {nodes_text(request.nodes)}{by}"
    for retirement in plan.retirements:
        yield f"~{retirement.pool}", f"pool {retirement.pool} gives back {', '.join(retirement.nodes)}"
    for kept in plan.reservations:
        at = "at a time nobody knows" if kept.at_ms is None else f"in {_in(kept.at_ms, plan.now_ms)}"
        yield kept.gang, f"{kept.gang} has {', '.join(kept.nodes) or 'no node'} kept for it, to start {at}"


def _placement(placement: Placement) -> str:
    parts = [f"{choice.node}[{','.join(map(str, choice.gpus))}]" + (f" as {choice.role}" if choice.role else "")
             for choice in placement.nodes]
    return f"{placement.gang} starts on {', '.join(parts)}"


def _waiting(waiting: Waiting, now_ms: int, who: str) -> str:
    at = "" if waiting.earliest_ms is None else f"; expected in {_in(waiting.earliest_ms, now_ms)}"
    return f"{who} waits ({waiting.code}): {waiting.text}{at}"


def _in(at_ms: int, now_ms: int) -> str:
    return format_duration(max(0, at_ms - now_ms) / 1000)
