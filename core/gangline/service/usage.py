"""What the leases' seconds went into and what they cost: the store's intervals, summed by metering."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gangline.metering import PhaseInterval, check_by, summarise
from gangline.model.gang import UsageRow
from gangline.model.units import MS_PER_HOUR
from gangline.store import Interval, Lease, Store


def usage(store: Store, by: Sequence[str], from_ms: int | None, to_ms: int | None, *,
          now_ms: int) -> list[UsageRow]:
    """Usage inside [from_ms, to_ms) grouped by the keys of `by`; the rows sum to the whole exactly.

    Leases that are open count up to `now_ms`. Rejected for a key that is none.
    """
    check_by(by)
    with store.transaction() as tx:
        kept = tx.versions.kept_until_ms()
        intervals = tx.leases.intervals(from_ms or 0, to_ms)
    return summarise([_phase(interval, kept.get((interval.lease.gang, interval.attempt)))
                      for interval in intervals], by, from_ms, to_ms, now_ms)


def leases_cost_nano(leases: Iterable[Lease], now_ms: int) -> int:
    """What leases of one currency have cost by `now_ms`: the sum of what all their intervals cost."""
    return sum(_held_ms(lease, now_ms) * len(lease.gpus) * lease.price_nano_per_gpu_hour // MS_PER_HOUR
               for lease in leases)


def _held_ms(lease: Lease, now_ms: int) -> int:
    return max(0, (now_ms if lease.closed_ms is None else lease.closed_ms) - lease.opened_ms)


def _phase(interval: Interval, kept_until_ms: int | None) -> PhaseInterval:
    lease = interval.lease
    return PhaseInterval(
        lease=lease.id, gang=lease.gang, attempt=interval.attempt, node=lease.node, tenant=lease.tenant,
        slot=lease.slot, cause=interval.end.cause if interval.end else None, pool=lease.pool,
        phase=interval.phase, gpus=len(lease.gpus), start_ms=interval.start_ms, end_ms=interval.end_ms,
        opened_ms=lease.opened_ms, price_nano_per_gpu_hour=lease.price_nano_per_gpu_hour,
        currency=lease.currency, kept_until_ms=kept_until_ms)
