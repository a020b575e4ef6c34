"""Worlds for planner tests: short builders, random fleets, and what a committed plan makes of a world."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

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


def leaf(prefix: str, count: int, *path: str) -> list[NodeState]:
    """Free nodes prefix0, prefix1, … behind one switch path."""
    return [node(f"{prefix}{i}", path=path) for i in range(count)]


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


def advance(snapshot: Snapshot, now_ms: int) -> Snapshot:
    """The world at `now_ms`: gangs whose limit has come are gone and their GPUs are free."""
    free = {n.name: set(n.free_gpus) for n in snapshot.nodes}
    left = []
    for run in snapshot.running:
        if run.ends_by_ms is None or run.ends_by_ms > now_ms:
            left.append(run)
            continue
        for held in run.holds:
            free[held.node] |= set(held.gpus)
    nodes = tuple(replace(n, free_gpus=tuple(sorted(free[n.name]))) for n in snapshot.nodes)
    return replace(snapshot, version=snapshot.version + 1, nodes=nodes, running=tuple(left))


GPUS = (GpuAsk("H100", 8), GpuAsk("H100", 4), GpuAsk("B300", 8), GpuAsk("cpu", 4))
LIMITS_MS = (None, 30_000, 60_000, 120_000, 600_000)


def worlds(*, repairs: bool = True) -> st.SearchStrategy[Snapshot]:
    """Small fleets with everything in them: several kinds, switches, states, running and waiting gangs.

    Drawn from one seed: a hundred draws for each world would take far longer than the passes do.
    """
    return st.integers(0, 2**40).map(lambda seed: _World(Random(seed), repairs).snapshot())


class _World:
    def __init__(self, rng: Random, repairs: bool) -> None:
        self.rng, self.repairs = rng, repairs
        self.nodes: list[NodeState] = []
        self.free: dict[str, list[int]] = {}

    def one(self, *options: Any) -> Any:
        return self.rng.choice(options)

    def snapshot(self) -> Snapshot:
        pools = tuple(self.pool(i) for i in range(self.one(1, 2, 2, 3)))
        self.free = {n.name: list(n.free_gpus) for n in self.nodes}
        run = tuple(r for r in map(self.runs, range(self.rng.randint(0, 3))) if r.holds)
        pending = tuple(map(self.waits, range(self.rng.randint(0, 6))))
        return Snapshot(version=1, pools=pools, pending=pending, running=run, nodes=tuple(
            replace(n, free_gpus=tuple(self.free[n.name])) for n in self.nodes))

    def pool(self, index: int) -> PoolState:
        fabric = self.one(None, "ib-1", "ib-2")
        made = PoolState(
            name=f"p{index}", gpu=self.one(*GPUS), zone=self.one("z1", "z2"), fabric=fabric,
            rdma=fabric is not None and self.one(True, False), nodes=0, most=0,
            boot_ms=self.one(30_000, 60_000, 180_000), price_nano_per_gpu_hour=self.rng.randint(0, 2),
            emulated=self.one(True, False, False, False))
        mine = [self.node(made, i) for i in range(self.rng.randint(0, 6))]
        self.nodes += mine
        there = sum(not n.gone for n in mine)
        return replace(made, nodes=there, most=there + self.one(0, 0, 1, 3))

    def node(self, pool: PoolState, index: int) -> NodeState:
        state = self.one(*["ready"] * 6, "down", "booting", "gone")
        return NodeState(
            name=f"n{pool.name[1:]}{index}", pool=pool.name, gpu=pool.gpu, zone=pool.zone, fabric=pool.fabric,
            path=self.one((), ("l1",), ("s1", "l1"), ("s1", "l2"), ("s2", "l3")),
            free_gpus=tuple(range(pool.gpu.count)), usable=state == "ready", emulated=pool.emulated,
            usable_ms=NOW_MS + pool.boot_ms - self.rng.randint(1, 90_000) if state == "booting" else 0,
            gone=state == "gone")

    def needs(self) -> tuple[RoleNeed, ...]:
        made = []
        for name in self.one([""], [""], [""], ["a", "b"]):
            kinds = self.rng.sample(GPUS, self.one(1, 1, 2))
            asks = [GpuAsk(a.type, self.one(1, a.count, a.count)) for a in kinds]
            made.append(RoleNeed(name=name, size=self.one(1, 1, 2, 3, 4), asks=tuple(dict.fromkeys(asks))))
        return tuple(made)

    def waits(self, index: int) -> PendingGang:
        held = self.holds() if self.repairs and self.one(True, False, False) else ()
        return PendingGang(
            gang=f"g{index}", name=f"g{index}", slot="", tenant="t", priority=self.one(0, 0, 100),
            submitted_ms=self.rng.randint(0, 2), roles=self.needs(), rdma=self.one(True, False, False),
            zone=self.one(*[None] * 5, "z1"), pool=self.one(*[None] * 5, "p0"),
            within=self.one(*[None] * 4, "leaf", "spine", "fabric"),
            exclude=frozenset(self.one((), (), ("n00",))), held=held, limit_ms=self.one(*LIMITS_MS))

    def runs(self, index: int) -> RunningGang:
        limit_ms = self.one(*LIMITS_MS)
        return RunningGang(gang=f"r{index}", name=f"r{index}", slot="", tenant="t", priority=0,
                           holds=self.holds(), since_ms=0, ends_by_ms=limit_ms and NOW_MS + limit_ms)

    def holds(self) -> tuple[Held, ...]:
        """Whole nodes, or part of one, taken out of what is free."""
        names = [n.name for n in self.nodes if self.free[n.name] and n.usable]
        chosen = self.rng.sample(names, min(len(names), self.one(1, 1, 2, 3)))
        holds = []
        for name in sorted(chosen):
            free = self.free[name]
            count = len(free) if len(chosen) > 1 else self.rng.randint(1, len(free))
            holds.append(Held(node=name, gpus=tuple(free[:count])))
            self.free[name] = free[count:]
        return tuple(holds)


POLICIES = st.builds(Policy, reserve_first=st.sampled_from([0, 1, 4]), capacity=st.booleans())
