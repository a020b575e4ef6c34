"""Ensure, watch, cancel: who may act for a slot, and for which gang in it.

A slot is one step of one run of a pipeline. At most one gang holds it; a gang that was asked to end
holds it no longer, so that the next one may already queue behind it.
"""

from __future__ import annotations

import hashlib
import hmac
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gangline.model.errors import Conflict, Rejected, Superseded
from gangline.model.gang import Ensured, GangView, Submission, Watched
from gangline.model.spec import GangSpec, OnOrphan
from gangline.model.states import Cause, GangState
from gangline.service import life, resume, views
from gangline.store import Gang, Store, Transaction

UNOWNED_SLOTS = "cli/"  # slots of commands given by hand: nobody is expected to stay and watch
WATCH_WRITE_MS = 10_000  # a lease is written anew at most this often
Refusal = Callable[[GangSpec], Rejected | None]


def ensure_many(store: Store, submissions: Sequence[Submission], *, now_ms: int, new_id: Callable[[], str],
                new_token: Callable[[], str], refusal: Refusal = lambda spec: None) -> list[Ensured]:
    """The gang of each submission's slot, made where there is none; all of them or, on an error, none.

    `refusal` tells why the fleet can never run a spec, or None; it is asked outside the transaction, and
    heard only where a new gang would be made.

    Raises Rejected for a spec that cannot be honoured, Conflict for an older epoch or for other work
    in a slot that is held.
    """
    for slot, count in Counter(s.slot for s in submissions).items():
        if count > 1:
            raise Rejected(f"slot {slot} is asked for {count} times", field="slot", fix="name each slot once")
    for submission in submissions:
        submission.spec.refuse_unsupported()
    never = [refusal(submission.spec) for submission in submissions]
    with store.transaction() as tx:
        newest = tx.gangs.newest_in_each([submission.slot for submission in submissions])
        made: list[Gang] = []
        ensured = [_ensure(tx, submission, newest.get(submission.slot), reason, made,
                           _Now(now_ms, new_id, new_token()))
                   for submission, reason in zip(submissions, never, strict=True)]
        tx.gangs.add(made)
        return ensured


def watch(store: Store, gang: str, token: str, cursor: int, *, now_ms: int) -> Watched:
    """The gang and its events after `cursor`, for its owner, whose lease this renews.

    Raises Superseded when another owner acts for the gang now, NotFound for an unknown one.
    """
    with store.transaction() as tx:
        known = tx.gangs.get(gang)
        if not _owns(known, token):
            raise Superseded(f"another owner acts for gang {gang} now", fix="stop watching; it goes on")
        if not known.state.final and now_ms - known.watched_ms >= _write_after_ms(known):
            tx.gangs.renew(gang, now_ms)
        events = tx.events.after(cursor, gang)
        return Watched(view=views.view(tx, known, now_ms, store.reasons), events=events,
                       cursor=events[-1].seq if events else cursor)


def cancel(store: Store, gang: str, token: str | None, reason: str, *, now_ms: int) -> GangView:
    """Asks a gang to end, with the spec's grace. Without a token it is a person, who is always heard.

    A token that is not the owner's (any more) changes nothing.
    """
    with store.transaction() as tx:
        known = views.resolve(tx, gang)
        if token is None or _owns(known, token):
            life.ask_to_end(tx, known, Cause.CANCELLED, reason or "cancelled", now_ms,
                            grace_ms=known.grace_ms)
        return views.view(tx, tx.gangs.get(known.id), now_ms, store.reasons)


def cancel_some(store: Store, gangs: Sequence[str], reason: str, *, now_ms: int) -> None:
    """Asks each of the gangs to end, as a person does; those that have ended are left alone."""
    with store.transaction() as tx:
        for gang in tx.gangs.some(gangs).values():
            life.ask_to_end(tx, gang, Cause.CANCELLED, reason, now_ms, grace_ms=gang.grace_ms)


def cancel_slot(store: Store, slot: str, epoch: int, reason: str, *, now_ms: int) -> list[str]:
    """Asks every gang of the slot up to that epoch to end; the ids of those this call reached."""
    with store.transaction() as tx:
        return [gang.id for gang in tx.gangs.unfinished(slot)
                if gang.epoch <= epoch and life.ask_to_end(
                    tx, gang, Cause.CANCELLED, reason or "cancelled", now_ms, grace_ms=gang.grace_ms)]


