"""The inventory follows what engines see: nodes of other systems come, go, and are taken by others."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from gangline.engines.base import TAG, NodeStatus, SeenNode
from gangline.fabric.products import gpu_type
from gangline.model.fleet import Pool
from gangline.model.gpu import CPU
from gangline.model.states import NodeLifecycle
from gangline.store import Node, Store, Transaction

BROKEN = (NodeStatus.DOWN, NodeStatus.UNKNOWN)
MOST_AT_ONCE = 200  # nodes written in one transaction: others must not wait long for their turn

_log = logging.getLogger(__name__)


def follow(store: Store, pools: Collection[Pool], seen: Collection[SeenNode], before: Mapping[str, SeenNode], *,
           now_ms: int) -> dict[str, SeenNode]:
    """Makes the inventory of these pools agree with what their engine sees now; what it then agrees with, by name.

    Only what differs from `before`, what the last call returned, is looked at. What the engine does not know
    any more leaves when it is idle; a node with a gang on it is unhealthy until then. An engine's drain is
    the engine's: it comes and goes with what is seen, and a person's stays.
    """
    by_pool = {pool.name: pool for pool in pools}
    now = {node.name: node for node in seen if node.pool in by_pool}
    changed = [name for name, node in now.items() if before.get(name) != node]
    lost = [name for name in before if name not in now]
    put_off: set[str] = set()
    if not before:
        with store.transaction() as tx:
            known = {node.name for pool in by_pool for node in tx.nodes.present(pool)}
        lost = sorted(known - now.keys())
    for start in range(0, len(changed), MOST_AT_ONCE):
        with store.transaction() as tx:
            put_off |= _take(tx, by_pool, [now[name] for name in changed[start:start + MOST_AT_ONCE]], now_ms)
    if lost:
        with store.transaction() as tx:
            put_off |= _miss(tx, lost, now_ms)
    # What a gang kept as it was is looked at again: as if it had been seen otherwise before.
    return {**{name: node for name, node in now.items() if name not in put_off},
            **{name: before[name] for name in put_off & before.keys() - now.keys()}}


def _take(tx: Transaction, pools: Mapping[str, Pool], seen: Iterable[SeenNode], now_ms: int) -> set[str]:
    """The names of those that stay as they were, in part, until a gang has left."""
    seen = list(seen)
    known = tx.nodes.some([node.name for node in seen])
    busy = tx.leases.busy(known)
    ordinal = tx.nodes.next_ordinal()
    added: list[Node] = []
    changed: list[Node] = []
    for node in seen:
        pool, old = pools[node.pool], known.get(node.name)
        if old is not None and old.pool != node.pool and old.lifecycle is not NodeLifecycle.GONE:
            _log.warning("node %s of pool %s is in pool %s already", node.name, node.pool, old.pool)
        elif not _fits(node, pool):
            if old is not None and old.lifecycle is not NodeLifecycle.GONE and old.healthy:
                text = f"it has {node.gpu_type or 'GPU'}:{node.gpu_count} now, not {pool.gpu}"
                changed.append(replace(old, healthy=False, engine_text=text))
            _log.warning("node %s has %s:%d, and pool %s is of %s", node.name, node.gpu_type or "GPU",
                         node.gpu_count, pool.name, pool.gpu)
        elif old is None:
            added.append(_as_seen(_new(node, pool, ordinal + len(added), now_ms), node, pool, now_ms))
        elif (new := _as_seen(old, node, pool, now_ms, busy=node.name in busy)) != old:
            changed.append(new)
    tx.nodes.add_all(added)
    tx.nodes.replace_all(changed)
    for new in (*added, *changed):
        _tell(tx, known.get(new.name), new, now_ms)
    return {node.name for node in seen if node.name in busy}


def _fits(seen: SeenNode, pool: Pool) -> bool:
    """What the engine says of its GPUs agrees with the pool's; an engine may say nothing of their type."""
    if seen.gpu_count < 1 or pool.ask.type == CPU:
        return pool.ask.type == CPU
    return not seen.gpu_type or gpu_type(seen.gpu_type.upper()) == pool.ask.type.upper()


