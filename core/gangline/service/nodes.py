"""Nodes: their supervisors' hellos, orders and reports, their loss, and drains."""

from __future__ import annotations

from pathlib import Path

from gangline.model.errors import Conflict, Rejected
from gangline.model.gang import End
from gangline.model.node import NodeView
from gangline.model.orders import Hello, Orders, Reports, Welcome
from gangline.model.states import Cause, NodeLifecycle
from gangline.service import inbox, life, tasks, views
from gangline.service.inventory import FILE_OWNER, OWN, SCALE_OWNER
from gangline.store import Member, Node, Store, Transaction

LEASE_S = 300.0  # a supervisor that hears nothing for so long kills its ranks
POLL_S = 25.0


def hello(store: Store, greeting: Hello, *, now_ms: int) -> Welcome:
    """A supervisor takes over its node. What earlier ones ran there is gone: it has swept the node.

    Raises NotFound for a node the fleet does not have, Conflict for one that has left it.
    """
    with store.transaction() as tx:
        node = tx.nodes.get(greeting.node)
        if node.lifecycle is NodeLifecycle.GONE:
            raise Conflict(f"node {node.name} has left the fleet", fix="stop its supervisor")
        if node.incarnation != greeting.incarnation:
            tx.nodes.joined(node.name, greeting.incarnation)
            tx.events.add("node.joined", now_ms, node=node.name, incarnation=greeting.incarnation)
            for member in tx.attempts.busy_on(node.name):
                # Orders that no supervisor has seen yet are the new one's to carry out.
                if member.incarnation not in (None, greeting.incarnation):
                    _lose(tx, member, f"the supervisor of node {node.name} was replaced", now_ms, swept=True)
        elif not node.healthy:
            _recover(tx, node, now_ms)
    store.seen_ms[greeting.node] = now_ms
    return Welcome(lease_s=LEASE_S, poll_s=POLL_S)


def orders(store: Store, node: str, incarnation: str, *, now_ms: int, volumes_root: Path) -> Orders:
    """All that should run on the node now; Conflict for a supervisor that is not the current one."""
    with store.transaction() as tx:
        _check(tx, node, incarnation, now_ms)
        members = tx.attempts.busy_on(node)
        for member in members:
            if member.incarnation is None:
                tx.attempts.delivered(member, incarnation)
        found = tasks.orders_of(tx, members, volumes_root)
    store.seen_ms[node] = now_ms
    return found


def reports(store: Store, node: str, sent: Reports, *, now_ms: int) -> int:
    """Applies a node's reports in their order; the number of those that had an effect.

    Conflict for a supervisor that is not the current one.
    """
    with store.transaction() as tx:
        _check(tx, node, sent.incarnation, now_ms)
        applied = sum(inbox.apply(tx, node, report, now_ms) for report in sent.reports)
    store.seen_ms[node] = now_ms
    return applied


def node_lost(store: Store, node: str, text: str, *, now_ms: int, swept: bool = True) -> None:
    """The node's supervisor is dead or silent; every attempt on it ends.

    `swept` says that no process of it can be left. Without that its leases stay open, and its
    gangs wait, until a new supervisor says hello or the loss is reported again as swept.
    """
    with store.transaction() as tx:
        known = tx.nodes.get(node)
        if known.healthy or (swept and known.incarnation is not None):
            tx.nodes.lost(node, forget=swept)
            tx.events.add("node.lost", now_ms, node=node, text=text, swept=swept)
        for member in tx.attempts.busy_on(node):
            _lose(tx, member, text, now_ms, swept=swept)
        kept = [lease for lease in tx.leases.open_on(node) if _idle(tx, lease.gang)]
        life.close_leases(tx, kept, now_ms)


def drain(store: Store, node: str, owner: str, reason: str, *, now_ms: int) -> NodeView:
    """Takes the node out of service for new work; what runs there goes on.

    A drain of the fleet's own gives way to a person's. Conflict when another owner has drained it: that
    drain is theirs to lift. Rejected for an owner whose drains are the fleet's own.
    """
    _is_person(owner)
    with store.transaction() as tx:
        known = tx.nodes.get(node)
        if known.drain_owner not in OWN:
            _own(known, owner)
        if (known.drain_owner, known.drain_reason) != (owner, reason):
            tx.nodes.drain(node, owner, reason)
            tx.events.add("node.drained", now_ms, node=node, owner=owner, reason=reason)
        return views.one_node(tx, node, store.seen_ms.get(node))


def undrain(store: Store, node: str, owner: str, *, now_ms: int) -> NodeView:
    """Puts the node back into service; Conflict when the drain is another owner's."""
    _is_person(owner)
    with store.transaction() as tx:
        known = tx.nodes.get(node)
        _own(known, owner)
        if known.drain_owner is not None:
            tx.nodes.drain(node, None, "")
            tx.events.add("node.undrained", now_ms, node=node, owner=owner)
        return views.one_node(tx, node, store.seen_ms.get(node))


def _is_person(owner: str) -> None:
    if owner in OWN:
        raise Rejected(f"{owner!r} stands for the fleet's own drains", field="owner", fix="give another --owner")


def _own(node: Node, owner: str) -> None:
    if node.drain_owner not in (None, owner):
        fix = {FILE_OWNER: "change the fleet file, then: gangline fleet reload",
               SCALE_OWNER: f"run: gangline fleet scale {node.pool} N"}
        raise Conflict(f"node {node.name} was drained by {node.drain_owner}: {node.drain_reason}",
                       fix=fix.get(node.drain_owner or "", f"only {node.drain_owner} lifts that drain"))


def _check(tx: Transaction, name: str, incarnation: str, now_ms: int) -> None:
    node = tx.nodes.get(name)
    if node.incarnation != incarnation:
        raise Conflict(f"another supervisor serves node {name} now", fix="end every process and stop")
    if not node.healthy:
        _recover(tx, node, now_ms)


def _recover(tx: Transaction, node: Node, now_ms: int) -> None:
    tx.nodes.recovered(node.name)
    tx.events.add("node.joined", now_ms, node=node.name, incarnation=node.incarnation)


def _lose(tx: Transaction, member: Member, text: str, now_ms: int, *, swept: bool) -> None:
    """Ends the attempt of a member whose node is lost. One that has only its end to record is not harmed."""
    gang = tx.gangs.get(member.gang)
    done = tx.attempts.unfinished_ranks(member.gang, member.attempt) == 0
    if not done:
        tx.attempts.lost(member)
    if swept:
        tx.attempts.empty(member, now_ms)
    if not done:
        life.decide_end(tx, gang, End(cause=Cause.LOST, text=text, node=member.node), now_ms)
    life.settle(tx, gang.id, now_ms)


def _idle(tx: Transaction, gang: str) -> bool:
    """The gang is between attempts: a lease of it has nothing running."""
    known = tx.gangs.get(gang)
    return known.attempt > 0 and tx.attempts.get(gang, known.attempt).ended_ms is not None
