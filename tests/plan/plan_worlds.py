"""Worlds for planner tests: short builders, random fleets, and what a committed plan makes of a world."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from random import Random
from typing import Any

from hypothesis import strategies as st

from gangline.model.gpu import GpuAsk, parse_gpu
from gangline.plan.outcome import Plan
from gangline.plan.policy import HOUR_MS, Order, Policy
from gangline.plan.policy import POLICIES as NAMED
from gangline.plan.snapshot import (
    Held,
    NodeState,
    PendingGang,
    PoolState,
    Promise,
    RoleNeed,
    RunningGang,
    Snapshot,
    TenantState,
)
from gangline.plan.topology import growth_path

NOW_MS = 100 * HOUR_MS


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
                                 "submitted_ms": 0, "since_ms": NOW_MS, **other}
    return PendingGang(gang=name, roles=roles, **fields)


def role(name: str, size: int, *gpu: str) -> RoleNeed:
    return RoleNeed(name=name, size=size, asks=tuple(map(parse_gpu, gpu)))


def running(name: str, *holds: tuple[str, int], ends_by_ms: int | None = None, **other: object) -> RunningGang:
    """A running gang that holds the first so many GPUs of each node."""
    fields: dict[str, object] = {"tenant": "t", "priority": 0, "since_ms": 0, **other}
    return RunningGang(gang=name, name=name, slot=f"run/{name}",
                       holds=tuple(Held(node=n, gpus=tuple(range(k))) for n, k in holds),
                       ends_by_ms=ends_by_ms, **fields)


def tenant(name: str, *, quota: dict[str, int] | None = None, **other: object) -> TenantState:
    return TenantState(name=name, quota=tuple(sorted((quota or {}).items())), **other)


def world(*parts: object, version: int = 1) -> Snapshot:
    """A snapshot of nodes, pools, gangs and tenants in any order; pools count their nodes."""
    nodes = tuple(p for p in parts if isinstance(p, NodeState))
    pools = tuple(p for p in parts if isinstance(p, PoolState))
    known = {p.name for p in pools}
    counted = []
    for each in (*pools, *(pool(n, nodes=1) for n in sorted({n.pool for n in nodes} - known))):
        there = sum(n.pool == each.name and not n.gone for n in nodes)
        counted.append(replace(each, nodes=there, most=max(there, each.most)))
    return Snapshot.of(version=version, nodes=nodes, pools=counted,
                       pending=(p for p in parts if isinstance(p, PendingGang)),
                       running=(p for p in parts if isinstance(p, RunningGang)),
                       tenants=(p for p in parts if isinstance(p, TenantState)))


def changed(snapshot: Snapshot, **parts: Any) -> Snapshot:
    """The snapshot with other nodes, pools, pending, running or tenants."""
    given = {"version": snapshot.version, "nodes": snapshot.nodes, "pools": snapshot.pools,
             "pending": snapshot.pending, "running": snapshot.running, "tenants": snapshot.tenants}
    return Snapshot.of(**{**given, **parts})


class _After:
    """A snapshot on which a plan is carried out at one instant."""

    def __init__(self, snapshot: Snapshot, now_ms: int) -> None:
        self.snapshot, self.now_ms = snapshot, now_ms
        self.pending = {g.gang: g for g in snapshot.pending}
        self.running = {r.gang: r for r in snapshot.running}
        self.nodes = {n.name: n for n in snapshot.nodes}
        self.pools = {p.name: p for p in snapshot.pools}

    def free(self, holds: Iterable[Held]) -> None:
        for held in holds:
            if held.node in self.nodes:
                old = self.nodes[held.node]
                free = tuple(sorted({*old.free_gpus, *held.gpus}))
                idle_ms = self.now_ms if len(free) == old.gpu.count else old.idle_ms
                self.nodes[held.node] = replace(old, free_gpus=free, idle_ms=idle_ms)

    def take(self, holds: Iterable[Held]) -> None:
        for held in holds:
            old = self.nodes[held.node]
            self.nodes[held.node] = replace(
                old, free_gpus=tuple(g for g in old.free_gpus if g not in held.gpus), idle_ms=0)

    def made(self) -> Snapshot:
        return Snapshot.of(version=self.snapshot.version + 1, nodes=self.nodes.values(), pools=self.pools.values(),
                           pending=self.pending.values(), running=self.running.values(), tenants=self.snapshot.tenants)


def commit(snapshot: Snapshot, plan: Plan, now_ms: int = NOW_MS) -> Snapshot:
    """The world after the plan was acted on, at the same instant.

    Placed gangs run, asked nodes boot, preempted and resized gangs are told to end, retired nodes are gone;
    a gang that got a reservation is promised it.
    """
    after = _After(snapshot, now_ms)
    for release in plan.releases:
        gang = after.pending[release.gang]
        after.free(h for h in gang.held if h.node in release.nodes)
        after.pending[gang.gang] = replace(gang, held=tuple(h for h in gang.held if h.node not in release.nodes))
    for placement in plan.placements:
        done = after.pending.pop(placement.gang)
        holds = tuple(Held(node=m.node, gpus=m.gpus) for m in placement.nodes)
        after.take(holds)
        after.running[done.gang] = _started(done, holds, now_ms)
    for name in (*(p.gang for p in plan.preemptions), *(r.gang for r in plan.resizes)):
        old = after.running[name]
        ends_ms = min(now_ms + old.grace_ms, old.ends_by_ms or now_ms + old.grace_ms)
        after.running[name] = replace(old, ending=True, ends_by_ms=ends_ms, preempted_ms=now_ms)
    for request in plan.capacity:
        _boot(after, request.pool, request.nodes)
    for retirement in plan.retirements:
        old = after.pools[retirement.pool]
        after.pools[old.name] = replace(old, nodes=old.nodes - len(retirement.nodes))
        for name in retirement.nodes:
            del after.nodes[name]
    for reservation in plan.reservations:
        if reservation.at_ms is not None:
            after.pending[reservation.gang] = replace(
                after.pending[reservation.gang], promise=Promise(node=reservation.nodes[0], at_ms=reservation.at_ms))
    return after.made()


def _started(gang: PendingGang, holds: tuple[Held, ...], now_ms: int) -> RunningGang:
    bound_ms = gang.limit_ms if gang.limit_ms is not None else gang.likely_ms
    elastic = gang.most > gang.nodes
    return RunningGang(
        gang=gang.gang, name=gang.name, slot=gang.slot, tenant=gang.tenant, priority=gang.priority, holds=holds,
        since_ms=now_ms, ends_by_ms=None if bound_ms is None else now_ms + bound_ms,
        least=gang.nodes if elastic else 0, most=gang.most if elastic else 0, again=gang if elastic else None)


def _boot(after: _After, pool: str, count: int) -> None:
    grown = after.pools[pool]
    path = growth_path(pool, (node.path for node in after.nodes.values() if node.pool == pool and not node.gone))
    for index in range(count):
        name = f"{pool}-new-{grown.nodes + index}"
        after.nodes[name] = NodeState(name=name, pool=pool, gpu=grown.gpu, zone=grown.zone, fabric=grown.fabric,
                                      path=path, free_gpus=tuple(range(grown.gpu.count)), usable=False,
                                      usable_ms=after.now_ms + grown.boot_ms, emulated=grown.emulated)
    after.pools[pool] = replace(grown, nodes=grown.nodes + count)


def advance(snapshot: Snapshot, now_ms: int) -> Snapshot:
    """The world at `now_ms`: gangs whose end has come are gone, those told to end before it wait no more either."""
    after = _After(snapshot, now_ms)
    for run in snapshot.running:
        if run.ends_by_ms is not None and run.ends_by_ms <= now_ms:
            after.free(run.holds)
            del after.running[run.gang]
    for node in snapshot.nodes:
        if 0 < node.usable_ms <= now_ms:
            after.nodes[node.name] = replace(after.nodes[node.name], usable=True, usable_ms=0, idle_ms=now_ms)
    return after.made()


GPUS = (GpuAsk("H100", 8), GpuAsk("H100", 4), GpuAsk("B300", 8), GpuAsk("cpu", 4))
LIMITS_MS = (None, 30_000, 60_000, 120_000, 600_000)
AGO_MS = (0, 60_000, 6 * 60_000, 5 * HOUR_MS, 30 * HOUR_MS)
PATHS = ((), ("l1",), ("l2",), ("s1", "l1"), ("s1", "l2"), ("s2", "l3"), ("c1", "s1", "l1"), ("c1", "s1", "l4"),
         ("c1", "s2", "l3"), ("c2", "s3", "l5"))
TENANTS = ("t", "u", "v")


def worlds(*, repairs: bool = True, most: int = 7) -> st.SearchStrategy[Snapshot]:
    """Small fleets with everything in them: several kinds, switches, domains, states, tenants, running and waiting
    gangs; at most `most` nodes a pool.

    Drawn from one seed: a hundred draws for each world would take far longer than the passes do.
    """
    return st.integers(0, 2**40).map(lambda seed: random_world(seed, repairs=repairs, most=most))


def random_world(seed: int, *, repairs: bool = True, most: int = 7) -> Snapshot:
    return _World(Random(seed), repairs, most).snapshot()


class _World:
    def __init__(self, rng: Random, repairs: bool, most: int) -> None:
        self.rng, self.repairs, self.most = rng, repairs, most
        self.nodes: list[NodeState] = []
        self.free: dict[str, list[int]] = {}
        # Most worlds have few kinds of things, so that gangs compete.
        self.gpus = self.one(GPUS[:1], GPUS[:2], GPUS, GPUS)
        self.paths = self.rng.sample(PATHS, self.rng.randint(1, len(PATHS)))
        self.domains = self.one((None,), (None,), ("d1", "d2"), (None, "d1", "d2"))
        self.extras = self.one(True, False)
        self.limits = self.one(LIMITS_MS, LIMITS_MS[1:])

    def one(self, *options: Any) -> Any:
        return self.rng.choice(options)

    def snapshot(self) -> Snapshot:
        pools = tuple(self.pool(i) for i in range(self.one(1, 1, 2, 3)))
        self.free = {n.name: list(n.free_gpus) for n in self.nodes}
        run = tuple(r for r in map(self.runs, range(self.one(0, 1, 2, 4, 7))) if r.holds)
        pending = tuple(map(self.waits, range(self.one(0, 1, 2, 4, 6, 8))))
        return Snapshot.of(version=1, pools=pools, pending=pending, running=run, tenants=self.tenants(), nodes=tuple(
            replace(n, free_gpus=tuple(self.free[n.name])) for n in self.nodes))

    def tenants(self) -> tuple[TenantState, ...]:
        if self.one(True, *[False] * 4):  # all of one cohort, so that some hold what others want back
            return tuple(TenantState(name=name, quota=(("H100", self.one(8, 16, 24)),), cohort="c1")
                         for name in TENANTS)
        return tuple(TenantState(
            name=name, weight=self.one(1, 1, 2),
            quota=tuple((kind, self.one(0, 8, 16, 24, 40)) for kind in ("H100", "B300") if self.one(True, True, False)),
            cohort=cohort, borrow=self.one(None, 0, 8, 16) if cohort else None)
            for name in TENANTS[:self.one(0, 0, 1, 2, 3)] for cohort in (self.one(None, "c1", "c1"),))

    def pool(self, index: int) -> PoolState:
        fabric = self.one(None, "ib-1", "ib-1", "ib-2")
        made = PoolState(
            name=f"p{index}", gpu=self.one(*self.gpus), zone=self.one("z1", "z1", "z2"), fabric=fabric,
            rdma=fabric is not None and self.one(True, True, False), nodes=0, most=0,
            boot_ms=self.one(30_000, 60_000, 180_000), price_nano_per_gpu_hour=self.rng.randint(0, 2),
            emulated=self.one(True, False, False, False))
        if self.extras:
            made = replace(made, spares=self.one(0, 0, 1, 2), warm=self.one(0, 0, 1, 2), least=self.one(0, 1, 2),
                           delay_ms=self.one(0, 0, 300_000), idle_ms=self.one(None, 0, 600_000))
        mine = [self.node(made, i) for i in range(max(self.rng.randint(0, self.most), self.rng.randint(0, self.most)))]
        self.nodes += mine
        there = sum(not n.gone for n in mine)
        return replace(made, nodes=there, most=there + self.one(0, 0, 1, 3))

    def node(self, pool: PoolState, index: int) -> NodeState:
        state = self.one(*["ready"] * 12, "down", "booting", "gone")
        return NodeState(
            name=f"n{pool.name[1:]}{index}", pool=pool.name, gpu=pool.gpu, zone=pool.zone, fabric=pool.fabric,
            path=self.one(*self.paths), domain=self.one(*self.domains), idle_ms=self.one(0, NOW_MS - self.one(*AGO_MS)),
            free_gpus=tuple(range(pool.gpu.count)), usable=state == "ready", emulated=pool.emulated,
            usable_ms=NOW_MS + pool.boot_ms - self.rng.randint(1, 90_000) if state == "booting" else 0,
            gone=state == "gone")

    def needs(self, domain_size: int | None) -> tuple[RoleNeed, ...]:
        made = []
        for name in [""] if domain_size else self.one(*[[""]] * 4, ["a", "b"]):
            kinds = sorted({n.gpu for n in self.nodes} or set(self.gpus)) if self.one(*[True] * 6, False) else self.gpus
            some = self.rng.sample(kinds, min(len(kinds), self.one(1, 1, 2)))
            asks = [GpuAsk(a.type, self.one(1, 4, a.count, a.count)) for a in some]
            size = domain_size * self.one(1, 1, 2) if domain_size else self.one(1, 1, 1, 2, 2, 3, 4)
            made.append(RoleNeed(name=name, size=size, asks=tuple(dict.fromkeys(asks))))
        return tuple(made)

    def waits(self, index: int) -> PendingGang:
        held = self.holds() if self.repairs and self.one(True, *[False] * 4) else ()
        domain_size = self.one(None, 1, 2, 2) if self.domains != (None,) else None
        roles = self.needs(domain_size)
        elastic = len(roles) == 1 and self.one(True, False, False)
        return PendingGang(
            gang=f"g{index}", name=f"g{index}", slot="", tenant=self.one(*TENANTS), priority=self.one(0, 0, 0, 50, 100),
            submitted_ms=NOW_MS - self.rng.randint(0, 2), roles=roles, rdma=self.one(True, False, False, False),
            zone=self.one(*[None] * 9, "z1"), pool=self.one(*[None] * 9, "p0"),
            within=self.one(*[None] * 7, "leaf", "spine", "fabric"),
            exclude=frozenset(self.one((), (), ("n00",))), domain_size=domain_size,
            most=roles[0].size + self.one(1, 2) if elastic else 0, held=held, limit_ms=self.one(*self.limits),
            likely_ms=self.one(None, 45_000), since_ms=NOW_MS - self.one(*AGO_MS), promise=self.promise())

    def promise(self) -> Promise | None:
        if not self.nodes or self.one(True, True, False):
            return None
        return Promise(node=self.one(*self.nodes).name, at_ms=NOW_MS + self.one(-5_000, 30_000, 400_000))

    def runs(self, index: int) -> RunningGang:
        limit_ms = self.one(*self.limits)
        holds = self.holds()
        elastic = bool(holds) and self.one(True, False, False)
        made = RunningGang(
            gang=f"r{index}", name=f"r{index}", slot="", tenant=self.one(*TENANTS),
            priority=self.one(-50, -50, 0, 0, 50), holds=holds, since_ms=NOW_MS - self.one(*AGO_MS),
            ends_by_ms=limit_ms and NOW_MS + limit_ms,
            ending=self.one(True, *[False] * 5), preemptible=self.one(True, True, True, False),
            saved_ms=self.one(None, NOW_MS - 60_000), preempted_ms=self.one(0, 0, NOW_MS - self.one(*AGO_MS)),
            resized_ms=self.one(0, 0, NOW_MS - self.one(*AGO_MS)), grace_ms=self.one(20_000, 60_000))
        if not elastic:
            return made
        again = replace(self.waits(index), gang=made.gang, name=made.name, held=(), roles=(
            RoleNeed(name="", size=1, asks=(self.one(*self.gpus),)),), domain_size=None)
        return replace(made, least=self.one(0, 1, 1, 2), most=len(holds) + self.one(0, 1, 2), again=again)

    def holds(self) -> tuple[Held, ...]:
        """Whole nodes, or part of one, taken out of what is free."""
        names = [n.name for n in self.nodes if self.free[n.name] and n.usable]
        chosen = self.rng.sample(names, min(len(names), self.one(1, 1, 2, 3, 4)))
        holds = []
        for name in sorted(chosen):
            free = self.free[name]
            count = len(free) if len(chosen) > 1 else self.one(len(free), self.rng.randint(1, len(free)))
            holds.append(Held(node=name, gpus=tuple(free[:count])))
            self.free[name] = free[count:]
        return tuple(holds)


POLICIES = st.one_of(st.sampled_from(list(NAMED.values())), st.builds(
    Policy, name=st.just("random"), order=st.sampled_from(Order), strict=st.sampled_from([False, False, False, True]),
    reserve_first=st.sampled_from([0, 1, 4]), reserve_after_ms=st.sampled_from([0, 0, HOUR_MS]),
    backfill=st.sampled_from(Order), protect_after_ms=st.sampled_from([None, 0, HOUR_MS]),
    age_after_ms=st.sampled_from([None, HOUR_MS, 24 * HOUR_MS]), fair=st.booleans(), capacity=st.booleans(),
    preempt=st.booleans(), preempt_first=st.sampled_from([1, 8]), min_runtime_ms=st.sampled_from([0, 5 * 60_000]),
    cool_down_ms=st.sampled_from([0, 10 * 60_000]), resize_every_ms=st.sampled_from([0, 10 * 60_000]),
    sticky_ms=st.sampled_from([0, 5 * 60_000]), sticky_share=st.sampled_from([0.0, 0.1])))
