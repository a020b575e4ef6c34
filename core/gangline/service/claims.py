"""Supervisors that come with a job: each may speak for one attempt on its node, and for nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from gangline.model.base import sha256_of
from gangline.model.errors import Conflict, NotFound, Rejected
from gangline.model.fleet import Fleet
from gangline.model.orders import Hello, Orders, Reports, Welcome
from gangline.model.states import LIVE
from gangline.service import inbox, tasks
from gangline.service.jobs import lease_s
from gangline.service.nodes import POLL_S
from gangline.store import Member, Store, Transaction

_OVER = Orders(digest=sha256_of([]))


@dataclass(frozen=True, slots=True)
class Claim:
    """What a node's token proves: that its bearer was started for this attempt."""

    gang: str
    attempt: int

    def covers(self, gang: str, attempt: int) -> None:
        """`Rejected` unless it is for that attempt."""
        if (gang, attempt) != (self.gang, self.attempt):
            raise Rejected(f"the token is for attempt {self.attempt} of {self.gang}, not for {gang}",
                           field="Authorization")


def hello(store: Store, greeting: Hello, claim: Claim, fleet: Fleet, *, now_ms: int) -> Welcome:
    """The job's supervisor on a node is there, at that address. With the last of them, the attempt assembles.

    Raises NotFound for a node that has no part in the attempt, Conflict when the attempt is over or another
    supervisor has spoken for its part already: an engine that starts a job twice must not run it twice.
    """
    claim.covers(greeting.gang or "", greeting.attempt or 0)
    with store.transaction() as tx:
        member = _member(tx, claim, greeting.node)
        if member is None:
            raise Conflict(f"attempt {claim.attempt} of {claim.gang} is over", fix="leave")
        if member.incarnation not in (None, greeting.incarnation):
            raise Conflict(f"another supervisor speaks for {greeting.node} in this attempt", fix="leave")
        if member.incarnation is None:
            tx.attempts.greeted(member, greeting.incarnation, greeting.address)
            tx.events.add("attempt.joined", now_ms, gang=claim.gang, attempt=claim.attempt, node=greeting.node,
                          address=greeting.address)
        attempt = tx.attempts.get(claim.gang, claim.attempt)
    store.seen_ms[greeting.node] = now_ms
    return Welcome(lease_s=lease_s(attempt, fleet.pools), poll_s=POLL_S)


def orders(store: Store, node: str, incarnation: str, claim: Claim, *, now_ms: int, volumes_root: Path) -> Orders:
    """What the supervisor should do for its attempt; nothing any more when that is over."""
    with store.transaction() as tx:
        member = _member(tx, claim, node)
        if member is not None:
            _same(member, incarnation)
        found = _OVER if member is None else tasks.orders_of(tx, (member,), volumes_root)
    store.seen_ms[node] = now_ms
    return found


def reports(store: Store, node: str, sent: Reports, claim: Claim, *, now_ms: int) -> int:
    """Applies the reports in their order; the number of those that had an effect."""
    for report in sent.reports:
        claim.covers(report.gang, report.attempt)
    with store.transaction() as tx:
        member = _member(tx, claim, node)
        if member is not None:
            _same(member, sent.incarnation)
        applied = sum(inbox.apply(tx, node, report, now_ms) for report in sent.reports)
    store.seen_ms[node] = now_ms
    return applied


def owns_code(store: Store, claim: Claim, sha256: str) -> bool:
    """Whether the attempt runs that code snapshot."""
    with store.transaction() as tx:
        gang = tx.gangs.find(claim.gang)
        return gang is not None and gang.snapshot == sha256


def _member(tx: Transaction, claim: Claim, node: str) -> Member | None:
    """The node's part in the attempt as long as that goes on there; NotFound when it never had one."""
    member = tx.attempts.member_on(claim.gang, claim.attempt, node)
    if member is None:
        raise NotFound(f"node {node} has no part in attempt {claim.attempt} of {claim.gang}")
    gang = tx.gangs.get(claim.gang)
    over = gang.attempt != claim.attempt or gang.state not in LIVE or member.empty_ms is not None
    return None if over else member


def _same(member: Member, incarnation: str) -> None:
    if member.incarnation != incarnation:
        raise Conflict(f"another supervisor speaks for {member.node} in this attempt", fix="leave")
