"""`Fleet`: the file that owns pools, declared nodes and tenants."""

from __future__ import annotations

from collections import Counter
from enum import StrEnum
from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from gangline.model.base import Wire
from gangline.model.engine import LOCAL, Absolute, EngineName, Kubernetes, Plain, Ray, Slurm
from gangline.model.gpu import CPU, GpuAsk, parse_gpu
from gangline.model.spec import Name, Seconds
from gangline.model.units import NANO_PER_UNIT, parse_money_nano

MOST_PRICE_NANO = 100_000 * NANO_PER_UNIT


class NodeCondition(StrEnum):
    """How a fleet file may declare a node."""

    READY = "ready"
    DRAINING = "draining"
    QUARANTINED = "quarantined"
    BOOTING = "booting"
    GONE = "gone"


class Rdma(Wire):
    """The RDMA network of a pool as its owner declares it: what a proof is measured against."""

    kind: Literal["infiniband", "roce", "efa", "tcpx"]
    gbps: int = Field(gt=0, description="per node, one direction")


class Pool(Wire):
    """Nodes of one kind that one engine provides."""

    name: Name
    engine: EngineName = LOCAL
    slurm: Slurm | None = None
    ray: Ray | None = None
    kubernetes: Kubernetes | None = None
    mode: Literal["pinned", "delegated"] = Field(
        default="pinned", description="who chooses the nodes: Gangline, or the engine's queue")
    python: Plain | None = Field(default=None, description="of the supervisors there [default: the server's]")
    lease: Seconds = Field(default=120.0, ge=10, description="how long supervisors of other machines go on without "
                           "the server; a machine that vanishes is replaced after that")
    node_home: Absolute | None = Field(default=None, description="folder on each node [default: /tmp/gangline-UID]")
    gpu: str = CPU
    zone: Name = "local"
    fabric: Name | None = None
    rdma: Rdma | None = None
    min: int = Field(default=1, ge=0)
    max: int | None = Field(default=None, ge=0)
    boot: Seconds = 0.0
    delay: Seconds = Field(default=0.0, description="how long demand must go unmet before nodes are asked for")
    idle: Seconds | None = Field(default=None, description="how long a node may idle before it is given back")
    warm: int = Field(default=0, ge=0, description="idle nodes kept booted")
    spares: int = Field(default=0, ge=0, description="healthy nodes kept for the repair of gangs")
    price_per_gpu_hour: str = "0"
    currency: str = Field(default="USD", pattern=r"^[A-Z]{3}$")
    emulated: bool = False

    @model_validator(mode="before")
    @classmethod
    def _no_minimum(cls, data: Any) -> Any:
        if isinstance(data, dict) and data.get("engine", LOCAL) != LOCAL and "min" not in data:
            return {**data, "min": 0}  # the engine says which nodes there are
        return data

    @field_validator("gpu")
    @classmethod
    def _gpu(cls, value: str) -> str:
        return str(parse_gpu(value))

    @field_validator("price_per_gpu_hour", mode="before")
    @classmethod
    def _price(cls, value: object) -> object:
        if isinstance(value, int) and not isinstance(value, bool):
            value = str(value)
        if not isinstance(value, str):
            raise ValueError('write the price as a string, such as "7.10", so that nothing is rounded')
        if parse_money_nano(value) > MOST_PRICE_NANO:
            most = MOST_PRICE_NANO // NANO_PER_UNIT
            raise ValueError(f"{value} is no price of a GPU for an hour; write at most {most}")
        return value

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if self.max is not None and self.max < self.min:
            raise ValueError(f"max ({self.max}) is below min ({self.min})")
        if self.rdma is not None and self.fabric is None:
            raise ValueError("a pool with rdma needs a fabric (the network it is on)")
        self._settings_fit()
        return self

    def _settings_fit(self) -> None:
        given = {"slurm": self.slurm, "ray": self.ray, "kubernetes": self.kubernetes}
        for engine, settings in given.items():
            if engine == self.engine and settings is None:
                raise ValueError(f"its engine is {engine}, so it needs a block `{engine}:` that says where that is")
            if engine != self.engine and settings is not None:
                raise ValueError(f"it has a block `{engine}:`, but its engine is {self.engine}")
        if self.hosted and self.emulated:
            raise ValueError(f"nodes of {self.engine} are real; only a local pool can be emulated")

    @property
    def hosted(self) -> bool:
        """Its nodes are another system's: that one says which there are, and starts supervisors there."""
        return self.engine != LOCAL

    @property
    def ask(self) -> GpuAsk:
        """What one node of the pool holds."""
        return parse_gpu(self.gpu)

    @property
    def most(self) -> int:
        """The number of nodes the pool can grow to."""
        return self.min if self.max is None else self.max

    @property
    def price_nano_per_gpu_hour(self) -> int:
        return parse_money_nano(self.price_per_gpu_hour)


