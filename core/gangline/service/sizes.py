"""Bringing a pool to a size: whole gangs are never cut, and what a person drained is left alone."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from gangline.model.fleet import DeclaredNode, NodeCondition, Pool
from gangline.model.states import NodeLifecycle
from gangline.plan.topology import growth_path
from gangline.service.inventory import SCALE_OWNER, Records, by_person, give_back
from gangline.store import Node, Transaction

Busy = Mapping[str, Mapping[int, str]]  # node: GPU: gang


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """Nodes by what became of them; how many are missing, and how many more there are than wanted."""

    added: tuple[str, ...] = ()
    back: tuple[str, ...] = ()
    leaving: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    missing: int = 0
    kept: int = 0


def settle(tx: Transaction, pool: Pool, wanted: int | None, now_ms: int, *, may_ask: bool = True) -> Settled:
    """Brings a pool nearer to a size; with None, only takes back the nodes that were to leave for one.

    Up: nodes that were to leave return, then others boot (unless the pool may not be asked). Down: idle
    nodes leave, those that boot and then the last in order first; of busy ones as few gangs as can be
    lose nodes, and those leave when their gangs have ended. Nodes the file dropped do not count.
    """
    counted = [node for node in tx.nodes.present(pool.name) if node.origin != "dropped"]
    to_leave = [node for node in counted if node.drain_owner == SCALE_OWNER]
    staying = [node for node in counted if node.drain_owner != SCALE_OWNER]
    lack = len(to_leave) if wanted is None else wanted - len(staying)
    if lack >= 0:
        back = to_leave[:lack]
        for node in back:
            tx.nodes.drain(node.name, None, "")
            tx.events.add("node.undrained", now_ms, node=node.name, owner=SCALE_OWNER)
        asked = 0 if wanted is None else lack - len(back)
        added = grow(tx, pool, asked, now_ms) if asked and may_ask else ()
        return Settled(added=added, back=_names(back), missing=asked - len(added))
    return _shrink(tx, staying, -lack, now_ms)


def bring_back(tx: Transaction, pool: Pool, names: Collection[str], now_ms: int) -> tuple[str, ...]:
    """Boots those of the named nodes that the pool gave back, never past its most."""
    given = [node for node in tx.nodes.some(names).values() if node.pool == pool.name and _given_back(node)]
    room = max(0, pool.most - len(tx.nodes.present(pool.name)))
    return _boot(tx, pool, [_again(node) for node in sorted(given, key=lambda node: node.ordinal)][:room],
                 {node.name: node for node in given}, now_ms)


def grow(tx: Transaction, pool: Pool, count: int, now_ms: int) -> tuple[str, ...]:
    """Adds up to `count` booting nodes, never past the pool's most: those it gave back, then new ones."""
    present = tx.nodes.present(pool.name)
    count = max(0, min(count, pool.most - len(present)))
    if not count:
        return ()
    every = tx.nodes.all()
    path = growth_path(pool.name, (node.path for node in present))  # as the plan supposed
    new = [_again(node) for node in every
           if node.pool == pool.name and _given_back(node) and not by_person(node)][:count]
    taken = {node.name for node in every if node.lifecycle is not NodeLifecycle.GONE or by_person(node)}
    taken.update(node.name for node in new)
    for _ in range(count - len(new)):
        new.append(DeclaredNode(name=_free_name(taken, pool.name), pool=pool.name, path=path,
                                state=NodeCondition.BOOTING))
    return _boot(tx, pool, new, {node.name: node for node in every}, now_ms)


def _boot(tx: Transaction, pool: Pool, new: Sequence[DeclaredNode], known: Mapping[str, Node],
          now_ms: int) -> tuple[str, ...]:
    if not new:
        return ()
    records = Records(tx, now_ms)
    for node in new:
        records.put(node, pool, "file" if node.name in known and _given_back(known[node.name]) else "made",
                    known.get(node.name))
    records.write()
    tx.events.add("capacity.requested", now_ms, pool=pool.name, nodes=[node.name for node in new])
    return tuple(node.name for node in new)


def _given_back(node: Node) -> bool:
    """A node of the file's that the pool did without; of others only the name is used again."""
    return node.lifecycle is NodeLifecycle.GONE and node.origin == "retired"


def _again(node: Node) -> DeclaredNode:
    return DeclaredNode(name=node.name, pool=node.pool, path=node.path, domain=node.domain,
                        state=NodeCondition.BOOTING)


def _shrink(tx: Transaction, staying: Sequence[Node], surplus: int, now_ms: int) -> Settled:
    busy = tx.leases.busy()
    free = [node for node in staying if node.drain_owner is None]
    idle = sorted((node for node in free if node.name not in busy), key=_idle_order)[:surplus]
    working = _by_gang([node for node in free if node.name in busy], busy)[:surplus - len(idle)]
    for node in idle:
        give_back(tx, node, now_ms)
    for node in working:
        tx.nodes.drain(node.name, SCALE_OWNER, "its pool is to be smaller")
        tx.events.add("node.drained", now_ms, node=node.name, owner=SCALE_OWNER)
    return Settled(gone=_names(idle), leaving=_names(working), kept=surplus - len(idle) - len(working))


def _idle_order(node: Node) -> tuple[bool, bool, int]:
    return node.lifecycle is not NodeLifecycle.BOOTING, node.healthy, -node.ordinal


def _by_gang(nodes: Sequence[Node], busy: Busy) -> list[Node]:
    """Busy nodes from the last, all of a gang's before those of the next, so that few gangs lose any."""
    last = sorted(nodes, key=lambda node: -node.ordinal)
    order: dict[tuple[str, ...], int] = {}
    for node in last:
        order.setdefault(_gangs_on(node, busy), len(order))
    return sorted(last, key=lambda node: order[_gangs_on(node, busy)])


def _gangs_on(node: Node, busy: Busy) -> tuple[str, ...]:
    return tuple(sorted(set(busy[node.name].values())))


def _free_name(taken: set[str], pool: str) -> str:
    """A name nobody has; a person's drain of a node that left is never met by a new machine."""
    number = 1
    while f"{pool}-{number}" in taken:
        number += 1
    taken.add(f"{pool}-{number}")
    return f"{pool}-{number}"


def _names(nodes: Sequence[Node]) -> tuple[str, ...]:
    return tuple(node.name for node in nodes)
