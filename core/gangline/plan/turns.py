"""Whose turn it is: priority and age, repairs, fair shares between tenants, and the policy's order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

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
    positions: Ints
    at: int = 0
    drops: int = 0


class Turns:
    """Gives the positions of a queue one by one, in the order of a pass, and forgets those dropped meanwhile."""

    def __init__(self, queue: Queue, policy: Policy, usage: Usage, now_ms: int,
                 borrows: Callable[[int], bool] = lambda position: False) -> None:
        self._queue, self._policy, self._usage, self._now_ms = queue, policy, usage, now_ms
        self._borrows = borrows  # whether the gang at a position would have more than its tenant's own quota
        self.alive: Bools = np.ones(len(queue), np.bool_)
        self._drops = 1  # lanes begin behind, so that they look at what was dropped before their turn
        self._short = False
        self._by_kind: Ints = np.zeros(0, np.int64)
        self._kinds: Ints | None = None
        self.repairing = self._repairing()
        self.any_repairing = bool(self.repairing.any())

    def drop(self, positions: Ints) -> list[int]:
        """Take gangs out that have not had their turn; the positions that this took out."""
        gone = positions[self.alive[positions]]
        if len(gone):
            self.alive[gone] = False
            self._drops += 1
        taken: list[int] = gone.tolist()
        return taken

    def of_kind(self, kind: int) -> Ints:
        """The positions of the gangs of one kind."""
        if self._kinds is None:
            kinds = self._queue.kind
            self._by_kind = np.argsort(kinds, kind="stable")
            self._kinds = np.searchsorted(kinds[self._by_kind], np.arange(len(self._queue.kinds) + 1))
        return self._by_kind[self._kinds[kind]:self._kinds[kind + 1]]

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
        if not self._short:
            self._short = True
            self._drops += 1

    def __iter__(self) -> Iterator[int]:
        for group in self._groups():
            put_off: list[int] = []
            for position in self._turns(group):
                if self._borrows(position):
                    put_off.append(position)
                else:
                    self.alive[position] = False
                    yield position
            for position in self._turns(np.asarray(put_off, np.int64)):
                self.alive[position] = False
                yield position

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
                yield position

    def _next(self, lane: _Lane) -> int | None:
        if lane.drops != self._drops:
            left = lane.positions[lane.at:]
            lane.positions, lane.at, lane.drops = self._sorted(left[self.alive[left]]), 0, self._drops
        if lane.at == len(lane.positions):
            return None
        lane.at += 1
        return int(lane.positions[lane.at - 1])

    def _sorted(self, positions: Ints) -> Ints:
        if not self._short:
            return positions
        return positions[np.argsort(self._queue.bound[positions], kind="stable")]

    def _lanes(self, group: Ints) -> list[_Lane]:
        tenants = self._queue.tenant[group]
        names = self._queue.tenants
        if not self._policy.fair or len(group) < 2 or (tenants[0] == tenants).all():
            return [_Lane("", group)] if len(group) else []
        return [_Lane(names[tenant], group[tenants == tenant]) for tenant in np.unique(tenants)]

    def _groups(self) -> Iterator[Ints]:
        """Positions in runs that differ by what counts more than a tenant's share."""
        if not len(self._queue):
            return
        priority = self._effective()
        repair = self.repairing
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

    def _repairing(self) -> Bools:
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
