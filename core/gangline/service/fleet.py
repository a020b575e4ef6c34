"""The inventory follows the fleet file; pools grow by provisioned nodes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from gangline.model.fleet import DeclaredNode, Fleet, NodeCondition, Pool
from gangline.model.inventory import FleetChanges
from gangline.model.states import NodeLifecycle
from gangline.service.backoff import Backoff
from gangline.service.inventory import (
    DROPPED,
    FILE_OWNER,
    Records,
    by_person,
    described,
    drained,
    give_back,
    leave,
    scratch,
)
from gangline.service.scaling import bounded, limited, scale
from gangline.service.sizes import grow, settle
from gangline.service.tending import Tending, tend
from gangline.store import Node, Store, Transaction

__all__ = ["FILE_OWNER", "Backoff", "Tending", "provision", "retire", "scale", "sync_fleet", "tend"]


def sync_fleet(store: Store, fleet: Fleet, *, now_ms: int, dry_run: bool = False) -> FleetChanges:
    """Makes the inventory agree with the file, which owns what nodes are; drains of persons stay.

    A node the file names no longer leaves if it is idle; a busy one takes no new work and leaves as soon
    as it is idle (`tend`). Of a pool that was asked for a size, what it gave back for that stays away.
    """
    with scratch(store, dry_run) as tx:
        sync = _Sync(tx, fleet, now_ms, {node.name: node for node in tx.nodes.all()}, tx.leases.busy())
        sync.run()
    return FleetChanges(added=tuple(sync.added), changed=tuple(sync.changed), leaving=tuple(sync.leaving),
                        gone=tuple(sync.gone), dry_run=dry_run)


def provision(store: Store, pool: Pool, count: int, *, now_ms: int,
              backoff: Backoff | None = None) -> tuple[str, ...]:
    """Adds up to `count` booting nodes to a pool, never past its most nor past the size asked for; the
    names of the new ones. A pool whose nodes did not come is not asked again before its back-off ends.
    """
    if backoff is not None and backoff.holds(pool.name, now_ms):
        return ()
    with store.transaction() as tx:
        return grow(tx, limited(tx, pool), count, now_ms)


def retire(tx: Transaction, names: Iterable[str], now_ms: int) -> tuple[str, ...]:
    """Gives idle nodes back; the names of those that left. What the fleet file declares stays, and so does
    what somebody has leased or drained meanwhile."""
    left = []
    for node in tx.nodes.some(tuple(names)).values():
        if node.origin == "made" and node.usable and not tx.leases.open_on(node.name):
            give_back(tx, node, now_ms)
            left.append(node.name)
    return tuple(left)


def _seen(node: Node, pool: Pool) -> bool:
    """The node is its engine's: that one says whether it is there."""
    return pool.hosted and node.engine == pool.engine and node.origin != "dropped"


@dataclass(slots=True)
class _Sync:
    """One comparison of a file with the inventory."""

    tx: Transaction
    fleet: Fleet
    now_ms: int
    known: Mapping[str, Node]
    busy: Mapping[str, object]
    records: Records = field(init=False)
    wanted: dict[str, int] = field(init=False)
    added: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    leaving: list[str] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)

    def run(self) -> None:
        self.records = Records(self.tx, self.now_ms)
        self.wanted = self.tx.pools.wanted()
        pools = {pool.name: pool for pool in self.fleet.pools}
        declared = {node.name: node for node in self.fleet.all_nodes()}
        for node in declared.values():
            self._follow(node, pools[node.pool])
        for known in self.known.values():
            pool = pools.get(known.pool)
            stays = known.name in declared or (pool is not None and (known.origin == "made" or _seen(known, pool)))
            if not stays and known.lifecycle is not NodeLifecycle.GONE:
                self._remove(known)
            elif known.origin == "retired" and not stays:  # no pool may ask for it again
                self.tx.nodes.gone(known.name, origin="dropped")
        self.records.write()
        for name, wanted in self.wanted.items():
            if name not in pools:
                self.tx.pools.want(name, None, self.now_ms)
            else:
                settled = settle(self.tx, bounded(self.fleet, pools[name]), wanted, self.now_ms)
                self.added += settled.added
                self.gone += settled.gone
                self.leaving += settled.leaving

    def _follow(self, declared: DeclaredNode, pool: Pool) -> None:
        known = self.known.get(declared.name)
        away = known is None or known.lifecycle is NodeLifecycle.GONE
        if declared.state is NodeCondition.GONE:
            if known is not None and not away:
                self._remove(known)
        elif known is not None and away and known.origin == "retired" and pool.name in self.wanted:
            if (node := described(known, declared, pool)) != known:
                self.records.changed.append(node)
        elif known is None or away:
            self._put(declared, pool)
        else:
            self._describe(known, declared, pool)

    def _put(self, declared: DeclaredNode, pool: Pool) -> None:
        self.records.put(declared, pool, "file", self.known.get(declared.name))
        self.added.append(declared.name)

    def _describe(self, known: Node, declared: DeclaredNode, pool: Pool) -> None:
        if pool.hosted:
            declared = declared.model_copy(update={"path": declared.path or known.path})
        node = described(known, declared, pool)
        if known.name in self.busy:  # what a gang was promised stays as it is until it has left
            node = replace(node, gpu_type=known.gpu_type, gpu_count=known.gpu_count, emulated=known.emulated)
        node = drained(replace(node, origin="file"), declared)
        if node != known:
            self.records.changed.append(node)
            self.changed.append(node.name)

    def _remove(self, node: Node) -> None:
        if node.name not in self.busy:
            leave(self.tx, node, self.now_ms)
            self.gone.append(node.name)
        elif node.origin != "dropped" or node.drain_owner is None:
            node = replace(node, origin="dropped")
            if not by_person(node):
                node = replace(node, drain_owner=FILE_OWNER, drain_reason=DROPPED)
            self.records.changed.append(node)
            self.tx.events.add("node.drained", self.now_ms, node=node.name, owner=FILE_OWNER)
            self.leaving.append(node.name)
