"""`World`: the fleet a replay runs on, from a fleet file or from a list of hosts and switches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from gangline.model.errors import Rejected
from gangline.model.fleet import DeclaredNode, Fleet, NodeCondition
from gangline.model.gpu import CPU, GpuAsk
from gangline.plan.declared import node_state, pool_state, tenant_state
from gangline.plan.snapshot import NodeState, PoolState, TenantState
from gangline.simulation.rows import csv_rows

_TOPOLOGY = ("DSW", "PSW", "ASW")
_USABLE = NodeCondition.READY


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """What a replay starts from. Nodes are idle; those that boot do so from its first instant."""

    name: str
    nodes: tuple[NodeState, ...]
    pools: tuple[PoolState, ...]
    tenants: tuple[TenantState, ...] = ()

    @property
    def gpus_per_node(self) -> int:
        """The most GPUs that a node has."""
        return max(pool.gpu.count for pool in self.pools)

    @property
    def node_count(self) -> int:
        """The nodes that are there at the start."""
        return len(self.nodes)

    def whole_asks(self) -> tuple[GpuAsk, ...]:
        """A whole node of each type, in the fleet's order; processors alone only where there is nothing else."""
        most: dict[str, int] = {}
        for pool in self.pools:
            most[pool.gpu.type] = max(pool.gpu.count, most.get(pool.gpu.type, 0))
        kinds = [kind for kind in most if kind != CPU] or list(most)
        return tuple(GpuAsk(kind, most[kind]) for kind in kinds)


def world_of(fleet: Fleet, name: str = "fleet") -> World:
    """The world that a fleet file declares."""
    pools = {pool.name: pool for pool in fleet.pools}
    nodes = tuple(node_state(node, pools[node.pool], 0) for node in fleet.all_nodes()
                  if node.state is not NodeCondition.GONE)
    there = Counter(node.pool for node in nodes)
    return World(name=name, nodes=nodes, tenants=tuple(tenant_state(tenant) for tenant in fleet.tenants),
                 pools=tuple(pool_state(pool, there[pool.name], proved=True) for pool in fleet.pools))


def resized(fleet: Fleet, counts: Mapping[str, int]) -> Fleet:
    """The same fleet, pools named having exactly so many nodes from the start.

    Of declared nodes the first stay; more of them go to new leaves, as full as the fullest declared one,
    under the switches of the last.

    Raises:
        Rejected: the fleet has no pool of that name.
    """
    for name in counts:
        if name not in {pool.name for pool in fleet.pools}:
            raise Rejected(f"the fleet has no pool {name!r}",
                           fix=f"its pools are {', '.join(pool.name for pool in fleet.pools)}")
    pools = tuple(pool.model_copy(update={"min": counts[pool.name], "max": counts[pool.name]})
                  if pool.name in counts else pool for pool in fleet.pools)
    nodes = [node for node in fleet.nodes if node.pool not in counts]
    for name, count in counts.items():
        nodes += _recounted([node for node in fleet.nodes if node.pool == name], name, count)
    return fleet.model_copy(update={"pools": pools, "nodes": tuple(nodes)})


def _recounted(declared: list[DeclaredNode], pool: str, count: int) -> list[DeclaredNode]:
    """`count` nodes of a pool that declares these; none when it declares none, for then it makes its own."""
    if not declared or count <= len(declared):
        return declared[:count]
    per_leaf = max(Counter(node.path for node in declared).values())
    above = declared[-1].path[:-1]
    return declared + [
        DeclaredNode(name=f"{pool}-more-{index + 1}", pool=pool,
                     path=(*above, f"{pool}-more-leaf-{index // per_leaf + 1}") if declared[-1].path else ())
        for index in range(count - len(declared))]


def single_pool(nodes: int, gpu: GpuAsk, name: str = "nodes") -> World:
    """So many nodes of one kind on one leaf of one fabric with rdma."""
    return _flat(name, gpu, [(f"node-{index + 1}", ("leaf",)) for index in range(nodes)])


def read_topology(path: Path, gpu: GpuAsk) -> World:
    """The hosts of a CSV file with the columns DSW, PSW, ASW (widest switch to leaf), as nodes of that kind.

    A host is named by the first other column; without one by its number. All are on one fabric with rdma.

    Raises:
        NotFound, Rejected: in one line.
    """
    hosts: list[tuple[str, tuple[str, ...]]] = []
    seen: set[str] = set()
    for row in csv_rows(path, _TOPOLOGY):
        other = next((column for column in row.cells if column not in _TOPOLOGY), None)
        host = row.text(other) if other else f"host-{len(hosts) + 1}"
        switches = tuple(row.text(column) for column in _TOPOLOGY)
        if not host or not all(switches):
            raise row.wrong("leaves a host or a switch without a name", "fill every cell")
        if host in seen:
            raise row.wrong(f"host {host} is there twice", "remove one of them")
        seen.add(host)
        hosts.append((host, switches))
    if not hosts:
        raise Rejected(f"{path} holds no host", fix="give rows of host,DSW,PSW,ASW")
    return _flat(path.name, gpu, hosts)


def _flat(name: str, gpu: GpuAsk, hosts: list[tuple[str, tuple[str, ...]]]) -> World:
    pool = PoolState(name=name, gpu=gpu, zone="local", fabric="fabric", rdma=True, nodes=len(hosts), most=len(hosts),
                     boot_ms=0, least=len(hosts))
    plain = NodeState(name="", pool=name, gpu=gpu, zone=pool.zone, fabric=pool.fabric,
                      free_gpus=tuple(range(gpu.count)))
    return World(name=name, pools=(pool,), nodes=tuple(replace(plain, name=host, path=path) for host, path in hosts))
