"""The order in which a pass takes gangs."""

from __future__ import annotations

from collections.abc import Iterator

from gangline.plan.policy import Order
from gangline.plan.snapshot import PendingGang
from reference.asking import Use
from reference.world import World

AGED_BY = 100


def groups(world: World) -> Iterator[list[PendingGang]]:
    """Gangs in runs that differ by what counts more than a tenant's share, each in order."""
    gangs = list(world.snapshot.pending)
    first = _protected(world, gangs)

    def group_of(gang: PendingGang) -> tuple[object, ...]:
        return -_effective(world, gang), gang.gang not in first, not gang.held

    def rank(gang: PendingGang) -> tuple[object, ...]:
        shortest = gang.bound_ms if world.policy.order is Order.SHORTEST else 0
        return shortest, -gang.priority, gang.submitted_ms, gang.gang

    for group in sorted({group_of(gang) for gang in gangs}):
        yield sorted((gang for gang in gangs if group_of(gang) == group), key=rank)


def next_of(world: World, use: Use, left: list[PendingGang], *, backfill: bool) -> PendingGang:
    """The first gang of the tenant with the smallest share; when only backfill is left to do, perhaps the shortest."""
    if world.policy.fair:
        tenant = min({gang.tenant for gang in left}, key=lambda name: (use.share(name), name))
        left = [gang for gang in left if gang.tenant == tenant]
    if backfill and world.policy.backfill is Order.SHORTEST:
        return min(left, key=lambda gang: gang.bound_ms)
    return left[0]


def _effective(world: World, gang: PendingGang) -> int:
    after_ms = world.policy.age_after_ms
    aged = after_ms is not None and world.now_ms - gang.since_ms >= after_ms
    return gang.priority + (AGED_BY if aged else 0)


def _protected(world: World, gangs: list[PendingGang]) -> set[str]:
    """Of each effective priority the gang that has waited longest, if it has waited long enough."""
    after_ms = world.policy.protect_after_ms
    oldest: dict[int, PendingGang] = {}
    for gang in gangs:  # in queue order, so that of equals the first stays
        known = oldest.setdefault(_effective(world, gang), gang)
        if gang.since_ms < known.since_ms:
            oldest[_effective(world, gang)] = gang
    return {gang.gang for gang in oldest.values() if after_ms is not None and world.now_ms - gang.since_ms >= after_ms}
