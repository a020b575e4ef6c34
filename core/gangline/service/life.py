"""The life of an attempt: how its phases follow each other, how it ends, and what then becomes of the gang.

Every function works inside the caller's transaction and leaves the gang whole: its leases are all
open or all closed, its events tell what happened.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from gangline.model.gang import End
from gangline.model.spec import Retries
from gangline.model.states import LIVE, Cause, GangState, Phase
from gangline.service import strikes
from gangline.store import Attempt, Gang, Lease, Transaction

FREE_LAUNCHES = 5  # new attempts after causes that are not the user's nor a machine's


def enter(tx: Transaction, gang: Gang, attempt: Attempt, phase: Phase, now_ms: int) -> None:
    """The attempt and all its leases are in another phase from now on."""
    tx.attempts.enter(attempt, phase, now_ms)
    tx.leases.enter(tx.leases.open_of(gang.id), attempt.number, phase, now_ms)


def decide_end(tx: Transaction, gang: Gang, end: End, now_ms: int, *, grace_ms: int = 0) -> None:
    """The first reason to end an attempt is the one that counts; its nodes stop from now on."""
    attempt = tx.attempts.get(gang.id, gang.attempt)
    if attempt.end is not None:
        return
    tx.attempts.decide(attempt, end, grace_ms, now_ms)
    tx.leases.enter(tx.leases.open_of(gang.id), attempt.number, Phase.DRAINING, now_ms)
    settle(tx, gang.id, now_ms)


def ranks_done(tx: Transaction, gang: Gang, now_ms: int) -> None:
    """Every rank ended well: commits are what is left. A save that can never be whole ends the attempt."""
    attempt = tx.attempts.get(gang.id, gang.attempt)
    if attempt.end is not None or attempt.phase not in (Phase.STARTING, Phase.RUNNING):
        return
    stuck = [save for save in tx.saves.unfinished(gang.id, attempt.number) if save.state == "open"]
    if stuck:
        missing = attempt.world_size - len(tx.saves.ranks(stuck[0].id))
        text = (f"every rank ended, but {missing} of {attempt.world_size} never reported "
                f"their part of save {stuck[0].key} in {stuck[0].volume}")
        decide_end(tx, gang, End(cause=Cause.COMMIT, text=text), now_ms)
        return
    enter(tx, gang, attempt, Phase.COMMITTING, now_ms)
    tx.gangs.move(gang, GangState.COMMITTING, now_ms)
    tx.events.add("gang.committing", now_ms, gang=gang.id, attempt=attempt.number)
    settle(tx, gang.id, now_ms)


def settle(tx: Transaction, gang_id: str, now_ms: int) -> None:
    """Ends the attempt once nothing of it is left, and decides whether there is another one."""
    gang = tx.gangs.get(gang_id)
    if gang.state not in LIVE:
        return
    attempt = tx.attempts.get(gang.id, gang.attempt)
    if attempt.phase not in (Phase.DRAINING, Phase.COMMITTING):
        return
    if tx.attempts.unempty(gang.id, attempt.number):
        return
    saves = tx.saves.unfinished(gang.id, attempt.number)
    if any(save.state == "whole" for save in saves):
        return
    for save in saves:
        tx.saves.fail(save, "the attempt ended before every rank had saved")
    end = attempt.end or End(cause=Cause.SUCCESS, text="every rank ended well")
    _close(tx, gang, attempt, end, now_ms)
    _follow(tx, tx.gangs.get(gang.id), end, now_ms)


def _close(tx: Transaction, gang: Gang, attempt: Attempt, end: End, now_ms: int) -> None:
    tx.attempts.close(attempt, end, now_ms)
    tx.ports.free(gang.id, attempt.number)
    ran_ms = 0
    if attempt.running_ms is not None:
        ran_ms = max(0, (attempt.stopped_ms or now_ms) - attempt.running_ms)
    bad = {member.node for member in tx.attempts.members(gang.id, attempt.number) if member.lost}
    if end.cause is Cause.HARDWARE and end.node is not None:
        bad.add(end.node)
    tx.gangs.end_attempt(gang, ran_ms, bad)
    strikes.blame(tx, gang, end, attempt.stopped_ms or now_ms)
    tx.events.add("attempt.ended", now_ms, gang=gang.id, attempt=attempt.number, cause=end.cause,
                  text=end.text, rank=end.rank, node=end.node)


def _follow(tx: Transaction, gang: Gang, end: End, now_ms: int) -> None:
    if gang.cancel_cause is not None:
        state = GangState.FAILED if gang.cancel_cause is Cause.TIMEOUT else GangState.CANCELLED
        finish(tx, gang, state, End(cause=gang.cancel_cause, text=gang.cancel_text or ""), now_ms)
    elif end.cause is Cause.SUCCESS:
        finish(tx, gang, GangState.SUCCEEDED, end, now_ms)
    elif allows_retry(gang.spec.retries, tx.attempts.causes(gang.id), end.cause):
        _requeue(tx, gang, end, now_ms)
    else:
        finish(tx, gang, GangState.FAILED, end, now_ms)


def allows_retry(retries: Retries, ended: Counter[Cause], cause: Cause) -> bool:
    """Whether the budget of a cause has room, the attempt that just ended being counted in `ended`."""
    most, sharing = _budget(retries, cause)
    return most == -1 or sum(ended[each] for each in sharing) <= most


def _budget(retries: Retries, cause: Cause) -> tuple[int, tuple[Cause, ...]]:
    """How many new attempts a cause is worth, and the causes that draw on the same budget."""
    match cause:
        case Cause.USER | Cause.OOM:
            return retries.user, (Cause.USER, Cause.OOM)
        case Cause.LOST | Cause.COMMIT:
            return retries.lost, (Cause.LOST, Cause.COMMIT)
        case Cause.HARDWARE:
            return retries.hardware, (cause,)
        case Cause.PREEMPTED:
            return retries.preempted, (cause,)
        case Cause.LAUNCH:
            return FREE_LAUNCHES, (cause,)
        case Cause.RESIZED:
            return -1, (cause,)
        case Cause.TIMEOUT | Cause.CANCELLED | Cause.ORPHANED | Cause.SUCCESS:
            return 0, (cause,)


def _requeue(tx: Transaction, gang: Gang, end: End, now_ms: int) -> None:
    leases = tx.leases.open_of(gang.id)
    nodes = tx.nodes.some({lease.node for lease in leases})
    gone = {*gang.avoid, *tx.attempts.get(gang.id, gang.attempt).give_up}
    kept = [] if end.cause is Cause.PREEMPTED else [
        lease for lease in leases if nodes[lease.node].usable and lease.node not in gone]
    close_leases(tx, [lease for lease in leases if lease not in kept], now_ms)
    # Until the next plan, the time a kept node waits is the doing of the attempt that failed.
    tx.leases.enter(kept, gang.attempt, Phase.ASSEMBLING, now_ms)
    tx.gangs.move(gang, GangState.QUEUED, now_ms)
    tx.events.add("gang.queued", now_ms, gang=gang.id, after=gang.attempt, cause=end.cause,
                  kept=[lease.node for lease in kept])


def ask_to_end(tx: Transaction, gang: Gang, cause: Cause, text: str, now_ms: int, *, grace_ms: int) -> bool:
    """Ends a gang that nothing has ended yet, for one of the causes that are never retried.

    False when there is nothing to do: it is final, was asked before, or every rank has already
    ended well, so that only its own end is left to record.
    """
    if gang.state.final or gang.cancel_cause is not None:
        return False
    if gang.state is GangState.COMMITTING and tx.attempts.get(gang.id, gang.attempt).end is None:
        return False
    tx.gangs.ask_to_end(gang.id, cause, text)
    tx.events.add("cancel.requested", now_ms, gang=gang.id, cause=cause, reason=text)
    end = End(cause=cause, text=text)
    if gang.state is GangState.QUEUED:
        finish(tx, tx.gangs.get(gang.id), GangState.CANCELLED, end, now_ms)
    else:
        decide_end(tx, tx.gangs.get(gang.id), end, now_ms, grace_ms=grace_ms)
    return True


def preempt(tx: Transaction, gang: Gang, for_gangs: Sequence[str], now_ms: int, *, reclaim: bool = False) -> bool:
    """Ends the attempt of a gang so that others can start, with the grace of its spec.

    It gives back all it holds, waits again in the place its submission gave it, and goes on from its
    newest version. False when there is nothing to end: it holds no nodes, is ending already, or every
    rank has ended well.
    """
    attempt = _to_interrupt(tx, gang)
    if attempt is None:
        return False
    text = f"made room for {_named(tx, for_gangs)}" + (", whose tenant had lent the GPUs" if reclaim else "")
    tx.gangs.preempted(gang.id, now_ms)
    tx.events.add("preempt.requested", now_ms, gang=gang.id, attempt=attempt.number, by=list(for_gangs), text=text,
                  grace_ms=gang.grace_ms)
    decide_end(tx, gang, End(cause=Cause.PREEMPTED, text=text), now_ms, grace_ms=gang.grace_ms)
    return True


def resize(tx: Transaction, gang: Gang, size: int, give_up: Sequence[str], now_ms: int, *,
           for_gangs: Sequence[str] = ()) -> bool:
    """Ends the attempt of an elastic gang, with the grace of its spec, so that it goes on with `size` nodes.

    It gives back the nodes in `give_up` and keeps the others for its next attempt; no retry is spent.
    False when there is nothing to end, as for `preempt`, or when what it has does not become that size
    by giving up those nodes.
    """
    attempt = _to_interrupt(tx, gang)
    if attempt is None:
        return False
    has = {member.node for member in tx.attempts.members(gang.id, attempt.number)}
    fits = size > len(has) if not give_up else {*give_up} < has and size == len(has) - len({*give_up})
    if not fits or not gang.spec.nodes <= size <= gang.spec.most:
        return False
    text = f"goes on with {size} nodes instead of {len(has)}" + (
        f", to make room for {_named(tx, for_gangs)}" if for_gangs else "") + "; this costs no retry"
    tx.gangs.resized(gang.id, now_ms)
    tx.attempts.resize(attempt, size, give_up)
    tx.events.add("resize.requested", now_ms, gang=gang.id, attempt=attempt.number, size=size, before=len(has),
                  nodes=sorted(give_up), by=list(for_gangs), text=text, grace_ms=gang.grace_ms)
    decide_end(tx, gang, End(cause=Cause.RESIZED, text=text), now_ms, grace_ms=gang.grace_ms)
    return True


def _to_interrupt(tx: Transaction, gang: Gang) -> Attempt | None:
    """The attempt of a gang that nothing has ended yet."""
    if gang.state not in LIVE or gang.state is GangState.COMMITTING:
        return None
    attempt = tx.attempts.get(gang.id, gang.attempt)
    return attempt if attempt.end is None else None


def _named(tx: Transaction, gangs: Sequence[str]) -> str:
    """Gangs for a person who asks why: the first in full, the others counted."""
    first = tx.gangs.find(gangs[0]) if gangs else None
    if first is None:
        return "others"
    more = f" and {len(gangs) - 1} more" if len(gangs) > 1 else ""
    return f"{first.name} (tenant {first.tenant}, slot {first.slot}){more}"


def finish(tx: Transaction, gang: Gang, state: GangState, end: End, now_ms: int) -> None:
    """The gang is final: what it still holds is given back in the same transaction."""
    close_leases(tx, tx.leases.open_of(gang.id), now_ms)
    tx.gangs.finish(gang, state, end, now_ms)
    tx.events.add(f"gang.{state}", now_ms, gang=gang.id, cause=end.cause, text=end.text)


def close_leases(tx: Transaction, leases: Sequence[Lease], now_ms: int) -> None:
    """Frees the GPUs of leases that have no process left."""
    tx.leases.close(leases, now_ms)
    for lease in leases:
        tx.events.add("lease.closed", now_ms, gang=lease.gang, lease=lease.id, node=lease.node)