class DeclaredNode(Wire):
    """A node the fleet file names; without any, a pool starts with `min` ready nodes on one leaf."""

    name: Name
    pool: str
    path: tuple[str, ...] = Field(default=(), description="switches, from the widest to the leaf")
    domain: str | None = Field(default=None, description="its NVLink domain")
    state: NodeCondition = NodeCondition.READY


class Tenant(Wire):
    """Whose work, share and quota. Budgets are not available yet.

    `quota` is GPUs by type; a type it does not name is not limited. Tenants of a `cohort` may use what
    the others leave of their quotas, at most `borrow` GPUs of a type (without it, all of it).
    """

    name: Name
    weight: int = Field(default=1, ge=1)
    quota: dict[str, Annotated[int, Field(ge=0)]] = {}
    cohort: Name | None = None
    borrow: int | None = Field(default=None, ge=0)
    budget: dict[str, str] | None = None

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if "budget" in self.model_fields_set:
            raise ValueError("budget is not available yet; leave it out")
        if self.borrow is not None and self.cohort is None:
            raise ValueError("borrow needs a cohort to borrow from")
        return self


class Scheduling(Wire):
    """How the fleet is shared out: a policy by name, and what is to differ from it."""

    policy: Literal["submit-order", "short-first", "fifo", "best-effort-fifo", "easy"] = "submit-order"
    reserve_first: int | None = Field(default=None, ge=0)
    reserve_after: Seconds | None = None
    backfill: Literal["submitted", "shortest"] | None = None
    protect_after: Seconds | None = None
    age_after: Seconds | None = None
    fair: bool | None = None
    preempt: bool | None = None
    min_runtime: Seconds | None = None
    cool_down: Seconds | None = None
    resize_every: Seconds | None = None


class Fleet(Wire):
    """Pools, nodes and tenants, as one file declares them."""

    pools: tuple[Pool, ...] = Field(min_length=1)
    node_url: Plain | None = Field(default=None, description="where supervisors on other machines reach the server")
    volumes: Absolute | None = Field(
        default=None, description="folder of volumes, the same on every node [default: in the home]")
    nodes: tuple[DeclaredNode, ...] = ()
    tenants: tuple[Tenant, ...] = ()
    scheduling: Scheduling = Scheduling()

    @model_validator(mode="after")
    def _whole(self) -> Self:
        _unique("pool", [p.name for p in self.pools])
        _unique("tenant", [t.name for t in self.tenants])
        types = sorted({pool.ask.type for pool in self.pools})
        for tenant in self.tenants:
            for unknown in sorted(tenant.quota.keys() - set(types)):
                raise ValueError(f"tenant {tenant.name} has a quota of {unknown}, which no pool has; "
                                 f"the types are {', '.join(types)}")
        _unique("node", [n.name for n in self.all_nodes()])
        pools = {p.name: p for p in self.pools}
        for node in self.nodes:
            if node.pool not in pools:
                raise ValueError(f"node {node.name} names pool {node.pool!r}, which is not declared")
        for name, count in Counter(n.pool for n in self.nodes).items():
            if count > pools[name].most and pools[name].max is not None:
                raise ValueError(f"pool {name} declares {count} nodes, more than its max of {pools[name].most}")
        return self

    def pool(self, name: str) -> Pool:
        """The pool of that name; StopIteration if there is none."""
        return next(p for p in self.pools if p.name == name)

    def all_nodes(self) -> tuple[DeclaredNode, ...]:
        """Declared nodes, and `min` generated ones on one leaf for each pool that declares none."""
        declared = {n.pool for n in self.nodes}
        made = tuple(
            DeclaredNode(name=f"{pool.name}-{i + 1}", pool=pool.name, path=(f"{pool.name}-leaf",))
            for pool in self.pools if pool.name not in declared and not pool.hosted for i in range(pool.min))
        return self.nodes + made


def _unique(what: str, names: list[str]) -> None:
    for name, count in Counter(names).items():
        if count > 1:
            raise ValueError(f"{what} {name} is declared {count} times")
