"""The inventory follows the fleet file; pools grow by provisioned nodes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from gangline.model.fleet import DeclaredNode, Fleet, NodeCondition, Pool
from gangline.model.states import NodeLifecycle
from gangline.store import Node, Store, Transaction

FILE_OWNER = "fleet"  # owns the drains that the fleet file asks for
_DRAINING = (NodeCondition.DRAINING, NodeCondition.QUARANTINED)
_HOST = "localhost"
_ADDRESSES_PER_NET = 250


def sync_fleet(store: Store, fleet: Fleet, *, now_ms: int) -> None:
    """Makes the inventory agree with the file, which owns what nodes are; drains of others stay.

    A node the file names no longer leaves if it is idle; a busy one takes no new work and leaves at the
    next sync that finds it idle.
    """
    with store.transaction() as tx:
        pools = {pool.name: pool for pool in fleet.pools}
        declared = {node.name: node for node in fleet.all_nodes()}
        for node in declared.values():
            _sync_node(tx, node, pools[node.pool], now_ms)
        for known in tx.nodes.all():
            stays = known.name in declared or (known.origin == "made" and known.pool in pools)
            if not stays and known.lifecycle is not NodeLifecycle.GONE:
                _remove(tx, known, now_ms)


def provision(store: Store, pool: Pool, count: int, *, now_ms: int) -> tuple[str, ...]:
    """Adds up to `count` booting nodes to a pool, never past its most; the names of the new ones."""
    with store.transaction() as tx:
        present = [node for node in tx.nodes.all()
                   if node.pool == pool.name and node.lifecycle is not NodeLifecycle.GONE]
        # What the plan supposed of a node to come: where it will hang is not known in a pool of many leaves.
        paths = {node.path for node in present} or {(f"{pool.name}-leaf",)}
        path = paths.pop() if len(paths) == 1 else ()
        names = []
        for _ in range(max(0, min(count, pool.most - len(present)))):
            node = DeclaredNode(name=_free_name(tx, pool.name), pool=pool.name, path=path,
                                state=NodeCondition.BOOTING)
            _put(tx, node, pool, "made", now_ms)
            names.append(node.name)
        if names:
            tx.events.add("capacity.requested", now_ms, pool=pool.name, nodes=names)
    return tuple(names)


def retire(tx: Transaction, names: Iterable[str], now_ms: int) -> tuple[str, ...]:
    """Gives idle nodes back; the names of those that left. What the fleet file declares stays, and so does
    what somebody has leased meanwhile."""
    left = []
    for node in tx.nodes.some(tuple(names)).values():
        if node.origin == "made" and node.lifecycle is NodeLifecycle.READY and not tx.leases.open_on(node.name):
            tx.nodes.gone(node.name)
            tx.events.add("node.retired", now_ms, node=node.name, pool=node.pool, idle_ms=now_ms - node.idle_ms)
            left.append(node.name)
    return tuple(left)


def _sync_node(tx: Transaction, declared: DeclaredNode, pool: Pool, now_ms: int) -> None:
    known = tx.nodes.find(declared.name)
    if declared.state is NodeCondition.GONE:
        if known is not None and known.lifecycle is not NodeLifecycle.GONE:
            _remove(tx, known, now_ms)
        return
    if known is None or known.lifecycle is NodeLifecycle.GONE:
        _put(tx, declared, pool, "file", now_ms)
        return
    node = _described(known, declared, pool)
    if tx.leases.open_on(known.name):  # what a gang was promised stays as it is until it has left
        node = replace(node, gpu_type=known.gpu_type, gpu_count=known.gpu_count, emulated=known.emulated)
    node = _drained(replace(node, origin="file"), declared)
    if node != known:
        tx.nodes.replace(node)


def _put(tx: Transaction, declared: DeclaredNode, pool: Pool, origin: str, now_ms: int) -> None:
    """Adds a node, or revives one that had left; its address stays its own for good."""
    known = tx.nodes.find(declared.name)
    booting = declared.state is NodeCondition.BOOTING
    ordinal = tx.nodes.next_ordinal() if known is None else known.ordinal
    node = _drained(_described(Node(
        name=declared.name, ordinal=ordinal, pool=pool.name, engine=pool.engine, host=_HOST,
        gpu_type=pool.ask.type, gpu_count=pool.ask.count, zone=pool.zone, fabric=pool.fabric,
        path=declared.path, domain=declared.domain, address=_address(ordinal), emulated=pool.emulated,
        origin="file" if origin == "file" else "made",
        lifecycle=NodeLifecycle.BOOTING if booting else NodeLifecycle.READY,
        boot_done_ms=now_ms + round(pool.boot * 1000) if booting else None, idle_ms=now_ms,
        price_nano_per_gpu_hour=pool.price_nano_per_gpu_hour, currency=pool.currency,
    ), declared, pool), declared)
    if known is None:
        tx.nodes.add(node)
    else:
        tx.nodes.replace(node)


def _described(node: Node, declared: DeclaredNode, pool: Pool) -> Node:
    return replace(
        node, pool=pool.name, engine=pool.engine, gpu_type=pool.ask.type, gpu_count=pool.ask.count,
        zone=pool.zone, fabric=pool.fabric, path=declared.path, domain=declared.domain, emulated=pool.emulated,
        price_nano_per_gpu_hour=pool.price_nano_per_gpu_hour, currency=pool.currency)


def _drained(node: Node, declared: DeclaredNode) -> Node:
    if declared.state in _DRAINING and node.drain_owner is None:
        return replace(node, drain_owner=FILE_OWNER, drain_reason=f"{declared.state} in the fleet file")
    if declared.state not in _DRAINING and node.drain_owner == FILE_OWNER:
        return replace(node, drain_owner=None, drain_reason="")
    return node


def _remove(tx: Transaction, node: Node, now_ms: int) -> None:
    if not tx.leases.open_on(node.name):
        _leave(tx, node, now_ms)
    elif node.drain_owner is None:
        tx.nodes.drain(node.name, FILE_OWNER, "no longer in the fleet file")
        tx.events.add("node.drained", now_ms, node=node.name, owner=FILE_OWNER)


def _leave(tx: Transaction, node: Node, now_ms: int) -> None:
    tx.nodes.gone(node.name)
    tx.events.add("node.gone", now_ms, node=node.name)


def _free_name(tx: Transaction, pool: str) -> str:
    taken = {node.name for node in tx.nodes.all() if node.lifecycle is not NodeLifecycle.GONE}
    number = 1
    while f"{pool}-{number}" in taken:
        number += 1
    return f"{pool}-{number}"


def _address(ordinal: int) -> str:
    """A loopback address of its own: 127.0.0.2 for the first node, x.255 and x.0 left out."""
    net, host = divmod(ordinal - 1, _ADDRESSES_PER_NET)
    return f"127.{net >> 8}.{net & 255}.{host + 2}"
