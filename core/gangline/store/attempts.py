"""Verbs on attempts, their members (one per node) and their ranks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Select, Table, and_, func, insert, or_, select, tuple_, update

from gangline.model.errors import Bug
from gangline.model.gang import End, Resume
from gangline.model.orders import RankExit
from gangline.model.states import Cause, Phase
from gangline.store.schema import attempts, members, ranks
from gangline.store.scope import Scope, columns, key
from gangline.store.values import Attempt, Member, Rank


def _part(table: Table) -> ColumnElement[bool]:
    return and_(table.c.gang == key("gang"), table.c.attempt == key("number"))


def _how_many(table: Table, *where: ColumnElement[bool]) -> Select[Any]:
    return select(func.count()).select_from(table).where(_part(table), *where)


# Statements are built once: building one costs more than SQLite takes to run it.
_IS = and_(attempts.c.gang == key("gang"), attempts.c.number == key("number"))
_GET = select(attempts).where(_IS)
_SET = update(attempts).where(_IS)
_OF = select(attempts).where(attempts.c.gang == key("gang")).order_by(attempts.c.number)
_UNFINISHED = select(attempts).where(attempts.c.ended_ms.is_(None)).order_by(attempts.c.started_ms)
_NEWEST = select(attempts).where(tuple_(attempts.c.gang, attempts.c.number).in_(
    select(attempts.c.gang, func.max(attempts.c.number)).where(attempts.c.gang.in_(key("gangs", many=True)))
    .group_by(attempts.c.gang)))
_MEMBERS = select(members).where(_part(members)).order_by(members.c.node_rank)
_MEMBER = select(members).where(_part(members), members.c.node == key("node"))
_WHERE = select(members.c.node).where(_part(members))
_BUSY = (select(members).where(members.c.node == key("node"), members.c.empty_ms.is_(None))
         .order_by(members.c.gang, members.c.attempt))
_UNREADY = _how_many(members, members.c.ready_ms.is_(None))
_UNSTARTED = _how_many(members, members.c.started_ms.is_(None))
_UNEMPTY = _how_many(members, members.c.empty_ms.is_(None))
_SET_MEMBERS = update(members).where(_part(members))
_SET_MEMBER = _SET_MEMBERS.where(members.c.node_rank == key("node_rank"))
_RANKS = select(ranks).where(_part(ranks)).order_by(ranks.c.rank)
_RANK = select(ranks).where(_part(ranks), ranks.c.rank == key("rank"))
_UNDONE = _how_many(ranks, or_(ranks.c.cause.is_(None), ranks.c.cause != Cause.SUCCESS))
_UNDONE_THERE = _UNDONE.where(ranks.c.node_rank == key("node_rank"))
_SET_RANK = update(ranks).where(_part(ranks), ranks.c.rank == key("rank"))
_START_RANKS = update(ranks).where(_part(ranks), ranks.c.node_rank == key("node_rank"),
                                   ranks.c.state == "waiting")
_HOSTED = select(attempts).where(attempts.c.pool.is_not(None), attempts.c.ended_ms.is_(None)).order_by(
    attempts.c.gang)
_ADD, _ADD_MEMBERS, _ADD_RANKS = insert(attempts), insert(members), insert(ranks)


class Attempts:
    """The runs of gangs."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope

    def get(self, gang: str, number: int) -> Attempt:
        row = self._scope.row(_GET, key_gang=gang, key_number=number)
        if row is None:
            raise Bug(f"gang {gang} has no attempt {number}")
        return Attempt(**row._mapping)

    def of(self, gang: str) -> tuple[Attempt, ...]:
        """Every attempt of a gang, the first one first."""
        return tuple(Attempt(**row._mapping) for row in self._scope.rows(_OF, key_gang=gang))

    def unfinished(self) -> tuple[Attempt, ...]:
        """Attempts that are not over yet."""
        return tuple(Attempt(**row._mapping) for row in self._scope.rows(_UNFINISHED))

    def newest(self, gangs: Collection[str]) -> dict[str, Attempt]:
        """The last attempt of each of these gangs that has had one."""
        return {row.gang: Attempt(**row._mapping) for row in self._scope.each(_NEWEST, "gangs", gangs)}

    def causes(self, gang: str) -> Counter[Cause]:
        """How many attempts of a gang ended by each cause."""
        return Counter(a.end.cause for a in self.of(gang) if a.end is not None)

    def members(self, gang: str, number: int) -> tuple[Member, ...]:
        """In node-rank order."""
        rows = self._scope.rows(_MEMBERS, key_gang=gang, key_number=number)
        return tuple(Member(**row._mapping) for row in rows)

    def member_on(self, gang: str, number: int, node: str) -> Member | None:
        row = self._scope.row(_MEMBER, key_gang=gang, key_number=number, key_node=node)
        return None if row is None else Member(**row._mapping)

    def unready(self, gang: str, number: int) -> int:
        """How many nodes have not reported ready yet."""
        return int(self._scope.scalar(_UNREADY, key_gang=gang, key_number=number))

    def unstarted(self, gang: str, number: int) -> int:
        return int(self._scope.scalar(_UNSTARTED, key_gang=gang, key_number=number))

    def unempty(self, gang: str, number: int) -> int:
        """On how many nodes a process may be left."""
        return int(self._scope.scalar(_UNEMPTY, key_gang=gang, key_number=number))

    def unfinished_ranks(self, gang: str, number: int, node_rank: int | None = None) -> int:
        """How many ranks have not ended well, of the whole attempt or of one node."""
        if node_rank is None:
            return int(self._scope.scalar(_UNDONE, key_gang=gang, key_number=number))
        return int(self._scope.scalar(_UNDONE_THERE, key_gang=gang, key_number=number,
                                      key_node_rank=node_rank))

    def rank(self, gang: str, number: int, rank: int) -> Rank | None:
        row = self._scope.row(_RANK, key_gang=gang, key_number=number, key_rank=rank)
        return None if row is None else Rank(**row._mapping)

    def busy_on(self, node: str) -> tuple[Member, ...]:
        """Members on a node that may still have processes there."""
        return tuple(Member(**row._mapping) for row in self._scope.rows(_BUSY, key_node=node))

    def ranks(self, gang: str, number: int) -> tuple[Rank, ...]:
        rows = self._scope.rows(_RANKS, key_gang=gang, key_number=number)
        return tuple(Rank(**row._mapping) for row in rows)

    def add(self, new: Sequence[Attempt], parts: Sequence[Member], processes: Sequence[Rank]) -> None:
        """Attempts of several gangs, with the members and ranks of all of them."""
        self._scope.run_all(_ADD, [columns(attempt) for attempt in new])
        self._scope.run_all(_ADD_MEMBERS, [columns(part) for part in parts])
        self._scope.run_all(_ADD_RANKS, [columns(rank) for rank in processes])
        for part in parts:
            self._scope.wake(node=part.node)

    def enter(self, attempt: Attempt, phase: Phase, now_ms: int) -> None:
        """The attempt is in another phase; its nodes get other orders."""
        values: dict[str, Any] = {"phase": phase}
        if phase is Phase.RUNNING:
            values["running_ms"] = now_ms
        if phase is Phase.COMMITTING:
            values["stopped_ms"] = now_ms
        self._set(attempt, **values)

    def decide(self, attempt: Attempt, end: End, grace_ms: int, now_ms: int) -> None:
        """How it ends is settled; its nodes are told to stop."""
        self._set(attempt, phase=Phase.DRAINING, end=end, grace_ms=grace_ms, stopped_ms=now_ms)

    def resize(self, attempt: Attempt, want: int, give_up: Sequence[str]) -> None:
        """With how many nodes the gang is to go on, and which ones it gives back for that."""
        self._set(attempt, want=want, give_up=tuple(sorted(give_up)))

    def give_up(self, attempt: Attempt, nodes: Sequence[str]) -> None:
        """Which nodes the gang gives back when the attempt is down."""
        self._set(attempt, give_up=tuple(sorted(nodes)))

    def close(self, attempt: Attempt, end: End, now_ms: int) -> None:
        self._set(attempt, end=end, ended_ms=now_ms)

    def reissue(self, attempt: Attempt, resume: tuple[Resume, ...], now_ms: int) -> None:
        """Every node assembles again, from other versions."""
        self._scope.run(_SET_MEMBERS, key_gang=attempt.gang, key_number=attempt.number, ready_ms=None)
        self._set(attempt, resume=resume, issued_ms=now_ms)

    def hosted(self) -> tuple[Attempt, ...]:
        """Attempts that are jobs of other systems and not over."""
        return tuple(Attempt(**row._mapping) for row in self._scope.rows(_HOSTED))

    def launched(self, attempt: Attempt, job: str, now_ms: int) -> None:
        """Its engine has the job, by this id."""
        self._scope.run(_SET, key_gang=attempt.gang, key_number=attempt.number, job=job, launched_ms=now_ms)
        self._scope.wake(gang=attempt.gang)

    def told(self, attempt: Attempt, job_text: str) -> None:
        """What its engine says of the job."""
        self._scope.run(_SET, key_gang=attempt.gang, key_number=attempt.number, job_text=job_text)
        self._scope.wake(gang=attempt.gang)

    def greeted(self, member: Member, incarnation: str, address: str) -> None:
        """The supervisor that came with the job answers, from there; with the last one, orders follow."""
        self._mark(member, incarnation=incarnation, address=address)
        about = {"key_gang": member.gang, "key_number": member.attempt}
        if member.node_rank == 0:
            self._scope.run(_SET, **about, master_addr=address)
        for row in self._scope.rows(_WHERE, **about):
            self._scope.wake(node=row.node)

    def delivered(self, member: Member, incarnation: str) -> None:
        """A supervisor has seen the orders: from now on it may have started something."""
        self._mark(member, incarnation=incarnation)

    def ready(self, member: Member, now_ms: int) -> None:
        self._mark(member, ready_ms=now_ms)

    def started(self, member: Member, now_ms: int) -> None:
        """User code runs on the node; its ranks that have not ended yet are running."""
        self._mark(member, started_ms=now_ms)
        self._scope.run(_START_RANKS, key_gang=member.gang, key_number=member.attempt,
                        key_node_rank=member.node_rank, state="running")

    def empty(self, member: Member, now_ms: int) -> None:
        self._mark(member, empty_ms=now_ms)

    def lost(self, member: Member) -> None:
        self._mark(member, lost=True)

    def exited(self, report: RankExit) -> None:
        self._scope.wake(gang=report.gang)
        self._scope.run(_SET_RANK, key_gang=report.gang, key_number=report.attempt, key_rank=report.rank,
                        state="exited", cause=report.cause, exit_code=report.exit_code,
                        signal=report.signal, result=report.result)

    def _mark(self, member: Member, **values: Any) -> None:
        self._scope.run(_SET_MEMBER, key_gang=member.gang, key_number=member.attempt,
                        key_node_rank=member.node_rank, **values)

    def _set(self, attempt: Attempt, **values: Any) -> None:
        self._scope.run(_SET, key_gang=attempt.gang, key_number=attempt.number, **values)
        self._scope.move(gang=attempt.gang)
        for row in self._scope.rows(_WHERE, key_gang=attempt.gang, key_number=attempt.number):
            self._scope.wake(node=row.node)
