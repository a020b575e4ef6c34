"""What becomes due among nodes by itself: leaving, booting that failed, and sizes that were asked for."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, field

from gangline.model.fleet import Fleet
from gangline.model.states import NodeLifecycle
from gangline.service.backoff import Backoff
from gangline.service.inventory import DROPPED, FILE_OWNER, SCALE_OWNER, fail, give_back, leave, leaves
from gangline.service.scaling import keep_sizes
from gangline.store import Node, Store, Transaction

LEAST_GRACE_MS = 60_000  # a boot may take as long again as was said, and at least so much longer


@dataclass(slots=True)
class Tending:
    """What one server remembers between passes."""

    backoff: Backoff = field(default_factory=Backoff)
    booting: Set[str] = frozenset()  # as the last pass found them

    @property
    def settled(self) -> bool:
        """Nothing is awaited: while no node boots or is to leave either, and no size is asked for, `tend` has
        nothing to do."""
        return not self.booting and self.backoff.next_ms() is None


def tend(store: Store, fleet: Fleet, memory: Tending, *, now_ms: int) -> int | None:
    """Does what is due, in one transaction that reads two small lists when nothing is; when more is due.

    Nodes that are to leave go as soon as no lease holds them. A node that boots longer than its pool
    says, by as much again and at least a minute, has failed: it is gone, and its pool is not asked again
    for a while (`Backoff`). Pools that were asked for a size are brought nearer to it.
    """
    with store.transaction() as tx:
        unsettled = tx.nodes.unsettled(SCALE_OWNER)
        booting = {node.name: node for node in unsettled if node.lifecycle is NodeLifecycle.BOOTING}
        late = {name for name, node in booting.items() if _deadline_ms(node, fleet) <= now_ms}
        due = [node for node in unsettled if node.name in late or leaves(node)]
        busy = tx.leases.busy([node.name for node in due])
        for node in due:
            if node.name not in busy:
                _go(tx, node, now_ms, late=node.name in late)
            elif node.origin == "dropped" and node.drain_owner is None:  # a person has lifted a drain of theirs
                tx.nodes.drain(node.name, FILE_OWNER, DROPPED)
        for node in tx.nodes.some(memory.booting - booting.keys()).values():
            if node.lifecycle is NodeLifecycle.READY:
                memory.backoff.came(node.pool)
        for name in late:
            memory.backoff.failed(booting[name].pool, now_ms)
        for pool in memory.backoff.ended(now_ms):
            tx.nodes.stir(pool)
        keep_sizes(tx, fleet, memory.backoff, now_ms)
    memory.booting = booting.keys() - late
    again_ms = memory.backoff.next_ms()
    dues = [_deadline_ms(booting[name], fleet) for name in memory.booting]
    return min(dues if again_ms is None else [*dues, again_ms], default=None)


def _go(tx: Transaction, node: Node, now_ms: int, *, late: bool) -> None:
    if late:
        fail(tx, node, now_ms)
    elif node.origin == "dropped":
        leave(tx, node, now_ms)
    else:
        give_back(tx, node, now_ms)


def _deadline_ms(node: Node, fleet: Fleet) -> int:
    boot_ms = next((round(pool.boot * 1000) for pool in fleet.pools if pool.name == node.pool), 0)
    return (node.boot_done_ms or 0) + max(boot_ms, LEAST_GRACE_MS)