@dataclass(frozen=True, slots=True)
class _Now:
    """What an ensured gang gets from outside."""

    ms: int
    new_id: Callable[[], str]
    token: str


def _ensure(tx: Transaction, submission: Submission, newest: Gang | None, never: Rejected | None, made: list[Gang],
            now: _Now) -> Ensured:
    """The slot's gang, or a new one, which goes into `made`."""
    if newest is not None:
        if submission.epoch < newest.epoch:
            raise Conflict(f"slot {submission.slot} is at epoch {newest.epoch} (gang {newest.id}), "
                           f"past epoch {submission.epoch}", fix="a newer run of this step has taken over")
        if submission.epoch == newest.epoch and _same(newest, submission):
            tx.gangs.new_owner(newest, _hash(now.token), now.ms)
            tx.events.add("owner.changed", now.ms, gang=newest.id, owner=newest.owner + 1)
            return Ensured(gang=newest.id, token=now.token, created=False, state=newest.state)
    if never is not None:
        raise never
    if newest is not None and submission.epoch > newest.epoch:
        _supersede(tx, newest, submission.epoch, now.ms)
    gang = _new_gang(tx, submission, newest, now.new_id(), now.token, now.ms)
    made.append(gang)
    for mount in submission.spec.volumes.values():
        tx.versions.ensure_volume(mount.volume, now.ms)
    tx.events.add("gang.submitted", now.ms, gang=gang.id, slot=gang.slot, epoch=gang.epoch, name=gang.name,
                  tenant=gang.tenant, previous=gang.previous)
    return Ensured(gang=gang.id, token=now.token, created=True, state=GangState.QUEUED)


def _same(newest: Gang, submission: Submission) -> bool:
    """The slot's gang is the one asked for; Conflict when it is other work that is still going on."""
    same = newest.digest == submission.digest()
    if newest.active and not same:
        raise Conflict(
            f"slot {newest.slot} runs gang {newest.id} with digest {newest.digest[:12]}, "
            f"not {submission.digest()[:12]}", field="digest",
            fix="cancel that gang, or ask with a newer epoch to replace it")
    return same and (newest.active or newest.state is GangState.SUCCEEDED)


def _supersede(tx: Transaction, old: Gang, epoch: int, now_ms: int) -> None:
    """The old owner is deposed and the old gang ends; it keeps its nodes until it is down."""
    if old.state.final:
        return
    tx.gangs.new_owner(old, _hash(""), now_ms)
    life.ask_to_end(tx, old, Cause.CANCELLED, f"superseded by epoch {epoch}", now_ms, grace_ms=old.grace_ms)
    tx.gangs.leave_slot(old.id)


def _new_gang(tx: Transaction, submission: Submission, newest: Gang | None, gang: str, token: str,
              now_ms: int) -> Gang:
    spec = submission.spec
    return Gang(
        id=gang, seq=tx.gangs.next_seq(), name=spec.name, slot=submission.slot, epoch=submission.epoch,
        tenant=spec.tenant, state=GangState.QUEUED, active=True, spec=spec, digest=submission.digest(),
        snapshot=submission.snapshot, interpreter=submission.interpreter, pinned=resume.pin(tx, spec),
        submitted_ms=now_ms, changed_ms=now_ms, previous=newest.id if newest else None,
        token_hash=_hash(token), watched_ms=now_ms, orphan_after_ms=_orphan_after_ms(submission),
        timeout_ms=None if spec.timeout is None else round(spec.timeout * 1000))


def on_orphan(spec: GangSpec, slot: str) -> OnOrphan:
    """What becomes of a gang nobody watches: unless the spec says, only a pipeline's step is ended."""
    if spec.on_orphan is not None:
        return spec.on_orphan
    return OnOrphan.KEEP if slot.startswith(UNOWNED_SLOTS) else OnOrphan.CHECKPOINT_AND_CANCEL


def _orphan_after_ms(submission: Submission) -> int | None:
    if on_orphan(submission.spec, submission.slot) is OnOrphan.KEEP:
        return None
    return round(submission.spec.orphan_after * 1000)


def _write_after_ms(gang: Gang) -> int:
    return min(WATCH_WRITE_MS, (gang.orphan_after_ms or WATCH_WRITE_MS) // 10)


def _owns(gang: Gang, token: str) -> bool:
    return bool(token) and hmac.compare_digest(gang.token_hash, _hash(token))


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
