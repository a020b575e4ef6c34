"""What a gang asks for, and what its tenant's quota allows of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from itertools import islice, product

from gangline.model.gpu import CPU, GpuAsk
from gangline.plan.snapshot import PendingGang, RunningGang, TenantState
from reference.world import Row, World

MOST_CHOICES = 256


@dataclass(frozen=True)
class Need:
    """`upto`: the sizes of all needs of the type up to this one, bigger asks first."""

    ask: GpuAsk
    size: int
    upto: int
    last: bool  # the smallest ask of its type


@dataclass(frozen=True)
class Choice:
    rank: int
    asks: tuple[GpuAsk, ...]  # by role
    needs: tuple[Need, ...]
    gpus: tuple[tuple[str, int], ...]  # (type, count) it takes at least


def choices_of(world: World, gang: PendingGang) -> list[Choice]:
    """One alternative per role, in rank order."""
    known = [[ask for ask in dict.fromkeys(role.asks) if ask.type in world.types] for role in gang.roles]
    return [_choice(world, gang, rank, asks) for rank, asks in enumerate(islice(product(*known), MOST_CHOICES))]


def _choice(world: World, gang: PendingGang, rank: int, asks: tuple[GpuAsk, ...]) -> Choice:
    sizes: Counter[GpuAsk] = Counter()
    gpus: Counter[str] = Counter()
    for role, ask in zip(gang.roles, asks, strict=True):
        sizes[ask] += role.size
        nodes = [row.count for row in world.rows if world.meets(gang, ask, row)]
        gpus[ask.type] += role.size * (ask.count if is_single(gang) else min(nodes, default=ask.count))
    ordered = sorted(sizes, key=lambda ask: (ask.type, -ask.count))
    needs = []
    for at, ask in enumerate(ordered):
        upto = sum(sizes[other] for other in ordered[:at + 1] if other.type == ask.type)
        needs.append(Need(ask, sizes[ask], upto, all(other.type != ask.type for other in ordered[at + 1:])))
    return Choice(rank, asks, tuple(needs), tuple(sorted(gpus.items())))


def is_single(gang: PendingGang) -> bool:
    return gang.nodes == 1 and gang.most <= 1


def widest(world: World, gang: PendingGang) -> int:
    return world.levels.within(gang.within, rdma=gang.rdma)


def block_of(gang: PendingGang) -> int:
    return gang.domain_size or 1


def counted(rows: list[Row], block: int) -> int:
    """How many rows there are, in whole blocks of one domain."""
    domains = Counter(row.subtree[0] for row in rows)
    return sum(count // block * block for count in domains.values())


def meeting(world: World, gang: PendingGang, choice: Choice, rows: list[Row]) -> list[list[Row]]:
    """For each need of the choice the rows that could meet it."""
    return [[row for row in rows if world.meets(gang, need.ask, row)] for need in choice.needs]


def enough(choice: Choice, by_need: list[list[Row]], block: int) -> bool:
    """Whether those rows meet all needs together."""
    return all(counted(rows, block) >= need.upto for need, rows in zip(choice.needs, by_need, strict=True))


class Use:
    """GPUs leased, by tenant and type."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.tenants = {tenant.name: tenant for tenant in world.snapshot.tenants}
        self.use: dict[str, Counter[str]] = {}
        for held in (*world.snapshot.running, *(gang for gang in world.snapshot.pending if gang.held)):
            holds = held.holds if isinstance(held, RunningGang) else held.held
            for row, gpus in world.held_rows(holds):
                self.add(held.tenant, [(row.node.gpu.type, len(gpus))])
        self.total: Counter[str] = Counter()
        for row in world.rows:
            if not row.virtual:
                self.total[row.node.gpu.type] += row.count

    def add(self, tenant: str, gpus: list[tuple[str, int]], sign: int = 1) -> None:
        for kind, count in gpus:
            self.use.setdefault(tenant, Counter())[kind] += sign * count

    def of(self, tenant: str, kind: str) -> int:
        return self.use.get(tenant, Counter())[kind]

    def share(self, tenant: str) -> Fraction:
        """The weighted dominant share."""
        weight = self.tenants[tenant].weight if tenant in self.tenants else 1
        shares = [Fraction(self.of(tenant, kind), total) for kind, total in self.total.items() if kind != CPU]
        return max(shares, default=Fraction(0)) / weight

    def allows(self, tenant: str, gpus: list[tuple[str, int]]) -> bool:
        """Whether the tenant may have so many more."""
        if tenant not in self.tenants:
            return True
        more: Counter[str] = Counter()
        for kind, count in gpus:
            more[kind] += count
        return all(self._allows(self.tenants[tenant], kind, count) for kind, count in more.items())

    def owns(self, tenant: str, gpus: Iterable[tuple[str, int]]) -> bool:
        """Whether the tenant's own quota covers so many more."""
        quota = dict(self.tenants[tenant].quota) if tenant in self.tenants else {}
        return all(self.of(tenant, kind) + count <= quota[kind] for kind, count in gpus if kind in quota)

    def _allows(self, tenant: TenantState, kind: str, new: int) -> bool:
        quota = dict(tenant.quota)
        if kind not in quota or self.of(tenant.name, kind) + new <= quota[kind]:
            return True
        if tenant.cohort is None:
            return False
        if tenant.borrow is not None and self.of(tenant.name, kind) + new > quota[kind] + tenant.borrow:
            return False
        members = [other for other in self.tenants.values()
                   if other.cohort == tenant.cohort and kind in dict(other.quota)]
        return (sum(self.of(other.name, kind) for other in members) + new
                <= sum(dict(other.quota)[kind] for other in members))

    def may_reclaim(self, lender: str, borrower: str, choice: Choice) -> bool:
        """Whether the borrower holds more than its quota of what the lender asks for within its own."""
        mine, other = self.tenants.get(lender), self.tenants.get(borrower)
        if mine is None or other is None or mine is other or mine.cohort is None or mine.cohort != other.cohort:
            return False
        quota, lent = dict(mine.quota), dict(other.quota)
        within = all(self._staying(lender, kind) + count <= quota[kind] for kind, count in choice.gpus if kind in quota)
        return within and any(self._staying(borrower, kind) > lent[kind] for kind, _ in choice.gpus if kind in lent)

    def _staying(self, tenant: str, kind: str) -> int:
        """What the tenant uses, gangs that are ending not counted."""
        going = sum(len(gpus) for run in self.world.snapshot.running
                    if run.tenant == tenant and run.gang in self.world.ending
                    for row, gpus in self.world.held_rows(run.holds) if row.node.gpu.type == kind)
        return self.of(tenant, kind) - going


@dataclass
class Offers:
    """The choices of a gang that quota has not refused so far."""

    choices: list[Choice]
    refused: bool

    @staticmethod
    def of(world: World, use: Use, gang: PendingGang) -> Offers:
        every = choices_of(world, gang)
        allowed = [choice for choice in every if use.allows(gang.tenant, list(choice.gpus))]
        return Offers(allowed, len(allowed) < len(every))

    def refuse(self, choice: Choice) -> None:
        self.refused = True
        self.choices = [other for other in self.choices if other is not choice]
