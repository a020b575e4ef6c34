"""Whose turn it is: priority and age, repairs, fair shares between tenants, and the policy's order."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gangline.plan.fleet import Bools, Ints
from gangline.plan.policy import MINUTE_MS, Order, Policy
from gangline.plan.queue import Queue
from gangline.plan.snapshot import UNKNOWN_MS
from gangline.plan.usage import Usage

AGED_BY = 100  # one class of priority: low, normal, high


@dataclass(slots=True)
class _Lane:
    """Positions of one tenant's gangs, in order; those that were dropped are skipped."""

    tenant: str
    positions: list[int]
    at: int = 0
    short: bool = False


class Turns:
    """Gives the positions of a queue one by one, in the order of a pass, and forgets those dropped meanwhile."""

    def __init__(self, queue: Queue, policy: Policy, usage: Usage, now_ms: int,
                 borrows: Callable[[int], bool] | None = None) -> None:
        self._queue, self._policy, self._usage, self._now_ms = queue, policy, usage, now_ms
        self._borrows = borrows  # whether the gang at a position would have more than its tenant's own quota
        self.kinds: list[int] = queue.kind.tolist()  # of the gang at each position
        self._alive = bytearray(b"\1") * len(queue)
        self._short = False
        self._repairing = self._in_repair()

    @cached_property
    def _alike(self) -> _Alike:
        return _Alike(self._queue, self._repairing)

    def drop_alike(self, position: int, least_bound_ms: int, *, same_tenant: bool) -> list[int]:
        """Take out gangs of the kind of the one there that have not had their turn, hold nothing and have at
        least that bound; their positions."""
        tenant = int(self._queue.tenant[position]) if same_tenant else None
        return self._drop(self._alike.pop(self.kinds[position], least_bound_ms, tenant))

    def drop_all(self) -> list[int]:
        """Take out all gangs that have not had their turn; their positions."""
        return self._drop(range(len(self._queue)))

    def _drop(self, positions: Iterable[int]) -> list[int]:
        alive = self._alive
        taken = [position for position in positions if alive[position]]
        for position in taken:
            alive[position] = False
        return taken

    def due_ms(self) -> int:
        """When time alone changes the order next: a gang ages, or has to be protected; UNKNOWN_MS if never.

        To the minute: a long queue would otherwise ask for a pass of its own for each of its gangs.
        """
        due_ms = UNKNOWN_MS
        for after_ms in (self._policy.age_after_ms, self._policy.protect_after_ms):
            if after_ms is not None:
                at_ms = self._queue.since + after_ms
                due_ms = min(due_ms, int(at_ms[at_ms > self._now_ms].min(initial=UNKNOWN_MS)))
        return min(UNKNOWN_MS, -(-due_ms // MINUTE_MS) * MINUTE_MS)

    def shortest_first(self) -> None:
        """From now on, take the gangs that are left in each run by how long they may run."""
        self._short = True

    def __iter__(self) -> Iterator[int]:
        for group in self._groups():
            if self._borrows is None:
                yield from self._turns(group)
                continue
            put_off: list[int] = []
            for position in self._turns(group):
                if self._borrows(position):
                    self._alive[position] = True
                    put_off.append(position)
                else:
                    yield position
            yield from self._turns(np.asarray(put_off, np.int64))

    def _turns(self, group: Ints) -> Iterator[int]:
        """The positions of a run, tenant by tenant where they take turns."""
        lanes = self._lanes(group)
        while lanes:
            lane = min(lanes, key=lambda each: (self._usage.share(each.tenant), each.tenant)) \
                if len(lanes) > 1 else lanes[0]
            position = self._next(lane)
            if position is None:
                lanes.remove(lane)
            else:
                self._alive[position] = False
                yield position

    def _next(self, lane: _Lane) -> int | None:
        if self._short and not lane.short:
            left = lane.positions[lane.at:]
            order = np.argsort(self._queue.bound[left], kind="stable")
            lane.positions, lane.at, lane.short = [left[at] for at in order.tolist()], 0, True
        for at in range(lane.at, len(lane.positions)):
            if self._alive[lane.positions[at]]:
                lane.at = at + 1
                return lane.positions[at]
        return None

    def _lanes(self, group: Ints) -> list[_Lane]:
        tenants = self._queue.tenant[group]
        names = self._queue.tenants
        if not self._policy.fair or len(group) < 2 or (tenants[0] == tenants).all():
            return [_Lane("", group.tolist())] if len(group) else []
        return [_Lane(names[tenant], group[tenants == tenant].tolist()) for tenant in np.unique(tenants)]

    def _groups(self) -> Iterator[Ints]:
        """Positions in runs that differ by what counts more than a tenant's share."""
        if not len(self._queue):
            return
        priority = self._effective()
        repair = self._repairing
        first = np.zeros(len(priority), np.bool_)
        if self._policy.protect_after_ms is not None:
            first[self._protected(priority, self._policy.protect_after_ms)] = True
        position = np.arange(len(priority))
        keys = [position, ~repair, ~first, -priority]
        if self._policy.order is Order.SHORTEST:
            keys.insert(1, self._queue.bound)
        order = np.lexsort(keys)
        marks = np.stack((priority[order], first[order], repair[order]))
        cuts = np.flatnonzero(np.any(marks[:, 1:] != marks[:, :-1], axis=0)) + 1
        yield from np.split(order, cuts)

    def _effective(self) -> Ints:
        priority = self._queue.priority
        if self._policy.age_after_ms is None:
            return priority
        aged = self._now_ms - self._queue.since >= self._policy.age_after_ms
        return priority + AGED_BY * aged

    def _in_repair(self) -> Bools:
        holding = {gang.gang for gang in self._queue.repairing()}
        repair = np.zeros(len(self._queue), np.bool_)
        if holding:
            repair[:] = [gang.gang in holding for gang in self._queue.gangs]
        return repair

    def _protected(self, priority: Ints, after_ms: int) -> list[int]:
        """Of each priority, the gang that has waited longest, if it has waited so long."""
        since = self._queue.since
        order = np.lexsort((np.arange(len(since)), since, -priority))
        heads = np.flatnonzero(np.concatenate(([True], np.diff(priority[order]) != 0)))
        return [int(order[at]) for at in heads if self._now_ms - since[order[at]] >= after_ms]


class _Alike:
    """The positions of gangs that ask for the same and hold nothing, those that run longest last."""

    def __init__(self, queue: Queue, repairing: Bools) -> None:
        self._tenant = queue.tenant
        waiting = np.flatnonzero(~repairing)
        order = waiting[np.lexsort((queue.bound[waiting], queue.kind[waiting]))]
        self._cuts: list[int] = np.searchsorted(queue.kind[order], np.arange(len(queue.kinds) + 1)).tolist()
        self._positions: list[int] = order.tolist()
        self._bounds: list[int] = queue.bound[order].tolist()
        self._ends = self._cuts[1:]

    def pop(self, kind: int, least_bound_ms: int, tenant: int | None) -> list[int]:
        """The positions of a kind with at least that bound, in order; popped unless only a tenant's are asked for."""
        end = self._ends[kind]
        begin = bisect_left(self._bounds, least_bound_ms, self._cuts[kind], end)
        found = sorted(self._positions[begin:end])
        if tenant is None:
            self._ends[kind] = begin
            return found
        return [position for position in found if self._tenant[position] == tenant]
