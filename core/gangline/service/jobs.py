"""Jobs of other systems: which there should be, and what becomes of an attempt when its job is over.

An attempt in a hosted pool is one job there, named after it. What should be done about the job follows from
the attempt's row and from what the engine shows; nothing is remembered in between, so a server that dies
between any two lines finds its way from the two.

| attempt                          | the engine shows                | then                                      |
|----------------------------------|---------------------------------|-------------------------------------------|
| goes on, job not recorded        | whatever                        | launch: asks for it, or finds it, by name |
| goes on, job recorded            | waiting, running                | nothing                                   |
| goes on, none of it came up yet  | waiting for a node others took  | retreat: the attempt ends, to try others  |
| goes on or ends, job recorded    | ended, or nothing               | nothing is left there: its end            |
| ends, part of it never came up   | waiting, running                | stop                                      |
| ends, and does not in its time   | waiting, running                | stop, without grace                       |
| ends, job not recorded           | whatever                        | stop by name; once gone: its end          |
| is over                          | waiting, running for too long   | stop                                      |
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import Enum

from gangline.engines.base import Job, JobNode, JobStatus, NodeStatus, SeenJob, SeenNode, job_name, parse_job_name
from gangline.model.fleet import Pool
from gangline.model.gang import End
from gangline.model.gpu import CPU
from gangline.model.spec import GangSpec
from gangline.model.states import Cause
from gangline.service import life
from gangline.service.nodes import LEASE_S
from gangline.service.sights import BROKEN
from gangline.store import Attempt, Gang, Member, Store

PATIENCE_MS = 30_000  # beyond the grace, for supervisors that were told to end their ranks
KILLS_MS = 10_000  # for a supervisor whose lease is over to end its ranks
LEAVES_MS = 30_000  # for supervisors whose attempt is over to leave
_LIMIT_SPARE_S = 900.0  # for what is not user code: starting, committing, a grace


class Act(Enum):
    """What to do about a job."""

    LAUNCH = "launch"
    KEEP = "keep"
    RETREAT = "retreat"
    STOP = "stop"
    BURY = "bury"  # nothing of it is left: its attempt ends


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """An attempt that is not over, and its members."""

    gang: Gang
    attempt: Attempt
    members: tuple[Member, ...]

    @property
    def left(self) -> tuple[Member, ...]:
        """The members with something left to end."""
        return tuple(member for member in self.members if member.empty_ms is None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What an engine showed of one job and of all nodes, by a look that began at `began_ms`."""

    job: SeenJob | None
    began_ms: int
    nodes: Mapping[str, SeenNode] = field(default_factory=dict)


def cases(store: Store, gangs: Collection[str] | None = None) -> dict[str, Case]:
    """The attempts in hosted pools that are not over: all, or those of some gangs."""
    with store.transaction() as tx:
        found = tx.attempts.hosted() if gangs is None else [
            attempt for attempt in tx.attempts.newest(gangs).values()
            if attempt.pool is not None and attempt.ended_ms is None]
        rows = tx.gangs.some([attempt.gang for attempt in found])
        return {attempt.gang: Case(gang=rows[attempt.gang], attempt=attempt,
                                   members=tx.attempts.members(attempt.gang, attempt.number)) for attempt in found}


def act_on(case: Case, shown: Shown | None, now_ms: int) -> Act:
    """What to do about an attempt's job; pure. `shown` is None while the engine has shown nothing yet."""
    attempt = case.attempt
    gone = _gone(attempt, shown)
    if attempt.end is None and attempt.job is None:
        return Act.LAUNCH
    if gone and case.left:
        return Act.BURY
    if attempt.end is None and attempt.stopped_ms is None:
        return Act.RETREAT if shown is not None and _in_vain(case, shown) else Act.KEEP
    since_ms = now_ms - (attempt.stopped_ms or attempt.started_ms)
    never_came = attempt.end is not None and any(member.incarnation is None for member in case.left)
    return Act.STOP if never_came or since_ms > attempt.grace_ms + PATIENCE_MS else Act.KEEP