def _new(seen: SeenNode, pool: Pool, ordinal: int, now_ms: int) -> Node:
    return Node(name=seen.name, ordinal=ordinal, pool=pool.name, engine=pool.engine, host=seen.name,
                gpu_type=pool.ask.type, gpu_count=pool.ask.count, zone=pool.zone, fabric=pool.fabric, path=seen.path,
                address=seen.address, emulated=False, origin="seen", lifecycle=NodeLifecycle.GONE, idle_ms=now_ms,
                price_nano_per_gpu_hour=pool.price_nano_per_gpu_hour, currency=pool.currency)


def _as_seen(node: Node, seen: SeenNode, pool: Pool, now_ms: int, *, busy: bool = False) -> Node:
    """The node as its engine sees it. What a gang was promised stays as it is until that has left."""
    booting = node.lifecycle is NodeLifecycle.BOOTING
    lifecycle, origin, boot_done_ms = NodeLifecycle.READY, node.origin, None
    if seen.status is NodeStatus.BOOTING or (booting and seen.status is not NodeStatus.READY):
        lifecycle = NodeLifecycle.BOOTING
        boot_done_ms = node.boot_done_ms if booting else now_ms + round(pool.boot * 1000)
    elif seen.status is NodeStatus.ASLEEP and not busy:
        lifecycle, origin = NodeLifecycle.GONE, "retired"
    elif node.origin in ("retired", "made", "dropped"):
        origin = "seen"
    drain_owner, drain_reason = _drain(node, seen, pool)
    count = node.gpu_count if busy or pool.ask.type == CPU else seen.gpu_count
    return replace(
        node, pool=pool.name, engine=pool.engine, gpu_type=node.gpu_type if busy else pool.ask.type, gpu_count=count,
        zone=seen.zone or pool.zone, fabric=seen.fabric or pool.fabric, path=seen.path or node.path,
        domain=seen.domain or node.domain, address=seen.address or node.address, lifecycle=lifecycle, origin=origin,
        boot_done_ms=boot_done_ms, healthy=seen.status not in BROKEN, drain_owner=drain_owner,
        drain_reason=drain_reason, foreign_gpus=min(seen.foreign_gpus, count), foreign_jobs=seen.foreign[:8],
        engine_text=seen.text, price_nano_per_gpu_hour=pool.price_nano_per_gpu_hour, currency=pool.currency)


def _drain(node: Node, seen: SeenNode, pool: Pool) -> tuple[str | None, str]:
    theirs = seen.status is NodeStatus.DRAINED and not seen.text.startswith(TAG)  # ours come back to us
    if node.drain_owner not in (None, pool.engine):
        return node.drain_owner, node.drain_reason
    if theirs:
        return pool.engine, seen.text
    return (None, "") if node.drain_owner == pool.engine else (node.drain_owner, node.drain_reason)


def _miss(tx: Transaction, names: Collection[str], now_ms: int) -> set[str]:
    """The engine knows these nodes no more. Those that are being made are not known yet. The names of those that
    a gang still holds."""
    known = tx.nodes.some(names)
    busy = tx.leases.busy(names)
    for node in known.values():
        if node.lifecycle is not NodeLifecycle.READY:
            continue
        if node.name not in busy:
            tx.nodes.gone(node.name)
            tx.events.add("node.gone", now_ms, node=node.name, pool=node.pool)
        elif node.healthy:
            text = f"{node.engine} does not know it any more"
            tx.nodes.replace(replace(node, healthy=False, engine_text=text))
            tx.events.add("node.lost", now_ms, node=node.name, text=text, swept=False)
    return {*busy}


def _tell(tx: Transaction, old: Node | None, new: Node, now_ms: int) -> None:
    """The events that people look for in a node's life."""
    if new.lifecycle is NodeLifecycle.GONE:
        return
    if old is None or old.lifecycle is not new.lifecycle:
        if new.lifecycle is NodeLifecycle.READY:
            tx.events.add("node.joined", now_ms, node=new.name, pool=new.pool)
    elif old.healthy and not new.healthy:
        tx.events.add("node.lost", now_ms, node=new.name, text=new.engine_text, swept=False)
    elif new.healthy and not old.healthy:
        tx.events.add("node.joined", now_ms, node=new.name, pool=new.pool)
    if old is not None and old.drain_owner != new.drain_owner:
        kind = "node.undrained" if new.drain_owner is None else "node.drained"
        tx.events.add(kind, now_ms, node=new.name, owner=new.drain_owner or old.drain_owner, reason=new.drain_reason)
