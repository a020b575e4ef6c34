"""What the store and the fleet file say of nodes, pools, tenants and gangs, in the terms a pass plans in."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from gangline.model.engine import LOCAL
from gangline.model.spec import GangSpec
from gangline.model.states import NodeLifecycle, Phase
from gangline.plan.declared import policy_of, pool_state, tenant_state, within
from gangline.plan.snapshot import Held, NodeState, PendingGang, Promise, RunningGang
from gangline.store import Attempt, Gang, Lease, Node

__all__ = ["excluded", "held", "idle_ms", "node_facts", "pending", "policy_of", "pool_state", "running",
           "tenant_state", "usable_ms", "within"]

_NOTHING: frozenset[str] = frozenset()  # one for the many gangs that exclude nothing
_ASKED: dict[int, tuple[GangSpec, PendingGang]] = {}
_MOST_ASKED = 4_096


def node_facts(node: Node) -> NodeState:
    """What a node is: the part that only changes when the fleet does."""
    return NodeState(name=node.name, pool=node.pool, gpu=node.gpu, zone=node.zone, fabric=node.fabric,
                     path=node.path, domain=node.domain, emulated=node.emulated,
                     realm=node.pool if node.engine != LOCAL else "",
                     gone=node.lifecycle is NodeLifecycle.GONE)


def usable_ms(node: Node) -> int:
    """When a booting node is expected; 0 for every other, and for one that is drained."""
    if node.lifecycle is not NodeLifecycle.BOOTING or node.drain_owner is not None:
        return 0
    return max(1, node.boot_done_ms or 1)


def idle_ms(node: Node) -> int:
    """Since when it idles; 0 for what the fleet file declares, which is never given back."""
    return node.idle_ms if node.origin == "made" else 0


def held(leases: Iterable[Lease]) -> tuple[Held, ...]:
    return tuple(Held(node=lease.node, gpus=lease.gpus) for lease in leases)


def excluded(gang: Gang, nodes: Iterable[Node]) -> frozenset[str]:
    """Nodes a gang must not have: those its spec excludes, and those it avoids."""
    return (frozenset(gang.spec.placement.exclude) | _avoided(gang, nodes)) or _NOTHING


def _avoided(gang: Gang, nodes: Iterable[Node]) -> frozenset[str]:
    """Nodes whose hardware failed it; none of them when the fleet has no others, for that would be never.

    Nodes that boot do not count: they may never come.
    """
    if not gang.avoid:
        return frozenset()
    nodes = tuple(nodes)
    pools = {node.pool for node in nodes if node.name in gang.avoid}
    others = sum(node.pool in pools and node.name not in gang.avoid
                 and node.lifecycle is NodeLifecycle.READY for node in nodes)
    return frozenset(gang.avoid) if others >= gang.spec.nodes else frozenset()


def pending(gang: Gang, last: Attempt | None, holds: tuple[Held, ...], exclude: frozenset[str],
            likely_ms: int | None, promise: Promise | None = None) -> PendingGang:
    """A gang that waits, with what it kept of its last attempt.

    An elastic one goes on with the nodes it kept, and grows to the size it was told to have, if any.
    """
    asked = _asked(gang.spec)
    least = asked.nodes
    most = asked.most if last is None or last.want is None else max(least, min(last.want, asked.most))
    size = min(max(len(holds), least), most) if asked.most > least else least
    limit_ms = None if gang.timeout_ms is None else max(0, gang.timeout_ms - gang.ran_ms)
    return replace(
        asked, gang=gang.id, slot=gang.slot, submitted_ms=gang.submitted_ms, exclude=exclude, held=holds,
        roles=asked.roles if size == least else (replace(asked.roles[0], size=size),), limit_ms=limit_ms,
        likely_ms=likely_ms if limit_ms is None else None, since_ms=gang.changed_ms, most=most, promise=promise)


def _asked(spec: GangSpec) -> PendingGang:
    """What a spec asks for. Specs that read the same are one object, and a backlog has few of them."""
    known = _ASKED.get(id(spec))
    if known is None or known[0] is not spec:
        if len(_ASKED) >= _MOST_ASKED:
            _ASKED.clear()
        known = _ASKED[id(spec)] = spec, PendingGang.of(spec, spec.name)
    return known[1]


def running(gang: Gang, attempt: Attempt, holds: tuple[Held, ...], saved_ms: int | None,
            exclude: frozenset[str]) -> RunningGang:
    """A gang that holds nodes; when it ends is known from its limit, or from its grace once it was told to."""
    spec = gang.spec
    elastic = spec.most > spec.nodes
    ending = attempt.phase is Phase.DRAINING
    ends_by_ms = None
    if ending:
        ends_by_ms = (attempt.stopped_ms or attempt.started_ms) + attempt.grace_ms
    elif gang.timeout_ms is not None:
        ends_by_ms = (attempt.running_ms or attempt.started_ms) + max(0, gang.timeout_ms - gang.ran_ms)
    return RunningGang(
        gang=gang.id, name=gang.name, slot=gang.slot, tenant=gang.tenant, priority=spec.priority, holds=holds,
        since_ms=attempt.started_ms, ends_by_ms=ends_by_ms, ending=ending, saved_ms=saved_ms,
        # What has ended well only commits; ending that would gain nothing.
        preemptible=spec.retries.preempted != 0 and attempt.phase is not Phase.COMMITTING,
        least=spec.nodes if elastic else 0, most=spec.most if elastic else 0, preempted_ms=gang.preempted_ms,
        resized_ms=gang.resized_ms, grace_ms=gang.grace_ms,
        again=pending(gang, None, (), exclude, None) if elastic else None)


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
