"""Records of nodes: made, revived, described anew, drained by the fleet itself, and gone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Literal

from gangline.model.fleet import DeclaredNode, NodeCondition, Pool
from gangline.model.states import NodeLifecycle
from gangline.store import Node, Store, Transaction

FILE_OWNER = "fleet"  # owns the drains that the fleet file asks for
SCALE_OWNER = "scale"  # owns the drains of nodes that leave because their pool is to be smaller
OWN = (FILE_OWNER, SCALE_OWNER)  # drains of all others are a person's, and nothing here lifts them

DROPPED = "no longer in the fleet file"

_DRAINING = (NodeCondition.DRAINING, NodeCondition.QUARANTINED)
_HOST = "localhost"
_ADDRESSES_PER_NET = 250


class _Undone(Exception):
    """Ends a transaction that was only to be looked at."""


@contextmanager
def scratch(store: Store, dry_run: bool) -> Iterator[Transaction]:
    """A transaction; with `dry_run` all it did is undone at the end."""
    try:
        with store.transaction() as tx:
            yield tx
            if dry_run:
                raise _Undone
    except _Undone:
        pass


@dataclass(slots=True)
class Records:
    """Records of nodes to write, all at once: a fleet may have thousands."""

    tx: Transaction
    now_ms: int
    added: list[Node] = field(default_factory=list)
    changed: list[Node] = field(default_factory=list)
    _ordinal: int = 0

    def put(self, declared: DeclaredNode, pool: Pool, origin: Literal["file", "made"], known: Node | None) -> None:
        """Adds a node, or revives one that had left; its address stays its own for good, and so does a
        person's drain."""
        node = _arrived(declared, pool, origin, self._next() if known is None else known.ordinal, self.now_ms)
        if known is None:
            self.added.append(node)
            return
        if by_person(known):
            node = replace(node, drain_owner=known.drain_owner, drain_reason=known.drain_reason)
        self.changed.append(replace(node, strikes=known.strikes))

    def write(self) -> None:
        """What was put is in the store."""
        self.tx.nodes.add_all(self.added)
        self.tx.nodes.replace_all(self.changed)
        self.added, self.changed = [], []

    def _next(self) -> int:
        self._ordinal = self._ordinal + 1 if self._ordinal else self.tx.nodes.next_ordinal()
        return self._ordinal


def leaves(node: Node) -> bool:
    """The node is to leave as soon as it is idle."""
    return node.origin == "dropped" or node.drain_owner == SCALE_OWNER


def unsettled(node: Node) -> bool:
    """The node boots or is to leave: something about it becomes due by itself."""
    return node.lifecycle is not NodeLifecycle.GONE and (node.lifecycle is NodeLifecycle.BOOTING or leaves(node))


def by_person(node: Node) -> bool:
    """A person has taken the node out of service, not the fleet itself."""
    return node.drain_owner not in (None, *OWN)


def _arrived(declared: DeclaredNode, pool: Pool, origin: Literal["file", "made"], ordinal: int, now_ms: int) -> Node:
    booting = declared.state is NodeCondition.BOOTING
    return drained(Node(
        name=declared.name, ordinal=ordinal, pool=pool.name, engine=pool.engine,
        host=declared.name if pool.hosted else _HOST, address="" if pool.hosted else _address(ordinal),
        gpu_type=pool.ask.type, gpu_count=pool.ask.count, zone=pool.zone, fabric=pool.fabric,
        path=declared.path, domain=declared.domain, emulated=pool.emulated, origin=origin,
        lifecycle=NodeLifecycle.BOOTING if booting else NodeLifecycle.READY,
        healthy=not pool.hosted or booting,  # its engine says so, when it is seen
        boot_done_ms=now_ms + round(pool.boot * 1000) if booting else None, idle_ms=now_ms,
        price_nano_per_gpu_hour=pool.price_nano_per_gpu_hour, currency=pool.currency), declared)


def described(node: Node, declared: DeclaredNode, pool: Pool) -> Node:
    """The node as the file describes it."""
    return replace(
        node, pool=pool.name, engine=pool.engine, gpu_type=pool.ask.type, gpu_count=pool.ask.count,
        zone=pool.zone, fabric=pool.fabric, path=declared.path, domain=declared.domain, emulated=pool.emulated,
        price_nano_per_gpu_hour=pool.price_nano_per_gpu_hour, currency=pool.currency)


def drained(node: Node, declared: DeclaredNode) -> Node:
    """The node with the file's own drain set or lifted."""
    if declared.state in _DRAINING and node.drain_owner is None:
        return replace(node, drain_owner=FILE_OWNER, drain_reason=f"{declared.state} in the fleet file")
    if declared.state not in _DRAINING and node.drain_owner == FILE_OWNER:
        return replace(node, drain_owner=None, drain_reason="")
    return node


def give_back(tx: Transaction, node: Node, now_ms: int) -> None:
    """An idle node is given back by its pool, which may ask for it again."""
    _away(tx, node)
    tx.events.add("node.retired", now_ms, node=node.name, pool=node.pool, idle_ms=max(0, now_ms - node.idle_ms))


def fail(tx: Transaction, node: Node, now_ms: int) -> None:
    """A node did not come up in time; its pool may ask for it again."""
    _away(tx, node)
    tx.events.add("capacity.failed", now_ms, pool=node.pool, node=node.name,
                  text=f"node {node.name} did not come up in time")


def leave(tx: Transaction, node: Node, now_ms: int) -> None:
    """An idle node leaves because the file names it no longer."""
    tx.nodes.gone(node.name, origin="dropped")
    tx.events.add("node.gone", now_ms, node=node.name, pool=node.pool)


def _away(tx: Transaction, node: Node) -> None:
    tx.nodes.gone(node.name, origin="retired" if node.origin == "file" else None)


def _address(ordinal: int) -> str:
    """A loopback address of its own: 127.0.0.2 for the first node, x.255 and x.0 left out."""
    net, host = divmod(ordinal - 1, _ADDRESSES_PER_NET)
    return f"127.{net >> 8}.{net & 255}.{host + 2}"
