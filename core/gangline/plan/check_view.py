"""A snapshot and a plan by name, as a checker reads them: of the fleet it looks at what the plan names only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gangline.plan.outcome import Plan, WaitCode
from gangline.plan.snapshot import Held, NodeState, PendingGang, PoolState, RunningGang, Snapshot, TenantState


class View:
    """Nodes, pools, gangs and tenants of a snapshot by name, and who waits by the plan."""

    def __init__(self, snapshot: Snapshot, plan: Plan) -> None:
        self.waits = plan.waits()
        self.passed_over = {gang for waiting in plan.waiting if waiting.code is WaitCode.ORDER
                            for gang in waiting.gangs}
        self.version = snapshot.version
        self.fleet, self.map = snapshot.fleet, snapshot.fleet.map
        self.pools: dict[str, PoolState] = {p.name: p for p in snapshot.pools}
        self.gangs: Mapping[str, PendingGang] = snapshot.queue.by_id
        self.running: dict[str, RunningGang] = {r.gang: r for r in snapshot.running}
        self.tenants: dict[str, TenantState] = {t.name: t for t in snapshot.tenants}
        self.held: dict[str, dict[str, frozenset[int]]] = {
            g.gang: {h.node: frozenset(h.gpus) for h in g.held} for g in snapshot.queue.repairing()}
        self._nodes: dict[str, NodeState] = {}

    def has(self, node: str) -> bool:
        """Whether a node of that name is there."""
        row = self.map.row.get(node)
        return row is not None and not self.map.virtual[row]

    def node(self, name: str) -> NodeState:
        """The node as it is now; KeyError when it is not there."""
        found = self._nodes.get(name)
        if found is None:
            found = self._nodes[name] = self.fleet.node(self.map.row[name])
        return found

    def subtree(self, node: str, level: int) -> int:
        """The number of the node's subtree of a level."""
        return int(self.map.ids[level][self.map.row[node]])

    def gpus_of(self, holds: Iterable[Held]) -> list[tuple[str, int]]:
        """(type, GPUs) of leases on nodes that are there."""
        return [(self.map.values[self.map.row[held.node]].gpu.type, len(held.gpus)) for held in holds
                if self.has(held.node)]
