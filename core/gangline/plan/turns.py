"""Whose turn it is: priority and age, repairs, fair shares between tenants, and the policy's order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
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
    """Positions of one tenant's gangs that are left, in order."""

    tenant: str
    left: Iterator[int]
    short: bool = False


class Turns:
    """Gives the positions of a queue one by one, in the order of a pass, and forgets those dropped meanwhile."""

    def __init__(self, queue: Queue, policy: Policy, usage: Usage, now_ms: int,
                 borrows: Callable[[int], bool] | None = None) -> None:
        self._queue, self._policy, self._usage, self._now_ms = queue, policy, usage, now_ms
        self._borrows = borrows  # whether the gang at a position would have more than its tenant's own quota
        self._kind, self._tenant = queue.kind, queue.tenant
        self._alive = bytearray(b"\1") * len(queue)  # read one by one, and through the mask many at once
        self._alive_mask: Bools = np.frombuffer(self._alive, np.bool_)
        self._short = False
        self._repairing = self._in_repair()

    @cached_property
    def _alike(self) -> _Alike:
        return _Alike(self._queue, self._repairing)

    def kind(self, position: int) -> int:
        """The kind of the gang there."""
        return int(self._kind[position])

    def drop_alike(self, position: int, least_bound_ms: int, *, same_tenant: bool) -> list[int]:
        """Take out gangs of the kind of the one there that have not had their turn, hold nothing and have at
        least that bound; their positions."""
        tenant = int(self._tenant[position]) if same_tenant else None
        return self._drop(self._alike.pop(self.kind(position), least_bound_ms, tenant))

    def drop_all(self) -> list[int]:
        """Take out all gangs that have not had their turn; their positions."""
        return self._drop(np.arange(len(self._queue)))

    def _drop(self, positions: Ints) -> list[int]:
        gone = positions[self._alive_mask[positions]]
        self._alive_mask[gone] = False
        taken: list[int] = gone.tolist()
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
            left = np.fromiter(lane.left, np.int64)
            lane.left, lane.short = self._left_of(left[np.argsort(self._queue.bound[left], kind="stable")]), True
        return next(lane.left, None)

    def _left_of(self, positions: Ints) -> Iterator[int]:
        """Those that are not dropped when they are reached."""
        return filter(self._alive.__getitem__, positions.tolist())

    def _lanes(self, group: Ints) -> list[_Lane]:
        tenants = self._queue.tenant[group]
        names = self._queue.tenants
        if not self._policy.fair or len(group) < 2 or (tenants[0] == tenants).all():
            return [_Lane("", self._left_of(group))] if len(group) else []
        return [_Lane(names[tenant], self._left_of(group[tenants == tenant])) for tenant in np.unique(tenants)]

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
    """The positions of gangs that ask for the same and hold nothing, in order."""

    def __init__(self, queue: Queue, repairing: Bools) -> None:
        self._bound, self._tenant = queue.bound, queue.tenant
        order = np.argsort(queue.kind, kind="stable")
        if repairing.any():
            order = order[~repairing[order]]
        self._order = order
        self._cuts: list[int] = np.searchsorted(queue.kind[order], np.arange(len(queue.kinds) + 1)).tolist()
        self._left: dict[int, Ints] = {}  # of a kind, once some were popped

    def pop(self, kind: int, least_bound_ms: int, tenant: int | None) -> Ints:
        """The positions of a kind with at least that bound; only a tenant's, unless it is None."""
        mine = self._left.get(kind)
        if mine is None:
            mine = self._order[self._cuts[kind]:self._cuts[kind + 1]]
        chosen = self._bound[mine] >= least_bound_ms
        if tenant is not None:
            chosen &= self._tenant[mine] == tenant
        self._left[kind] = mine[~chosen]
        return mine[chosen]
