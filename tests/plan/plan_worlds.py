"""Worlds for planner tests: short builders, random fleets, and what a committed plan makes of a world."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from gangline.model.gpu import GpuAsk, parse_gpu
from gangline.plan.outcome import Plan
from gangline.plan.snapshot import (
    Held,
    NodeState,
    PendingGang,
    Policy,
    PoolState,
    RoleNeed,
    RunningGang,
    Snapshot,
)
from gangline.plan.topology import growth_path

NOW_MS = 1_000_000


def node(name: str, gpu: str = "H100:8", *, pool: str = "p", zone: str = "z1", fabric: str | None = "ib-1",
         path: tuple[str, ...] = ("leaf-1",), used: int = 0, **other: object) -> NodeState:
    ask = parse_gpu(gpu)
    return NodeState(name=name, pool=pool, gpu=ask, zone=zone, fabric=fabric, path=path,
                     free_gpus=tuple(range(used, ask.count)), **other)


def pool(name: str = "p", gpu: str = "H100:8", *, zone: str = "z1", fabric: str | None = "ib-1",
         rdma: bool = True, nodes: int = 0, most: int = 0, boot_ms: int = 60_000,
         **other: object) -> PoolState:
    return PoolState(name=name, gpu=parse_gpu(gpu), zone=zone, fabric=fabric, rdma=rdma, nodes=nodes,
                     most=most, boot_ms=boot_ms, **other)


def gang(name: str, size: int = 1, gpu: str | tuple[str, ...] = "H100:8", **other: object) -> PendingGang:
    asks = (gpu,) if isinstance(gpu, str) else gpu
    roles = other.pop("roles", None) or (RoleNeed(name="", size=size, asks=tuple(map(parse_gpu, asks))),)
    fields: dict[str, object] = {"name": name, "slot": f"run/{name}", "tenant": "t", "priority": 0,
                                 "submitted_ms": 0, **other}
    return PendingGang(gang=name, roles=roles, **fields)


def role(name: str, size: int, *gpu: str) -> RoleNeed:
    return RoleNeed(name=name, size=size, asks=tuple(map(parse_gpu, gpu)))


def running(name: str, *holds: tuple[str, int], ends_by_ms: int | None = None) -> RunningGang:
    """A running gang that holds the first so many GPUs of each node."""
    return RunningGang(gang=name, name=name, slot=f"run/{name}", tenant="t", priority=0, since_ms=0,
                       holds=tuple(Held(node=n, gpus=tuple(range(k))) for n, k in holds),
                       ends_by_ms=ends_by_ms)


def world(*parts: object, version: int = 1) -> Snapshot:
    """A snapshot of nodes, pools, pending and running gangs in any order; pools count their nodes."""
    nodes = tuple(p for p in parts if isinstance(p, NodeState))
    pools = tuple(p for p in parts if isinstance(p, PoolState))
    known = {p.name for p in pools}
    counted = []
    for each in (*pools, *(pool(n, nodes=1) for n in sorted({n.pool for n in nodes} - known))):
        there = sum(n.pool == each.name and not n.gone for n in nodes)
        counted.append(replace(each, nodes=there, most=max(there, each.most)))
    return Snapshot(version=version, nodes=nodes, pools=tuple(counted),
                    pending=tuple(p for p in parts if isinstance(p, PendingGang)),
                    running=tuple(p for p in parts if isinstance(p, RunningGang)))


def commit(snapshot: Snapshot, plan: Plan, now_ms: int = NOW_MS) -> Snapshot:
    """The world after the plan was acted on, at the same instant: placed gangs run, asked nodes boot."""
    pending = {g.gang: g for g in snapshot.pending}
    free = {n.name: set(n.free_gpus) for n in snapshot.nodes}
    run = list(snapshot.running)
    for release in plan.releases:
        for held in pending[release.gang].held:
            if held.node in release.nodes:
                free[held.node] |= set(held.gpus)
        pending[release.gang] = replace(pending[release.gang], held=tuple(
            h for h in pending[release.gang].held if h.node not in release.nodes))
    for placement in plan.placements:
        done = pending.pop(placement.gang)
        for member in placement.nodes:
            free[member.node] -= set(member.gpus)
        run.append(RunningGang(
            gang=done.gang, name=done.name, slot=done.slot, tenant=done.tenant, priority=done.priority,
            holds=tuple(Held(node=m.node, gpus=m.gpus) for m in placement.nodes), since_ms=now_ms,
            ends_by_ms=None if done.limit_ms is None else now_ms + done.limit_ms))
    nodes = [replace(n, free_gpus=tuple(sorted(free[n.name]))) for n in snapshot.nodes]
    pools = {p.name: p for p in snapshot.pools}
    for request in plan.capacity:
        grown = pools[request.pool]
        path = growth_path(grown, snapshot.nodes)
        nodes += [NodeState(name=f"{grown.name}-new-{grown.nodes + i}", pool=grown.name, gpu=grown.gpu,
                            zone=grown.zone, fabric=grown.fabric, path=path, usable=False,
                            usable_ms=now_ms + grown.boot_ms, emulated=grown.emulated)
                  for i in range(request.nodes)]
        pools[grown.name] = replace(grown, nodes=grown.nodes + request.nodes)
    return replace(snapshot, version=snapshot.version + 1, nodes=tuple(nodes), pools=tuple(pools.values()),
                   pending=tuple(pending.values()), running=tuple(run))


GPUS = (GpuAsk("H100", 8), GpuAsk("H100", 4), GpuAsk("B300", 8), GpuAsk("cpu", 4))
_LIMITS = st.sampled_from([None, 30_000, 60_000, 120_000, 600_000])


@st.composite
def pools_and_nodes(draw: st.DrawFn) -> tuple[list[PoolState], list[NodeState]]:
    pools, nodes = [], []
    for p in range(draw(st.integers(1, 3))):
        gpu = draw(st.sampled_from(GPUS))
        fabric = draw(st.sampled_from([None, "ib-1", "ib-2"]))
        made = PoolState(
            name=f"p{p}", gpu=gpu, zone=draw(st.sampled_from(["z1", "z2"])), fabric=fabric,
            rdma=fabric is not None and draw(st.booleans()), nodes=0, most=0,
            boot_ms=draw(st.sampled_from([30_000, 60_000, 180_000])),
            price_nano_per_gpu_hour=draw(st.integers(0, 2)), emulated=draw(st.integers(0, 4)) == 0)
        mine = []
        for n in range(draw(st.integers(0, 6))):
            state = draw(st.sampled_from(["ready"] * 6 + ["down", "booting", "gone"]))
            path = draw(st.sampled_from([(), ("l1",), ("s1", "l1"), ("s1", "l2"), ("s2", "l3")]))
            mine.append(NodeState(
                name=f"n{p}{n}", pool=made.name, gpu=gpu, zone=made.zone, fabric=fabric, path=path,
                free_gpus=tuple(range(gpu.count)), usable=state == "ready", emulated=made.emulated,
                usable_ms=NOW_MS + draw(st.integers(-5, 90_000)) if state == "booting" else 0,
                gone=state == "gone"))
        there = sum(not n.gone for n in mine)
        pools.append(replace(made, nodes=there, most=there + draw(st.sampled_from([0, 0, 1, 3]))))
        nodes += mine
    return pools, nodes


@st.composite
def needs(draw: st.DrawFn) -> tuple[RoleNeed, ...]:
    names = [""] if draw(st.integers(0, 4)) else ["a", "b"]
    made = []
    for name in names:
        asks = draw(st.lists(st.sampled_from(GPUS), min_size=1, max_size=2, unique=True))
        counts = [GpuAsk(a.type, draw(st.sampled_from([1, a.count, a.count]))) for a in asks]
        made.append(RoleNeed(name=name, size=draw(st.sampled_from([1, 1, 2, 3, 4])),
                             asks=tuple(dict.fromkeys(counts))))
    return tuple(made)


@st.composite
def worlds(draw: st.DrawFn, *, repairs: bool = True) -> Snapshot:
    """Small fleets with everything in them: several kinds, switches, states, running and waiting gangs."""
    pools, nodes = draw(pools_and_nodes())
    free = {n.name: list(n.free_gpus) for n in nodes}
    pending, run = [], []
    for i in range(draw(st.integers(0, 3))):
        holds = _some_holds(draw, nodes, free)
        if holds:
            limit_ms = draw(_LIMITS)
            run.append(RunningGang(gang=f"r{i}", name=f"r{i}", slot="", tenant="t", priority=0, holds=holds,
                                   since_ms=0, ends_by_ms=limit_ms and NOW_MS + limit_ms))
    for i in range(draw(st.integers(0, 6))):
        held = _some_holds(draw, nodes, free) if repairs and draw(st.integers(0, 3)) == 0 else ()
        pending.append(PendingGang(
            gang=f"g{i}", name=f"g{i}", slot="", tenant="t", priority=draw(st.sampled_from([0, 0, 100])),
            submitted_ms=draw(st.integers(0, 2)), roles=draw(needs()), rdma=draw(st.integers(0, 3)) == 0,
            zone=draw(st.sampled_from([None] * 5 + ["z1"])), pool=draw(st.sampled_from([None] * 5 + ["p0"])),
            within=draw(st.sampled_from([None] * 4 + ["leaf", "spine", "fabric"])),
            exclude=frozenset(draw(st.sampled_from([(), (), ("n00",)]))), held=held, limit_ms=draw(_LIMITS)))
    return Snapshot(version=1, nodes=tuple(replace(n, free_gpus=tuple(free[n.name])) for n in nodes),
                    pools=tuple(pools), pending=tuple(pending), running=tuple(run))


def _some_holds(draw: st.DrawFn, nodes: list[NodeState], free: dict[str, list[int]]) -> tuple[Held, ...]:
    """Whole nodes, or part of one, taken out of `free`."""
    open_nodes = [n.name for n in nodes if free[n.name] and n.usable]
    if not open_nodes:
        return ()
    names = draw(st.lists(st.sampled_from(open_nodes), min_size=1, max_size=3, unique=True))
    holds = []
    for name in names:
        count = len(free[name]) if len(names) > 1 else draw(st.integers(1, len(free[name])))
        holds.append(Held(node=name, gpus=tuple(free[name][:count])))
        free[name] = free[name][count:]
    return tuple(holds)


POLICIES = st.builds(Policy, reserve_first=st.sampled_from([0, 1, 4]), capacity=st.booleans())
