"""`Snapshot`: the frozen picture of fleet and gangs that one pass plans from."""

from __future__ import annotations

from dataclasses import dataclass

from gangline.model.gpu import GpuAsk
from gangline.model.spec import GangSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeState:
    """One node. `free_gpus` are the indices no lease holds; `usable` is ready, undrained and healthy.

    `path` runs from the widest switch to the narrowest: (spine, leaf) or (leaf,).
    `usable_ms` is when a booting node is expected to be usable and 0 for every other node, drained ones too.
    """

    name: str
    pool: str
    gpu: GpuAsk
    zone: str
    fabric: str | None
    path: tuple[str, ...] = ()
    free_gpus: tuple[int, ...] = ()
    usable: bool = True
    usable_ms: int = 0
    emulated: bool = False
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
class PendingGang:
    """A gang that wants to be placed.

    `held` are GPUs of healthy nodes it keeps from its last attempt: their leases are open, so they are
    not among any node's `free_gpus`, and only this gang may be placed on them.
    `limit_ms` is the longest it may run once placed, if it has a limit.
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
    held: tuple[Held, ...] = ()
    limit_ms: int | None = None

    @staticmethod
    def of(spec: GangSpec, gang: str, *, slot: str = "", submitted_ms: int = 0) -> PendingGang:
        """A spec as a gang that has never run: it holds nothing and may run for its whole timeout."""
        where = spec.placement
        return PendingGang(
            gang=gang, name=spec.name, slot=slot, tenant=spec.tenant, priority=spec.priority,
            submitted_ms=submitted_ms, roles=RoleNeed.all_of(spec), rdma=spec.rdma, zone=where.zone,
            pool=where.pool, within=where.within, exclude=frozenset(where.exclude),
            limit_ms=None if spec.timeout is None else round(spec.timeout * 1000))

    @property
    def nodes(self) -> int:
        return sum(role.size for role in self.roles)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningGang:
    """A gang that holds leases. `ends_by_ms` is when its limit ends it, if it has one."""

    gang: str
    name: str
    slot: str
    tenant: str
    priority: int
    holds: tuple[Held, ...]
    since_ms: int
    ends_by_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolState:
    """What a pool could still provide. `nodes` counts booting and ready ones."""

    name: str
    gpu: GpuAsk
    zone: str
    fabric: str | None
    rdma: bool
    nodes: int
    most: int
    boot_ms: int
    price_nano_per_gpu_hour: int = 0
    emulated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Everything a pass may look at. `version` is the store's: when it moves on, a new plan is due."""

    version: int
    nodes: tuple[NodeState, ...]
    pools: tuple[PoolState, ...]
    pending: tuple[PendingGang, ...] = ()
    running: tuple[RunningGang, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How a pass decides. `reserve_first` blocked gangs get node sets nobody else may take."""

    reserve_first: int = 4
    capacity: bool = True
