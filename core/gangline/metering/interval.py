"""`PhaseInterval`: a stretch of one lease in one phase, with a cost whose parts sum exactly."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gangline.model.states import Cause, Phase
from gangline.model.units import MS_PER_HOUR

LOST = "lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseInterval:
    """One phase of one lease, half open: from `start_ms` up to but not including `end_ms`.

    `end_ms` is None while the phase lasts. `opened_ms` is when the lease opened and `gpus` how many it
    holds; both and the price never change. `cause` is how the attempt ended, None while it has not.
    `kept_until_ms` is the attempt's last commit: running work up to it survives a bad end.
    """

    lease: int
    gang: str
    attempt: int
    node: str
    tenant: str
    slot: str
    cause: Cause | None
    pool: str
    phase: Phase
    gpus: int
    start_ms: int
    end_ms: int | None
    opened_ms: int
    price_nano_per_gpu_hour: int
    currency: str
    kept_until_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of an interval under the cause it is shown with: its phase, or "lost"."""

    cause: str
    start_ms: int
    end_ms: int


def cost_until_nano(interval: PhaseInterval, at_ms: int) -> int:
    """Nano-units the lease has cost by `at_ms`, rounded down; 0 before it opened."""
    held_ms = max(0, at_ms - interval.opened_ms)
    return interval.gpus * held_ms * interval.price_nano_per_gpu_hour // MS_PER_HOUR


def cost_nano(interval: PhaseInterval, start_ms: int, end_ms: int) -> int:
    """Nano-units of the lease between two instants.

    A difference of two running totals, so the costs of touching stretches sum to that of the whole.
    """
    return cost_until_nano(interval, end_ms) - cost_until_nano(interval, start_ms)


def parts(interval: PhaseInterval, from_ms: int | None, to_ms: int | None, now_ms: int) -> Iterator[Part]:
    """The pieces of the interval inside the window, in order; an open interval lasts until `now_ms`."""
    end_ms = now_ms if interval.end_ms is None else interval.end_ms
    start_ms = interval.start_ms if from_ms is None else max(interval.start_ms, from_ms)
    end_ms = end_ms if to_ms is None else min(end_ms, to_ms)
    if end_ms <= start_ms:
        return
    lost_ms = min(max(_lost_from_ms(interval, end_ms), start_ms), end_ms)
    if lost_ms > start_ms:
        yield Part(interval.phase.value, start_ms, lost_ms)
    if lost_ms < end_ms:
        yield Part(LOST, lost_ms, end_ms)


def _lost_from_ms(interval: PhaseInterval, end_ms: int) -> int:
    """From when the interval's work is lost: running after the last commit of an attempt that ended badly."""
    if interval.phase is not Phase.RUNNING or interval.cause in (None, Cause.SUCCESS):
        return end_ms
    return interval.start_ms if interval.kept_until_ms is None else interval.kept_until_ms
