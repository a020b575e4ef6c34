"""Tiny fleets, searched through: what can be placed is, as near together as can be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations, product

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from plan_worlds import NOW_MS, changed, random_world

from gangline.model.gpu import GpuAsk
from gangline.plan.planner import plan
from gangline.plan.policy import Policy
from gangline.plan.queue import rank
from gangline.plan.snapshot import NodeState, PendingGang, PoolState, Snapshot

PLAIN = Policy(fair=False, age_after_ms=None, preempt=False)
MOST_NODES = 6


def tiny(seed: int) -> Snapshot:
    """A world of a few nodes without quotas, spares and gangs in repair."""
    made = random_world(seed, repairs=False, most=MOST_NODES)
    kept = {node.name for node in made.nodes[:MOST_NODES]}
    return changed(made, tenants=(), nodes=made.nodes[:MOST_NODES],
                   running=[run for run in made.running if kept >= {held.node for held in run.holds}],
                   pools=[_pool_of(made, pool, kept) for pool in made.pools])


def _pool_of(made: Snapshot, pool: PoolState, kept: set[str]) -> PoolState:
    there = sum(node.pool == pool.name and node.name in kept for node in made.nodes)
    return replace(pool, nodes=there, most=there, spares=0)


class Oracle:
    """Every way to put a gang on nodes, in the words of the rules."""

    def __init__(self, snapshot: Snapshot, gang: PendingGang) -> None:
        self.snapshot, self.gang = snapshot, gang
        self.rdma = {pool.name for pool in snapshot.pools if pool.rdma}
        self.depth: dict[object, int] = {}
        for node in snapshot.nodes:
            self.depth[_network(node)] = max(2, len(node.path), self.depth.get(_network(node), 2))
        self.layers = max(self.depth.values(), default=2)

    def subtree(self, node: NodeState, level: int) -> object:
        """Levels are the domain, the layers of switches from the leaf up, fabric, zone, everything."""
        path = node.path or (node.name,)
        path = (*path, *[path[-1]] * (self.depth[_network(node)] - len(path)))
        if level == 0:
            return _network(node), path, node.domain
        if level <= self.layers or (level == self.layers + 1 and node.fabric is None):
            up = min(level, self.layers) - 1
            return _network(node), path[:max(1, len(path) - up)]
        return _network(node)[:3 - (level - self.layers - 1)]

    def widest(self) -> int:
        fabric = self.layers + 1
        within = {"leaf": 1, "spine": 2, "fabric": fabric, None: fabric + 2}[self.gang.within]
        return min(within, fabric) if self.gang.rdma else within

    def best(self) -> tuple[bool, tuple[GpuAsk, ...], int] | None:
        """(emulated, alternative of each role, level) of the first way there is; None when there is none."""
        for emulated in (False, True):
            for asks in product(*(role.asks for role in self.gang.roles)):
                levels = [self.level(nodes) for nodes in self.ways(emulated, asks)]
                levels = [level for level in levels if level <= self.widest()]
                if levels:
                    return emulated, asks, min(levels)
        return None

    def level(self, nodes: tuple[NodeState, ...]) -> int:
        return next(level for level in range(self.layers + 4)
                    if len({self.subtree(node, level) for node in nodes}) == 1)

    def ways(self, emulated: bool, asks: tuple[GpuAsk, ...]) -> Iterator[tuple[NodeState, ...]]:
        fits = [node for node in self.snapshot.nodes
                if node.emulated is emulated and node.usable and self._serves(node)]
        yield from (nodes for nodes in self._filled(fits, asks, 0) if self._in_blocks(nodes))

    def _filled(self, left: list[NodeState], asks: tuple[GpuAsk, ...], at: int) -> Iterator[tuple[NodeState, ...]]:
        if at == len(asks):
            yield ()
            return
        mine = [node for node in left if node.gpu.type == asks[at].type and node.gpu.count >= asks[at].count
                and (len(node.free_gpus) >= asks[at].count if self.gang.single else node.whole)]
        for chosen in combinations(mine, self.gang.roles[at].size):
            for rest in self._filled([node for node in left if node not in chosen], asks, at + 1):
                yield (*chosen, *rest)

    def _in_blocks(self, nodes: tuple[NodeState, ...]) -> bool:
        block = self.gang.domain_size
        domains = Counter(self.subtree(node, 0) for node in nodes)
        return block is None or all(count % block == 0 for count in domains.values())

    def _serves(self, node: NodeState) -> bool:
        gang = self.gang
        return (gang.zone in (None, node.zone) and gang.pool in (None, node.pool) and node.name not in gang.exclude
                and (not gang.rdma or (node.fabric is not None and node.pool in self.rdma))
                and (gang.domain_size is None or node.domain is not None))


def _network(node: NodeState) -> tuple[object, ...]:
    return node.emulated, node.zone, node.fabric or ""


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 2**40))
def test_the_first_gang_is_placed_if_it_can_be_and_in_the_smallest_subtree(seed: int) -> None:
    snapshot = tiny(seed)
    if not snapshot.pending:
        return
    head = min(snapshot.pending, key=rank)
    oracle = Oracle(snapshot, head)
    best = oracle.best()
    placed = next((p for p in plan(snapshot, PLAIN, NOW_MS).placements if p.gang == head.gang), None)
    assert (placed is None) == (best is None)
    if placed is None or best is None:
        return
    by_name = {node.name: node for node in snapshot.nodes}
    nodes = tuple(by_name[member.node] for member in placed.nodes[:head.nodes])
    asks = tuple({member.role: member.ask for member in placed.nodes}[role.name] for role in head.roles)
    assert (nodes[0].emulated, asks) == best[:2]
    if len(placed.nodes) == head.nodes and not head.single:
        assert oracle.level(nodes) == best[2]
