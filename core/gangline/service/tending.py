"""What becomes due among nodes by itself: leaving, booting that failed, and sizes that were asked for."""

from __future__ import annotations

from dataclasses import dataclass, field

from gangline.model.fleet import Fleet
from gangline.model.states import NodeLifecycle
from gangline.service.backoff import Backoff
from gangline.service.inventory import FILE_OWNER, SCALE_OWNER, give_back, leave
from gangline.service.scaling import keep_sizes
from gangline.store import Node, Store, Transaction

LEAST_GRACE_MS = 60_000  # a boot may take as long again as was said, and at least so much longer


@dataclass(slots=True)
class Tending:
    """What one server remembers between passes."""

    backoff: Backoff = field(default_factory=Backoff)
    booting: dict[str, str] = field(default_factory=dict)  # node: pool, as the last pass found them


def tend(store: Store, fleet: Fleet, memory: Tending, *, now_ms: int) -> int | None:
    """Does what is due, in one transaction that reads two small lists when nothing is; when more is due.

    Nodes that are to leave go as soon as no lease holds them. A node that boots longer than its pool
    says, by as much again and at least a minute, has failed: it is gone, and its pool is not asked again
    for a while (`Backoff`). Pools that were asked for a size are brought nearer to it.
    """
    failed: set[str] = set()
    with store.transaction() as tx:
        unsettled = tx.nodes.unsettled(SCALE_OWNER)
        booting = [node for node in unsettled if node.lifecycle is NodeLifecycle.BOOTING]
        late = [node for node in booting if _deadline_ms(node, fleet) <= now_ms]
        for node in unsettled:
            if not tx.leases.open_on(node.name):
                _go(tx, node, now_ms, late=node in late)
                failed.update([node.pool] if node in late else ())
            elif node.origin == "dropped" and node.drain_owner is None:  # a person has lifted a drain of theirs
                tx.nodes.drain(node.name, FILE_OWNER, "no longer in the fleet file")
        came = [pool for name, pool in memory.booting.items() if _came(tx, name, booting)]
        for pool in came:
            memory.backoff.came(pool)
        for pool in failed:
            memory.backoff.failed(pool, now_ms)
        for pool in memory.backoff.ended(now_ms):
            tx.nodes.stir(pool)
        keep_sizes(tx, fleet, memory.backoff, now_ms)
    memory.booting = {node.name: node.pool for node in booting if node not in late}
    again_ms = memory.backoff.next_ms()
    dues = [_deadline_ms(node, fleet) for node in booting if node not in late]
    return min(dues if again_ms is None else [*dues, again_ms], default=None)


def _go(tx: Transaction, node: Node, now_ms: int, *, late: bool) -> None:
    if late:
        tx.nodes.gone(node.name)
        tx.events.add("capacity.failed", now_ms, pool=node.pool, node=node.name,
                      text=f"node {node.name} did not come up in time")
    elif node.origin == "dropped":
        leave(tx, node, now_ms)
    elif node.drain_owner == SCALE_OWNER:
        give_back(tx, node, now_ms)


def _came(tx: Transaction, name: str, booting: list[Node]) -> bool:
    """A node that booted at the last pass is up now."""
    if any(node.name == name for node in booting):
        return False
    node = tx.nodes.find(name)
    return node is not None and node.lifecycle is NodeLifecycle.READY


def _deadline_ms(node: Node, fleet: Fleet) -> int:
    boot_ms = next((round(pool.boot * 1000) for pool in fleet.pools if pool.name == node.pool), 0)
    return (node.boot_done_ms or 0) + max(boot_ms, LEAST_GRACE_MS)