def _in_vain(case: Case, shown: Shown) -> bool:
    """The job waits for a node that others have taken since the plan, or taken out of service."""
    waits = shown.job is not None and shown.job.status is JobStatus.WAITING
    late = case.attempt.launched_ms is not None and shown.began_ms > case.attempt.launched_ms
    came = any(member.incarnation is not None for member in case.members)
    return waits and late and not came and taken(case, shown.nodes) is not None


def taken(case: Case, nodes: Mapping[str, SeenNode]) -> str | None:
    """The first node of the attempt that cannot take its part now, and why, for people."""
    whole = case.gang.spec.most > 1
    for member in case.members:
        node = nodes.get(member.node)
        if node is None or node.status in (NodeStatus.BOOTING, NodeStatus.ASLEEP):
            continue
        room = node.gpu_count - node.foreign_gpus if member.gpu_type != CPU else len(member.gpus)
        if node.status is not NodeStatus.READY:
            return f"{member.node} is {node.status} ({node.text})" if node.text else f"{member.node} is {node.status}"
        if (whole and node.foreign_gpus) or room < len(member.gpus):
            return f"{member.node} was taken by {', '.join(node.foreign) or 'others'}"
    return None


def _gone(attempt: Attempt, shown: Shown | None) -> bool:
    """Nothing of the job is left. That it is not shown says so only of a look that began after it was asked for,
    or, for one that may never have been asked for, after its attempt was told to end."""
    if shown is None:
        return False
    if shown.job is not None:
        return shown.job.status is JobStatus.ENDED
    known_ms = attempt.stopped_ms if attempt.job is None else attempt.launched_ms
    return known_ms is not None and shown.began_ms > known_ms


def stray(jobs: Collection[SeenJob], fleet: str, known: Collection[str], over_ms: Mapping[str, int],
          now_ms: int) -> list[str]:
    """Jobs of this fleet whose attempt is over, or was never heard of, for longer than supervisors need to leave.

    `over_ms` is when a job was first seen without its attempt.
    """
    return [job.name for job in jobs
            if job.status is not JobStatus.ENDED and job.name not in known and is_ours(job.name, fleet)
            and now_ms - over_ms.get(job.name, now_ms) > LEAVES_MS]


def is_ours(name: str, fleet: str) -> bool:
    """Whether a server of that fleet made the job of that name."""
    parsed = parse_job_name(name)
    return parsed is not None and parsed[0] == fleet


def job_of(case: Case, fleet: str) -> Job:
    """The job that an attempt is."""
    gang, attempt = case.gang, case.attempt
    whole = gang.spec.most > 1
    return Job(
        name=job_name(fleet, gang.id, attempt.number), gang=gang.id, attempt=attempt.number, pool=attempt.pool or "",
        slot=gang.slot, tenant=gang.tenant, title=gang.name, limit_s=_limit_s(gang.spec, gang),
        nodes=tuple(JobNode(node=member.node, gpus=0 if member.gpu_type == CPU else len(member.gpus), whole=whole)
                    for member in case.members))


def _limit_s(spec: GangSpec, gang: Gang) -> float | None:
    """How long the engine should let it run: past the gang's own limit, so that Gangline ends it, with a reason."""
    if gang.timeout_ms is None:
        return None
    return max(0, gang.timeout_ms - gang.ran_ms) / 1000 + spec.grace + _LIMIT_SPARE_S


def launched(store: Store, case: Case, job: str, *, now_ms: int) -> None:
    """The engine has the attempt's job, by that id."""
    with store.transaction() as tx:
        tx.attempts.launched(case.attempt, job, now_ms)
        tx.events.add("job.launched", now_ms, gang=case.gang.id, attempt=case.attempt.number, job=job,
                      pool=case.attempt.pool)


