"""How long one pass takes on a busy fleet: its decisions, and with a reason for every wait."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from random import Random

from lab import Lab
from table import Row

from gangline.model.gpu import GpuAsk
from gangline.plan.planner import decide
from gangline.plan.policy import Policy
from gangline.plan.snapshot import Held, NodeState, PendingGang, PoolState, RoleNeed, RunningGang, Snapshot

ABOUT = "one planning pass: 1,000, 10,000 and 100,000 nodes, 1,000 pending gangs, busy fleet"
FLEETS = {1_000: None, 10_000: 5.0, 100_000: 40.0}  # nodes, and the target in ms
PENDING = 1000
BUSY = 0.85
LEAF, LEAVES, SPINES = 32, 16, 4  # nodes of a leaf, leaves of a spine, spines of a fabric
TYPES = ("H100", "H200", "A100")
# Gangs of 2 nodes and more by size, per 1,000, of 466,867 jobs (alibaba/clusterdata, cluster-trace-v2026-spot-gpu);
# beyond 16 nodes gathered into a few sizes.
SIZES = {2: 335, 3: 117, 4: 134, 5: 43, 6: 45, 7: 40, 8: 63, 9: 16, 10: 14, 11: 12, 12: 12, 13: 9, 14: 7, 15: 14,
         16: 22, 24: 35, 32: 40, 64: 30, 128: 12}
RDMA = 0.8
NOW_MS = 10_000_000
HOUR_MS = 3_600_000


def run(lab: Lab) -> list[Row]:
    worlds = {nodes: busy_fleet(nodes, Random(7)) for nodes in FLEETS}
    decisions: dict[int, list[float]] = {nodes: [] for nodes in FLEETS}
    reasons: dict[int, list[float]] = {nodes: [] for nodes in FLEETS}
    placed: dict[int, int] = {}
    for number in range(lab.rounds + 1):  # the first one, which fills what a fleet keeps, is not counted
        for nodes, world in worlds.items():
            gc.collect()
            gc.disable()  # as the loop does: a collection would look at all that a big fleet is made of
            started_s = time.process_time()
            made = decide(world, Policy(), NOW_MS)
            decided_s = time.process_time()
            made.plan()
            gc.enable()
            if number:
                decisions[nodes].append((decided_s - started_s) * 1000)
                reasons[nodes].append((time.process_time() - decided_s) * 1000)
            placed[nodes] = len(made.placements)
    return [row for nodes, most in FLEETS.items() for row in (
        Row(what=f"planning pass, {nodes:,} nodes, {PENDING:,} pending, {placed[nodes]:,} placed (processor time)",
            ours=tuple(decisions[nodes]), unit="ms", most=most),
        Row(what=f"  a reason for every wait of that pass, {nodes:,} nodes", ours=tuple(reasons[nodes]), unit="ms"))]


def busy_fleet(count: int, rng: Random) -> Snapshot:
    """Gangs of mixed sizes hold most of the fleet, each as near together as it found room; others wait."""
    nodes = [_node(index) for index in range(count)]
    running = list(_running(nodes, rng))
    pools: dict[str, list[NodeState]] = {}
    for node in nodes:
        pools.setdefault(node.pool, []).append(node)
    return Snapshot.of(
        version=1, nodes=nodes, running=running, pending=(_pending(index, rng) for index in range(PENDING)),
        pools=[PoolState(name=name, gpu=mine[0].gpu, zone=mine[0].zone, fabric=mine[0].fabric, rdma=True,
                         nodes=len(mine), most=len(mine), boot_ms=60_000) for name, mine in pools.items()])


def _node(index: int) -> NodeState:
    leaf = index // LEAF
    spine = leaf // LEAVES
    fabric = spine // SPINES
    gpu = GpuAsk(TYPES[fabric % len(TYPES)], 8)
    return NodeState(name=f"n{index:06}", pool=f"p{fabric}", gpu=gpu, zone=f"z{fabric // 4}", fabric=f"f{fabric}",
                     path=(f"s{spine}", f"l{leaf}"), free_gpus=tuple(range(gpu.count)))


def _running(nodes: list[NodeState], rng: Random) -> Iterator[RunningGang]:
    free = [True] * len(nodes)
    left = int(len(nodes) * BUSY)
    number = 0
    while left > 0:
        first = rng.randrange(len(nodes))
        rows = [row for row in range(first, min(first + _size(rng), len(nodes))) if free[row]][:left]
        if rows:
            for row in rows:
                free[row] = False
            left -= len(rows)
            number += 1
            yield RunningGang(
                gang=f"r{number}", name=f"r{number}", slot=f"run/r{number}", tenant="t", priority=0, since_ms=0,
                holds=tuple(Held(node=nodes[row].name, gpus=tuple(range(8))) for row in rows),
                ends_by_ms=NOW_MS + rng.randint(1, 10 * HOUR_MS))


def _size(rng: Random) -> int:
    return rng.choices(list(SIZES), list(SIZES.values()))[0]


def _pending(index: int, rng: Random) -> PendingGang:
    need = RoleNeed(name="", size=_size(rng), asks=(GpuAsk(rng.choice(TYPES), 8),))
    return PendingGang(gang=f"g{index:04}", name=f"g{index}", slot=f"run/g{index}", tenant="t", priority=0,
                       submitted_ms=index, since_ms=NOW_MS - index, roles=(need,), rdma=rng.random() < RDMA,
                       limit_ms=rng.choice((None, HOUR_MS // 6, HOUR_MS)))
