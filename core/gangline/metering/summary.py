"""Usage rows: intervals grouped by what a person asks for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gangline.metering.interval import Part, PhaseInterval, cost_nano, parts
from gangline.model.errors import Rejected
from gangline.model.gang import UsageRow

BY = ("gang", "attempt", "node", "tenant", "slot", "cause", "pool")
GroupKey = tuple[str | int, ...]


@dataclass(slots=True)
class _Sum:
    gpu_ms: int = 0
    node_ms: int = 0
    cost_nano: int = 0


def check_by(by: Sequence[str]) -> tuple[str, ...]:
    """The keys to group by; `Rejected` naming the one that is none."""
    for key in by:
        if key not in BY:
            raise Rejected(f"{key!r} is nothing to group by", field="by", fix=f"use {', '.join(BY)}")
    return tuple(dict.fromkeys(by))


def summarise(intervals: Iterable[PhaseInterval], by: Sequence[str], from_ms: int | None,
              to_ms: int | None, now_ms: int) -> list[UsageRow]:
    """One row per group and currency, sorted by group; the rows sum to the whole, exactly.

    Only time inside [from_ms, to_ms) counts, None being unbounded; open intervals last until `now_ms`.
    Without `by` there is one row per currency.

    Raises:
        Rejected: `by` holds something that intervals are not grouped by.
    """
    keys = check_by(by)
    sums: dict[tuple[GroupKey, str], _Sum] = {}
    for interval in intervals:
        for part in parts(interval, from_ms, to_ms, now_ms):
            group = tuple(_value(interval, part, key) for key in keys)
            total = sums.setdefault((group, interval.currency), _Sum())
            span_ms = part.end_ms - part.start_ms
            total.node_ms += span_ms
            total.gpu_ms += span_ms * interval.gpus
            total.cost_nano += cost_nano(interval, part.start_ms, part.end_ms)
    return [UsageRow(by=dict(zip(keys, map(str, group), strict=True)), gpu_ms=total.gpu_ms,
                     node_ms=total.node_ms, cost_nano=total.cost_nano, currency=currency)
            for (group, currency), total in sorted(sums.items(), key=lambda item: item[0])]


def _value(interval: PhaseInterval, part: Part, key: str) -> str | int:
    match key:
        case "gang":
            return interval.gang
        case "attempt":
            return interval.attempt
        case "node":
            return interval.node
        case "tenant":
            return interval.tenant
        case "slot":
            return interval.slot
        case "pool":
            return interval.pool
        case _:
            return part.cause
