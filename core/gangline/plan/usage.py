"""Who holds how much: quotas with borrowing inside a cohort, and weighted dominant shares."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import lcm

from gangline.model.gpu import CPU
from gangline.plan.snapshot import Held, Snapshot, TenantState

Gpus = Iterable[tuple[str, int]]


class Usage:
    """GPUs in use by tenant and type, kept up to date through a pass; not counted where nobody asks for them."""

    def __init__(self, snapshot: Snapshot, *, fair: bool) -> None:
        fleet_map = snapshot.fleet.map
        self._map = fleet_map
        self._tenants: Mapping[str, TenantState] = {tenant.name: tenant for tenant in snapshot.tenants}
        self._quota = {tenant.name: dict(tenant.quota) for tenant in snapshot.tenants}
        self._cohorts: dict[str, list[str]] = {}
        for tenant in snapshot.tenants:
            if tenant.cohort is not None:
                self._cohorts.setdefault(tenant.cohort, []).append(tenant.name)
        self._total = fleet_map.totals
        self._use: dict[str, dict[str, int]] = {}
        self._shares: dict[str, int] = {}
        # Shares are whole numbers of this part, so that they are exact and quickly compared.
        self._unit = lcm(*(total for total in self._total.values() if total))
        self._weights = lcm(*(tenant.weight for tenant in snapshot.tenants))
        self.limited = any(quota for quota in self._quota.values())
        self.lending = self.limited and bool(self._cohorts)
        self.counting = self.limited or (fair and len(snapshot.queue.waiting_tenants()) > 1)
        if self.counting:
            self._count(snapshot)

    def _count(self, snapshot: Snapshot) -> None:
        for run in snapshot.running:
            self._hold(run.tenant, run.holds)
        for gang in snapshot.queue.repairing():
            self._hold(gang.tenant, gang.held)

    def _hold(self, tenant: str, holds: Iterable[Held]) -> None:
        self.add(tenant, self.gpus_of(holds))

    def gpus_of(self, holds: Iterable[Held]) -> list[tuple[str, int]]:
        """(type, GPUs) of each lease; nodes that are not there any more hold nothing."""
        rows = ((self._map.row.get(held.node), len(held.gpus)) for held in holds)
        return [(self._map.values[row].gpu.type, count) for row, count in rows if row is not None]

    def add(self, tenant: str, gpus: Gpus, sign: int = 1) -> None:
        """Count GPUs for a tenant (`sign` -1: no longer)."""
        if not self.counting:
            return
        use = self._use.setdefault(tenant, {})
        for kind, count in gpus:
            use[kind] = use.get(kind, 0) + sign * count
        self._shares.pop(tenant, None)

    def share(self, tenant: str) -> int:
        """The weighted dominant share, in a unit of its own: the largest share of any GPU type over the weight."""
        found = self._shares.get(tenant)
        if found is None:
            known = self._tenants.get(tenant)
            shares = [count * (self._unit // self._total[kind]) for kind, count in self._use.get(tenant, {}).items()
                      if kind != CPU and self._total.get(kind)]
            found = max(shares, default=0) * (self._weights // (1 if known is None else known.weight))
            self._shares[tenant] = found
        return found

    def allows(self, tenant: str, gpus: Gpus) -> bool:
        """Whether the tenant may have so many GPUs more."""
        if not self.limited or tenant not in self._quota:
            return True
        more: dict[str, int] = {}
        for kind, count in gpus:
            more[kind] = more.get(kind, 0) + count
        return all(self._allows(tenant, kind, count) for kind, count in more.items())

    def _allows(self, tenant: str, kind: str, more: int) -> bool:
        nominal = self._quota[tenant].get(kind)
        if nominal is None:
            return True
        after = self._use.get(tenant, {}).get(kind, 0) + more
        if after <= nominal:
            return True
        known = self._tenants[tenant]
        if known.cohort is None or (known.borrow is not None and after > nominal + known.borrow):
            return False
        members = [name for name in self._cohorts[known.cohort] if kind in self._quota[name]]
        used = sum(self._use.get(name, {}).get(kind, 0) for name in members)
        return used + more <= sum(self._quota[name][kind] for name in members)

    def owns(self, tenant: str, gpus: Gpus) -> bool:
        """Whether the tenant's own quota covers so many GPUs more; `gpus` names each type once."""
        quota, use = self._quota.get(tenant, {}), self._use.get(tenant, {})
        return all(use.get(kind, 0) + count <= quota[kind] for kind, count in gpus if kind in quota)

    def reclaims(self, lender: str, borrower: str, gpus: Gpus, going: Mapping[str, Mapping[str, int]]) -> bool:
        """Whether the borrower, of the lender's cohort, holds more than its quota of what is the lender's own.

        `going` is what gangs that are ending hold, by tenant and type: it does not count.
        """
        mine, other = self._tenants.get(lender), self._tenants.get(borrower)
        if mine is None or other is None or mine is other or mine.cohort is None or mine.cohort != other.cohort:
            return False

        def over(tenant: str, kind: str, more: int) -> bool:
            use = self._use.get(tenant, {}).get(kind, 0) - going.get(tenant, {}).get(kind, 0)
            return kind in self._quota[tenant] and use + more > self._quota[tenant][kind]

        gpus = tuple(gpus)
        return (not any(over(lender, kind, count) for kind, count in gpus)
                and any(over(borrower, kind, 0) for kind, _ in gpus))

    def quota_text(self, tenant: str, kinds: Iterable[str]) -> str:
        """What the tenant uses of its quota, of each limited type, and its cohort of theirs together."""
        return ", ".join(self._quota_text(tenant, kind) for kind in sorted(set(kinds))
                         if kind in self._quota.get(tenant, {}))

    def _quota_text(self, tenant: str, kind: str) -> str:
        cohort = self._tenants[tenant].cohort
        text = f"{self._use.get(tenant, {}).get(kind, 0)} of {self._quota[tenant][kind]} {kind}"
        if cohort is None:
            return text
        members = [name for name in self._cohorts[cohort] if kind in self._quota[name]]
        used = sum(self._use.get(name, {}).get(kind, 0) for name in members)
        return f"{text} (cohort {cohort}: {used} of {sum(self._quota[name][kind] for name in members)})"


def most_ever(tenants: Iterable[TenantState], tenant: str, kind: str) -> int | None:
    """How many GPUs of a type the tenant may have at most, all borrowed that can be; None when nothing limits it."""
    known = {each.name: each for each in tenants}
    nominal = dict(known[tenant].quota).get(kind) if tenant in known else None
    if nominal is None or known[tenant].cohort is None:
        return nominal
    together = sum(dict(each.quota).get(kind, 0) for each in known.values() if each.cohort == known[tenant].cohort)
    borrow = known[tenant].borrow
    return together if borrow is None else min(together, nominal + borrow)
