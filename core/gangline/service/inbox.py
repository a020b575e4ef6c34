"""What a node's report does to the attempt it is about. Repeated, late and foreign ones do nothing."""

from __future__ import annotations

from dataclasses import dataclass

from gangline.model.errors import Rejected
from gangline.model.gang import End
from gangline.model.orders import (
    Advanced,
    Damaged,
    Empty,
    RankExit,
    Ready,
    Refused,
    Report,
    Started,
)
from gangline.model.states import LIVE, Cause, GangState, Phase
from gangline.service import life, resume
from gangline.store import Attempt, Gang, Member, Transaction


@dataclass(frozen=True, slots=True)
class _Case:
    """A report's surroundings, read afresh for each report."""

    gang: Gang
    attempt: Attempt
    member: Member
    now_ms: int


def apply(tx: Transaction, node: str, report: Report, now_ms: int) -> bool:
    """Whether the report had an effect. Only the current attempt and generation are listened to."""
    gang = tx.gangs.find(report.gang)
    if gang is None or gang.state not in LIVE:
        return False
    if (report.attempt, report.generation) != (gang.attempt, gang.generation):
        return False
    member = tx.attempts.member_on(gang.id, gang.attempt, node)
    if member is None or member.empty_ms is not None:
        return False
    case = _Case(gang, tx.attempts.get(gang.id, gang.attempt), member, now_ms)
    match report:
        case Ready():
            return _ready(tx, case)
        case Started():
            return _started(tx, case)
        case Damaged():
            return _damaged(tx, case, report)
        case RankExit():
            return _rank_exit(tx, case, report)
        case Refused():
            return _refused(tx, case, report)
        case Empty():
            return _empty(tx, case)
        case Advanced():
            tx.gangs.advance(gang.id, report.progress)
            return True


def _ready(tx: Transaction, case: _Case) -> bool:
    if case.attempt.phase is not Phase.ASSEMBLING or case.member.ready_ms is not None:
        return False
    tx.attempts.ready(case.member, case.now_ms)
    tx.events.add("attempt.ready", case.now_ms, gang=case.gang.id, attempt=case.attempt.number,
                  node=case.member.node)
    if tx.attempts.unready(case.gang.id, case.attempt.number) == 0:
        life.enter(tx, case.gang, case.attempt, Phase.STARTING, case.now_ms)
        tx.gangs.move(case.gang, GangState.STARTING, case.now_ms)
        tx.events.add("gang.starting", case.now_ms, gang=case.gang.id, attempt=case.attempt.number)
    return True


def _started(tx: Transaction, case: _Case) -> bool:
    if case.attempt.phase is not Phase.STARTING or case.member.started_ms is not None:
        return False
    tx.attempts.started(case.member, case.now_ms)
    if tx.attempts.unstarted(case.gang.id, case.attempt.number) == 0:
        life.enter(tx, case.gang, case.attempt, Phase.RUNNING, case.now_ms)
        tx.gangs.move(case.gang, GangState.RUNNING, case.now_ms)
        tx.events.add("gang.running", case.now_ms, gang=case.gang.id, attempt=case.attempt.number)
    return True


def _damaged(tx: Transaction, case: _Case, report: Damaged) -> bool:
    used = {(chosen.volume, chosen.version) for chosen in case.attempt.resume}
    if case.attempt.phase is not Phase.ASSEMBLING or (report.volume, report.version) not in used:
        return False
    tx.versions.damage(report.volume, report.version, report.text)
    tx.events.add("version.damaged", case.now_ms, gang=case.gang.id, volume=report.volume,
                  version=report.version, text=report.text, node=case.member.node)
    try:
        versions = resume.choose(tx, case.gang)
    except Rejected as exc:
        life.decide_end(tx, case.gang, End(cause=Cause.USER, text=str(exc)), case.now_ms)
        return True
    tx.attempts.reissue(case.attempt, versions, case.now_ms)
    tx.gangs.issue(case.gang.id, case.attempt.number, case.gang.generation + 1)
    return True


def _rank_exit(tx: Transaction, case: _Case, report: RankExit) -> bool:
    rank = tx.attempts.rank(case.gang.id, case.attempt.number, report.rank)
    if rank is None or rank.node_rank != case.member.node_rank or rank.state == "exited":
        return False
    tx.attempts.exited(report)
    tx.events.add("rank.exited", case.now_ms, gang=case.gang.id, attempt=case.attempt.number,
                  rank=report.rank, node=case.member.node, cause=report.cause,
                  exit_code=report.exit_code, signal=report.signal)
    if report.cause is not Cause.SUCCESS:
        life.decide_end(tx, case.gang, _end(case.member, report), case.now_ms)
    elif tx.attempts.unfinished_ranks(case.gang.id, case.attempt.number) == 0:
        life.ranks_done(tx, case.gang, case.now_ms)
    return True


def _end(member: Member, report: RankExit) -> End:
    how = f"was killed by {report.signal}" if report.signal else f"exited with code {report.exit_code}"
    return End(cause=report.cause, text=report.text or f"rank {report.rank} on {member.node} {how}",
               rank=report.rank, node=None if report.peer else member.node, exit_code=report.exit_code,
               signal=report.signal, last_lines=report.last_lines)


def _refused(tx: Transaction, case: _Case, report: Refused) -> bool:
    if case.attempt.end is not None:
        return False
    life.decide_end(tx, case.gang, End(cause=report.cause, text=report.text, node=case.member.node),
                    case.now_ms)
    return True


def _empty(tx: Transaction, case: _Case) -> bool:
    tx.attempts.empty(case.member, case.now_ms)
    ended = case.attempt.phase in (Phase.DRAINING, Phase.COMMITTING)
    if ended:
        life.settle(tx, case.gang.id, case.now_ms)
    elif tx.attempts.unfinished_ranks(case.gang.id, case.attempt.number, case.member.node_rank):
        # Nobody told it to stop: whatever emptied the node, its ranks are not there any more.
        text = f"node {case.member.node} has no process of the attempt left"
        life.decide_end(tx, case.gang, End(cause=Cause.LOST, text=text, node=case.member.node), case.now_ms)
    return True
