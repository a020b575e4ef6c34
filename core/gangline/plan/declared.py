"""What a fleet file declares, in the terms a pass plans in."""

from __future__ import annotations

from dataclasses import replace

from gangline.model.fleet import DeclaredNode, NodeCondition, Pool, Scheduling, Tenant
from gangline.plan.policy import POLICIES, Order, Policy
from gangline.plan.snapshot import NodeState, PoolState, TenantState


def policy_of(scheduling: Scheduling) -> Policy:
    """The policy a fleet file asks for, with what it wants otherwise."""
    wanted = {name: value for name, value in scheduling if name != "policy" and value is not None}
    times = {f"{name}_ms": round(wanted.pop(name) * 1000)
             for name in ("reserve_after", "protect_after", "age_after", "min_runtime", "cool_down", "resize_every")
             if name in wanted}
    if "backfill" in wanted:
        wanted["backfill"] = Order(wanted["backfill"])
    return replace(POLICIES[scheduling.policy], **wanted, **times)


def tenant_state(tenant: Tenant) -> TenantState:
    return TenantState(name=tenant.name, weight=tenant.weight, quota=tuple(sorted(tenant.quota.items())),
                       cohort=tenant.cohort, borrow=tenant.borrow)


def node_state(node: DeclaredNode, pool: Pool, now_ms: int) -> NodeState:
    """A declared node as it is when nothing runs; one that boots is taken to have begun at `now_ms`."""
    booting = node.state is NodeCondition.BOOTING
    return NodeState(
        name=node.name, pool=pool.name, gpu=pool.ask, zone=pool.zone, fabric=pool.fabric, path=node.path,
        domain=node.domain, free_gpus=tuple(range(pool.ask.count)), usable=node.state is NodeCondition.READY,
        usable_ms=max(1, now_ms + _ms(pool.boot)) if booting else 0, emulated=pool.emulated,
        realm=pool.name if pool.hosted else "", gone=node.state is NodeCondition.GONE)


def pool_state(pool: Pool, nodes: int, wanted: int | None = None, *, proved: bool = False) -> PoolState:
    """A pool that has so many nodes, booting ones too; `wanted` is the size a person asked for: it has no other.

    `proved` takes the RDMA that real nodes declare for granted.
    """
    return PoolState(
        name=pool.name, gpu=pool.ask, zone=pool.zone, fabric=pool.fabric,
        # Real nodes cannot prove it yet, and unknown is not healthy.
        rdma=pool.rdma is not None and (pool.emulated or proved),
        nodes=nodes, most=pool.most if wanted is None else within(pool, wanted), boot_ms=_ms(pool.boot),
        least=pool.min if wanted is None else within(pool, wanted),
        price_nano_per_gpu_hour=pool.price_nano_per_gpu_hour, emulated=pool.emulated,
        realm=pool.name if pool.hosted else "", spares=pool.spares,
        warm=pool.warm, delay_ms=_ms(pool.delay), idle_ms=None if pool.idle is None else _ms(pool.idle))


def within(pool: Pool, wanted: int) -> int:
    """A size asked for before the file changed, as far as the pool can have it now."""
    return max(pool.min, min(wanted, pool.most))


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
