"""What the loop needs: a snapshot to plan from, a way to commit the plan, and the clock's own decisions."""

from __future__ import annotations

from collections.abc import Collection

from gangline.model.fleet import Fleet
from gangline.model.gang import End
from gangline.model.spec import OnOrphan
from gangline.model.states import Cause, Phase
from gangline.plan.snapshot import Snapshot
from gangline.service import life
from gangline.service.dues import (
    COMMIT_DEADLINE_MS,
    START_DEADLINE_MS,
    VERIFY_BYTES_PER_MS,
    Dues,
    orphaned_ms,
    start_deadline_ms,
    timeout_ms,
)
from gangline.service.picture import Picture
from gangline.service.placing import Committed, commit_plan
from gangline.service.submit import on_orphan
from gangline.store import Attempt, Gang, Store, Transaction

MOST_AT_ONCE = 8  # gangs looked at in one transaction: others must not wait long for their turn

__all__ = ["COMMIT_DEADLINE_MS", "START_DEADLINE_MS", "Committed", "commit_plan", "snapshot", "tick"]


def snapshot(store: Store, fleet: Fleet, *, now_ms: int) -> Snapshot:
    """Everything a plan may look at, as it is now: what a `Picture` made anew shows."""
    picture = Picture(store, fleet)
    picture.refresh()
    picture.close()
    return picture.snapshot(now_ms)


def tick(store: Store, *, now_ms: int, dues: Dues | None = None) -> int | None:
    """Does what is due by the clock: start deadlines, timeouts, gangs nobody watches, stuck commits.

    A spec's timeout is the time its ranks may run, all attempts together; waiting for nodes and
    starting do not count. Returns when the next thing is due, or None. With `dues`, only gangs that are
    due by them are looked at.
    """
    if dues is None:
        with store.transaction() as tx:
            return min(_tick(tx, [gang.id for gang in tx.gangs.unfinished()], now_ms).values(), default=None)
    due = dues.take(now_ms)
    try:
        for start in range(0, len(due), MOST_AT_ONCE):
            with store.transaction() as tx:
                again = _tick(tx, due[start:start + MOST_AT_ONCE], now_ms)
            for gang, due_ms in again.items():
                dues.put(gang, due_ms)
    except BaseException:
        for gang in due:  # looking once more at those that are done does no harm
            dues.put(gang, now_ms)
        raise
    return dues.next_ms()


def _tick(tx: Transaction, gangs: Collection[str], now_ms: int) -> dict[str, int]:
    """When each of the gangs is due again that nothing was done about."""
    found = tx.gangs.some(gangs)
    attempts = tx.attempts.newest([gang.id for gang in found.values() if gang.attempt and not gang.state.final])
    again = {}
    for gang in sorted(found.values(), key=lambda gang: gang.seq):
        attempt = attempts.get(gang.id)
        dues = [] if attempt is None or attempt.ended_ms is not None else [_due(tx, gang, attempt, now_ms)]
        orphaned = orphaned_ms(gang)
        if orphaned is not None and orphaned <= now_ms:
            _orphaned(tx, tx.gangs.get(gang.id), now_ms)
        else:
            dues.append(orphaned)
        if later := [due for due in dues if due is not None]:
            again[gang.id] = min(later)
    return again


def _due(tx: Transaction, gang: Gang, attempt: Attempt, now_ms: int) -> int | None:
    due_ms: int | None = None
    match attempt.phase:
        case Phase.ASSEMBLING | Phase.STARTING:
            due_ms = _start_by_ms(tx, attempt)
            if due_ms <= now_ms:
                text = _late(tx, attempt, now_ms)
                life.decide_end(tx, gang, End(cause=Cause.LAUNCH, text=text), now_ms)
        case Phase.RUNNING:
            due_ms = timeout_ms(gang, attempt)
            if due_ms is not None and due_ms <= now_ms:
                text = f"it ran for its timeout of {(gang.timeout_ms or 0) / 1000:g}s"
                life.ask_to_end(tx, gang, Cause.TIMEOUT, text, now_ms, grace_ms=gang.grace_ms)
        case Phase.COMMITTING | Phase.DRAINING:
            if any(save.state == "whole" for save in tx.saves.unfinished(gang.id, attempt.number)):
                due_ms = (attempt.stopped_ms or attempt.started_ms) + COMMIT_DEADLINE_MS
                if due_ms <= now_ms:
                    _give_up_commit(tx, gang, attempt, now_ms)
    return None if due_ms is None or due_ms <= now_ms else due_ms


def _start_by_ms(tx: Transaction, attempt: Attempt) -> int:
    """When it must run: every byte of the versions it resumes from is verified before that."""
    resumed = sum(tx.versions.get(chosen.volume, chosen.version).bytes for chosen in attempt.resume)
    return attempt.issued_ms + start_deadline_ms(attempt) + resumed // VERIFY_BYTES_PER_MS


def _late(tx: Transaction, attempt: Attempt, now_ms: int) -> str:
    starting = attempt.phase is Phase.STARTING
    late = [member.node for member in tx.attempts.members(attempt.gang, attempt.number)
            if (member.started_ms if starting else member.ready_ms) is None]
    what = "started" if starting else "ready"
    return (f"not running {(now_ms - attempt.issued_ms) // 1000}s after its orders: "
            f"{', '.join(late[:5])} {'is' if len(late) == 1 else 'are'} not {what}")


def _give_up_commit(tx: Transaction, gang: Gang, attempt: Attempt, now_ms: int) -> None:
    text = ""
    for save in tx.saves.unfinished(gang.id, attempt.number):
        text = save.error or f"save {save.key} in {save.volume} could not be published"
        tx.saves.fail(save, text)
    life.decide_end(tx, gang, End(cause=Cause.COMMIT, text=text), now_ms)
    life.settle(tx, gang.id, now_ms)


def _orphaned(tx: Transaction, gang: Gang, now_ms: int) -> None:
    policy = on_orphan(gang.spec, gang.slot)
    text = f"nobody has watched it for {gang.spec.orphan_after:g}s"
    life.ask_to_end(tx, gang, Cause.ORPHANED, text, now_ms,
                    grace_ms=0 if policy is OnOrphan.CANCEL else gang.grace_ms)
