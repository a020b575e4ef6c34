"""How long one pass of the reference planner takes on a big busy fleet."""

from __future__ import annotations

import time
from random import Random

from lab import Lab
from table import Row

from gangline.model.gpu import GpuAsk
from gangline.plan.planner import plan
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

ABOUT = "one planning pass: 1,000 nodes, 200 pending gangs, busy fleet"
NODES, PENDING = 1000, 200
NODES_PER_LEAF, LEAVES_PER_SPINE = 16, 8
BUSY = 0.95
SIZES = (1, 1, 1, 1, 2, 2, 4, 4, 8, 16, 32)
H100 = GpuAsk("H100", 8)
NOW_MS = 10_000_000


def run(lab: Lab) -> list[Row]:
    world = busy_fleet(Random(7))
    plan(world, Policy(), NOW_MS)  # not counted
    taken_ms, placed = [], 0
    for _ in range(lab.rounds):  # a pass is pure: its processor time is its time on a machine of its own
        began_s = time.process_time()
        decided = plan(world, Policy(), NOW_MS)
        taken_ms.append(1000 * (time.process_time() - began_s))
        placed = len(decided.placements)
    lab.say(f"planning: {placed} of {PENDING} gangs placed, {len(world.running)} running")
    return [Row(what=f"planning pass, {NODES:,} nodes, {PENDING} pending (processor time)",
                ours=tuple(taken_ms), unit="ms")]


def busy_fleet(rng: Random) -> Snapshot:
    """Gangs of mixed sizes hold most of the fleet, some of them parts of nodes; others wait."""
    names = [f"n{i:04}" for i in range(NODES)]
    order = rng.sample(names, NODES)
    free = {name: tuple(range(H100.count)) for name in names}
    running = []
    while sum(len(gpus) == H100.count for gpus in free.values()) > NODES * (1 - BUSY):
        size = rng.choice(SIZES)
        gpus = H100.count if size > 1 else rng.choice((1, 2, 4, 8))
        chosen, order = order[:size], order[size:]
        holds = tuple(Held(node=name, gpus=free[name][:gpus]) for name in chosen)
        free |= {name: free[name][gpus:] for name in chosen}
        running.append(_running(len(running), holds, rng))
    nodes = tuple(_node(name, i, free[name]) for i, name in enumerate(names))
    pool = PoolState(name="p", gpu=H100, zone="z1", fabric="ib-1", rdma=True, nodes=NODES, most=NODES,
                     boot_ms=60_000)
    return Snapshot(version=1, nodes=nodes, pools=(pool,), running=tuple(running),
                    pending=tuple(_pending(i, rng) for i in range(PENDING)))


def _node(name: str, index: int, free: tuple[int, ...]) -> NodeState:
    leaf = index // NODES_PER_LEAF
    return NodeState(name=name, pool="p", gpu=H100, zone="z1", fabric="ib-1", free_gpus=free,
                     path=(f"spine-{leaf // LEAVES_PER_SPINE}", f"leaf-{leaf}"))


def _running(index: int, holds: tuple[Held, ...], rng: Random) -> RunningGang:
    return RunningGang(gang=f"r{index}", name=f"r{index}", slot=f"run/r{index}", tenant="t", priority=0,
                       holds=holds, since_ms=0, ends_by_ms=NOW_MS + rng.randint(1, 3600) * 1000)


def _pending(index: int, rng: Random) -> PendingGang:
    size = rng.choice(SIZES)
    ask = H100 if size > 1 else GpuAsk("H100", rng.choice((1, 2, 4, 8)))
    return PendingGang(gang=f"g{index}", name=f"g{index}", slot=f"run/g{index}", tenant="t", priority=0,
                       submitted_ms=index, roles=(RoleNeed(name="", size=size, asks=(ask,)),), rdma=size > 1,
                       limit_ms=rng.choice((None, 600_000, 3_600_000)))
