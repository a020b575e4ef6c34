"""`Snapshot`: the picture of fleet and gangs that one pass plans from, and the values it is made of."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from gangline.model.gpu import GpuAsk
from gangline.model.spec import GangSpec

if TYPE_CHECKING:
    from gangline.plan.fleet import FleetState
    from gangline.plan.queue import Queue

UNKNOWN_MS = 1 << 60  # later than any instant: nothing says when


class Signature(tuple[object, ...]):
    """What gangs ask for, to be compared. A pass looks it up again and again: it is hashed once."""

    @cached_property
    def _hash(self) -> int:
        return super().__hash__()

    def __hash__(self) -> int:
        return self._hash


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeState:
    """One node. `free_gpus` are the indices no lease holds; `usable` is ready, undrained and healthy.

    `path` runs from the widest switch to the narrowest; `domain` is its NVLink domain.
    `usable_ms` is when a booting node is expected to be usable and 0 for every other node, drained ones too.
    `idle_ms` is since when no lease holds any of it (0: not known).
    `realm` is the pool of another system whose node it is, "" for all others: a gang has one realm.
    """

    name: str
    pool: str
    gpu: GpuAsk
    zone: str
    fabric: str | None
    path: tuple[str, ...] = ()
    domain: str | None = None
    free_gpus: tuple[int, ...] = ()
    usable: bool = True
    usable_ms: int = 0
    idle_ms: int = 0
    emulated: bool = False
    realm: str = ""
    gone: bool = False

    @property
    def whole(self) -> bool:
        """No lease holds any of it."""
        return len(self.free_gpus) == self.gpu.count


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """GPUs of one node that a gang leases."""

    node: str
    gpus: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleNeed:
    """`size` nodes that each give one of `asks` (ranked alternatives)."""

    name: str
    size: int
    asks: tuple[GpuAsk, ...]

    @staticmethod
    def all_of(spec: GangSpec) -> tuple[RoleNeed, ...]:
        """What each role of a spec needs, in rank order."""
        return tuple(RoleNeed(name=name, size=role.size, asks=role.asks())
                     for name, role in spec.role_items())


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """Where and when the last pass expected a gang to start: what its reservation sticks to.

    `node` is any node of the subtree.
    """

    node: str
    at_ms: int


@dataclass(frozen=True, kw_only=True)
class PendingGang:
    """A gang that wants to be placed.

    `held` are GPUs of healthy nodes it keeps from its last attempt: their leases are open, so they are
    not among any node's `free_gpus`, and only this gang may be placed on them.
    `limit_ms` is the longest it may run once placed, if it has a limit; `likely_ms` is how long its like
    ran before, if any did. `most` is the largest size of an elastic gang (of one role), and never below
    its role's size. `since_ms` is since when it waits: its submission, or the end of its last attempt.
    """

    gang: str
    name: str
    slot: str
    tenant: str
    priority: int
    submitted_ms: int
    roles: tuple[RoleNeed, ...]
    rdma: bool = False
    zone: str | None = None
    pool: str | None = None
    within: str | None = None  # leaf | spine | fabric
    exclude: frozenset[str] = frozenset()
    domain_size: int | None = None
    most: int = 0
    held: tuple[Held, ...] = ()
    limit_ms: int | None = None
    likely_ms: int | None = None
    since_ms: int = 0
    promise: Promise | None = None

    @staticmethod
    def of(spec: GangSpec, gang: str, *, slot: str = "", submitted_ms: int = 0) -> PendingGang:
        """A spec as a gang that has never run: it holds nothing and may run for its whole timeout."""
        where = spec.placement
        return PendingGang(
            gang=gang, name=spec.name, slot=slot, tenant=spec.tenant, priority=spec.priority,
            submitted_ms=submitted_ms, since_ms=submitted_ms, roles=RoleNeed.all_of(spec), rdma=spec.rdma,
            zone=where.zone, pool=where.pool, within=where.within, exclude=frozenset(where.exclude),
            domain_size=spec.domain_size, most=spec.most,
            limit_ms=None if spec.timeout is None else round(spec.timeout * 1000))

    @cached_property
    def nodes(self) -> int:
        """How many nodes it needs to start."""
        return sum(role.size for role in self.roles)

    @property
    def single(self) -> bool:
        """It may have part of a node; one that may grow has whole nodes from the start."""
        return self.nodes == 1 and self.most <= 1

    @cached_property
    def signature(self) -> Signature:
        """Equal for gangs that ask for the same, whoever they are and however long they run."""
        return Signature((self.roles, self.rdma, self.zone, self.pool, self.within, self.exclude, self.domain_size,
                          self.single))

    @property
    def bound_ms(self) -> int:
        """How long it holds its nodes once placed, as far as anything says; UNKNOWN_MS when nothing does."""
        if self.limit_ms is not None:
            return self.limit_ms
        return UNKNOWN_MS if self.likely_ms is None else self.likely_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningGang:
    """A gang that holds leases. `ends_by_ms` is when its limit ends it, or when its like would have ended.

    `ending` says that it was told to end (then `ends_by_ms` is the end of its grace). `saved_ms` is
    when its newest version was committed, else when it started: what was done since is lost with it.
    `least` is the size an elastic gang may shrink to, 0 when it may not; `most` the size it may grow to.
    `preempted_ms` is when it was last preempted, `resized_ms` when its size last changed; 0 for never.
    `grace_ms` is how long it may take to end when told to. `again` is what an elastic gang would ask for
    if it waited anew; one without it does not grow.
    """

    gang: str
    name: str
    slot: str
    tenant: str
    priority: int
    holds: tuple[Held, ...]
    since_ms: int
    ends_by_ms: int | None = None
    ending: bool = False
    saved_ms: int | None = None
    preemptible: bool = True
    least: int = 0
    most: int = 0
    preempted_ms: int = 0
    resized_ms: int = 0
    grace_ms: int = 60_000
    again: PendingGang | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolState:
    """What a pool could still provide. `nodes` counts booting and ready ones.

    `least` is its smallest size, `spares` how many healthy nodes it keeps for repairs, `warm` how many
    idle nodes it keeps booted beyond those. Unmet demand is asked for after `delay_ms`; a node idle for
    `idle_ms` is given back (None: never).
    """

    name: str
    gpu: GpuAsk
    zone: str
    fabric: str | None
    rdma: bool
    nodes: int
    most: int
    boot_ms: int
    least: int = 0
    price_nano_per_gpu_hour: int = 0
    emulated: bool = False
    realm: str = ""
    spares: int = 0
    warm: int = 0
    delay_ms: int = 0
    idle_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantState:
    """Whose work. `quota` is GPUs by type; a type it does not name is not limited.

    A tenant of a `cohort` may use what the others leave of their quotas, at most `borrow` GPUs of a
    type (None: without limit); it gives them back when they want them.
    """

    name: str
    weight: int = 1
    quota: tuple[tuple[str, int], ...] = ()
    cohort: str | None = None
    borrow: int | None = None


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """Everything a pass may look at. `version` is the store's: when it moves on, a new plan is due.

    `fleet` and `queue` are borrowed: a pass reads them and never writes.
    """

    version: int
    fleet: FleetState
    pools: tuple[PoolState, ...]
    queue: Queue
    running: tuple[RunningGang, ...] = ()
    tenants: tuple[TenantState, ...] = ()

    @staticmethod
    def of(*, version: int, nodes: Iterable[NodeState], pools: Iterable[PoolState],
           pending: Iterable[PendingGang] = (), running: Iterable[RunningGang] = (),
           tenants: Iterable[TenantState] = ()) -> Snapshot:
        """A snapshot built from values, in any order. GPUs that are not free and held by nobody named
        stay taken until nobody knows when."""
        from gangline.plan.fleet import FleetState
        from gangline.plan.queue import Queue

        pools, pending, running = tuple(pools), tuple(pending), tuple(running)
        return Snapshot(version=version, fleet=FleetState.of(nodes, pools, pending, running), pools=pools,
                        queue=Queue.of(pending), running=running, tenants=tuple(tenants))

    @property
    def pending(self) -> tuple[PendingGang, ...]:
        """The gangs that wait, in the queue's order."""
        return tuple(self.queue.gangs)

    @cached_property
    def nodes(self) -> tuple[NodeState, ...]:
        """The nodes as values, in topology order: for explanations and references, not for a fast pass."""
        return self.fleet.nodes()
