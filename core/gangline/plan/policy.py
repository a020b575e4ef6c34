"""`Policy`: how a pass decides, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from types import MappingProxyType

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS


class Order(StrEnum):
    """Who comes first among gangs of one priority and tenants with equal shares."""

    SUBMITTED = "submitted"
    SHORTEST = "shortest"  # by the longest time a gang may run; those that say nothing come last


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How a pass orders, keeps, backfills, asks and preempts. All times are milliseconds.

    `strict` lets nobody pass a gang that is blocked. `reserve_first` blocked gangs get node sets that
    others may use only for as long as they surely leave in time, if they have waited for `reserve_after_ms`;
    `backfill` is the order of those that come after them. `protect_after_ms` puts the oldest
    gang of its priority first once it has waited so long. `age_after_ms` lifts a gang by one class of
    priority once it has waited so long. With `fair`, tenants of one priority take turns by their
    weighted dominant share. A reservation stays in its subtree unless another is earlier by more than
    the larger of `sticky_ms` and `sticky_share` of the time left.
    """

    name: str = "submit-order"
    order: Order = Order.SUBMITTED
    strict: bool = False
    reserve_first: int = 1
    reserve_after_ms: int = 0
    backfill: Order = Order.SUBMITTED
    protect_after_ms: int | None = None
    age_after_ms: int | None = 24 * HOUR_MS
    fair: bool = True
    capacity: bool = True
    preempt: bool = True
    preempt_first: int = 8
    min_runtime_ms: int = 5 * MINUTE_MS  # nobody is preempted before it ran so long
    cool_down_ms: int = 10 * MINUTE_MS  # nor again within so long
    resize_every_ms: int = 10 * MINUTE_MS  # an elastic gang changes its size at most so often
    sticky_ms: int = 5 * MINUTE_MS
    sticky_share: float = 0.1


_SUBMIT_ORDER = Policy()
_PLAIN = replace(_SUBMIT_ORDER, fair=False, age_after_ms=None, preempt=False)

POLICIES: Mapping[str, Policy] = MappingProxyType({policy.name: policy for policy in (
    _SUBMIT_ORDER,
    replace(_SUBMIT_ORDER, name="short-first", order=Order.SHORTEST, protect_after_ms=24 * HOUR_MS),
    # What others do, for comparison.
    replace(_PLAIN, name="fifo", strict=True, reserve_first=0),
    replace(_PLAIN, name="best-effort-fifo", reserve_first=0),
    replace(_PLAIN, name="easy", sticky_ms=0, sticky_share=0.0),
)})