def refused(store: Store, case: Case, text: str, *, now_ms: int) -> None:
    """The engine refuses the job: the attempt ends. Whether there is a job after all, asked for by a server that
    died before it noted it, is looked at before anything is given back."""
    with store.transaction() as tx:
        gang = tx.gangs.get(case.gang.id)
        attempt = tx.attempts.get(gang.id, case.attempt.number)
        if gang.attempt != attempt.number or attempt.ended_ms is not None:
            return
        life.decide_end(tx, gang, End(cause=Cause.LAUNCH, text=text), now_ms)


def retreat(store: Store, case: Case, why: str, *, now_ms: int) -> None:
    """The attempt ends before it began, and the gang keeps none of its nodes: it may be placed elsewhere, or wait."""
    with store.transaction() as tx:
        gang = tx.gangs.get(case.gang.id)
        if gang.attempt == case.attempt.number:
            tx.attempts.give_up(case.attempt, [member.node for member in case.members])
            life.decide_end(tx, gang, End(cause=Cause.LAUNCH, text=why), now_ms)


def told(store: Store, case: Case, text: str) -> None:
    """Keeps the engine's words on a job, for whoever asks why nothing happens."""
    if text != case.attempt.job_text:
        with store.transaction() as tx:
            tx.attempts.told(case.attempt, text)


def failed_early(case: Case) -> bool:
    """The attempt's job is over before its ranks ran, and nothing has said why."""
    return case.attempt.end is None and case.attempt.running_ms is None


def lease_s(attempt: Attempt, pools: Collection[Pool]) -> float:
    """How long an attempt's supervisors go on when they do not hear the server."""
    return next((pool.lease for pool in pools if pool.name == attempt.pool), LEASE_S)


def bury(store: Store, case: Case, shown: Shown, nodes: Mapping[str, SeenNode], *, now_ms: int, lease_s: float,
         last_lines: tuple[str, ...] = ()) -> int | None:
    """The attempt's job is over: so is the attempt. When to look again, if a part of it may live on.

    On a node that does not answer, processes may be left until their supervisor, cut off, has killed them:
    its lease runs that long, from when it was last heard.
    """
    with store.transaction() as tx:
        gang = tx.gangs.get(case.gang.id)
        attempt = tx.attempts.get(gang.id, case.attempt.number)
        if gang.attempt != attempt.number or attempt.ended_ms is not None:
            return None
        dues = []
        for member in tx.attempts.members(gang.id, attempt.number):
            if member.empty_ms is not None:
                continue
            safe_ms = _safe_ms(store, member, nodes.get(member.node), now_ms, lease_s)
            if safe_ms <= now_ms:
                tx.attempts.empty(member, now_ms)
            else:
                dues.append(safe_ms)
            if _broken(nodes.get(member.node)) and not member.lost:
                tx.attempts.lost(member)
        if attempt.end is None and tx.attempts.unfinished_ranks(gang.id, attempt.number):
            life.decide_end(tx, gang, _end(case, shown, nodes, last_lines), now_ms)
        life.settle(tx, gang.id, now_ms)
        return min(dues, default=None)


def _end(case: Case, shown: Shown, nodes: Mapping[str, SeenNode], last_lines: tuple[str, ...]) -> End:
    words = shown.job.text if shown.job is not None else "it is not known there any more"
    broken = next((member.node for member in case.left if _broken(nodes.get(member.node))), None)
    cause = Cause.LAUNCH if case.attempt.running_ms is None and broken is None else Cause.LOST
    return End(cause=cause, node=broken, last_lines=last_lines,
               text=f"job {case.attempt.job} of pool {case.attempt.pool} ended: {words}")


def _broken(node: SeenNode | None) -> bool:
    return node is not None and node.status in BROKEN


def _safe_ms(store: Store, member: Member, node: SeenNode | None, now_ms: int, lease_s: float) -> int:
    """From when on no process of the member can be left."""
    answers = node is not None and (node.empty or not _broken(node))
    if member.incarnation is None or answers:
        return 0
    return store.seen_ms.setdefault(member.node, now_ms) + round(lease_s * 1000) + KILLS_MS
