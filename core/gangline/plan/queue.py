"""`Queue`: the gangs that wait, as columns in the order of priority, repair, submission and id."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from gangline.plan.snapshot import PendingGang, Signature

Ints = NDArray[np.int64]
Rank = tuple[int, bool, int, str]


def rank(gang: PendingGang) -> Rank:
    """Sorts gangs: the higher priority first, gangs in repair first among equals, then who came first."""
    return -gang.priority, not gang.held, gang.submitted_ms, gang.gang


class Queue:
    """Pending gangs, sorted by `rank`. Adding and removing cost a copy of the columns, not a rebuild.

    Columns, one entry per gang: `kind` (equal for equal signatures), `bound` (`bound_ms`), `tenant`,
    `priority` and `since` (ms). `kinds` and `tenants` give the numbers their meaning.
    """

    def __init__(self) -> None:
        self.gangs: list[PendingGang] = []
        self.kinds: list[Signature] = []
        self.tenants: list[str] = []
        self._ranks: list[Rank] = []
        self._by_id: dict[str, PendingGang] = {}
        self._holding: dict[str, PendingGang] = {}
        self._kind_of: dict[Signature, int] = {}
        self._tenant_of: dict[str, int] = {}
        self.columns: NDArray[np.int64] = np.zeros((5, 0), np.int64)

    @staticmethod
    def of(gangs: Iterable[PendingGang]) -> Queue:
        """A queue of these gangs, in any order."""
        queue = Queue()
        queue.update(gangs, ())
        return queue

    def __len__(self) -> int:
        return len(self.gangs)

    def get(self, gang: str) -> PendingGang | None:
        return self._by_id.get(gang)

    def waiting_tenants(self) -> list[str]:
        """The tenants whose gangs wait."""
        return [self.tenants[number] for number in np.unique(self.tenant)]

    @property
    def by_id(self) -> Mapping[str, PendingGang]:
        """The gangs that wait, in no order."""
        return MappingProxyType(self._by_id)

    def repairing(self) -> list[PendingGang]:
        """The gangs that hold leases, in no order."""
        return list(self._holding.values())

    def update(self, put: Iterable[PendingGang], drop: Iterable[str]) -> None:
        """Puts gangs, in place of those of the same id, and drops others; ids it does not know are passed over."""
        new = {gang.gang: gang for gang in put}
        gone = [old for gang in {*drop, *new} if (old := self._by_id.get(gang)) is not None]
        at = sorted(bisect_left(self._ranks, rank(old)) for old in gone)
        for position in reversed(at):
            del self.gangs[position], self._ranks[position]
        if at:
            self.columns = np.delete(self.columns, at, axis=1)
        for old in gone:
            del self._by_id[old.gang]
            self._holding.pop(old.gang, None)
        if new:
            ranked = sorted(((rank(gang), gang) for gang in new.values()), key=lambda pair: pair[0])
            self._insert([gang for _, gang in ranked], [each for each, _ in ranked])

    def _insert(self, gangs: list[PendingGang], ranks: list[Rank]) -> None:
        self._by_id |= {gang.gang: gang for gang in gangs}
        self._holding |= {gang.gang: gang for gang in gangs if gang.held}
        columns = np.asarray([self._row(gang) for gang in gangs], np.int64).T
        if not self._ranks or self._ranks[-1] < ranks[0]:  # the common case: who comes last queues last
            self.columns = np.concatenate((self.columns, columns), axis=1)
            self.gangs += gangs
            self._ranks += ranks
            return
        at = [bisect_left(self._ranks, each) for each in ranks]
        self.columns = np.insert(self.columns, at, columns, axis=1)
        for position, gang, each in zip(reversed(at), reversed(gangs), reversed(ranks), strict=True):
            self.gangs.insert(position, gang)
            self._ranks.insert(position, each)

    def _row(self, gang: PendingGang) -> tuple[int, ...]:
        kind = self._kind_of.setdefault(gang.signature, len(self.kinds))
        if kind == len(self.kinds):
            self.kinds.append(gang.signature)
        tenant = self._tenant_of.setdefault(gang.tenant, len(self.tenants))
        if tenant == len(self.tenants):
            self.tenants.append(gang.tenant)
        return kind, gang.bound_ms, tenant, gang.priority, gang.since_ms

    @property
    def kind(self) -> Ints:
        column: Ints = self.columns[0]
        return column

    @property
    def bound(self) -> Ints:
        column: Ints = self.columns[1]
        return column

    @property
    def tenant(self) -> Ints:
        column: Ints = self.columns[2]
        return column

    @property
    def priority(self) -> Ints:
        column: Ints = self.columns[3]
        return column

    @property
    def since(self) -> Ints:
        column: Ints = self.columns[4]
        return column
