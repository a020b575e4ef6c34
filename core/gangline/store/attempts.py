"""Verbs on attempts, their members (one per node) and their ranks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, and_, func, insert, or_, select, update

from gangline.model.errors import Bug
from gangline.model.gang import End, Resume
from gangline.model.orders import RankExit
from gangline.model.states import Cause, Phase
from gangline.store.schema import attempts, members, ranks
from gangline.store.scope import Scope, columns
from gangline.store.values import Attempt, Member, Rank


class Attempts:
    """The runs of gangs."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope

    def get(self, gang: str, number: int) -> Attempt:
        row = self._scope.row(select(attempts).where(_is(gang, number)))
        if row is None:
            raise Bug(f"gang {gang} has no attempt {number}")
        return Attempt(**row._mapping)

    def of(self, gang: str) -> tuple[Attempt, ...]:
        """Every attempt of a gang, the first one first."""
        query = select(attempts).where(attempts.c.gang == gang).order_by(attempts.c.number)
        return tuple(Attempt(**row._mapping) for row in self._scope.rows(query))

    def unfinished(self) -> tuple[Attempt, ...]:
        """Attempts that are not over yet."""
        query = select(attempts).where(attempts.c.ended_ms.is_(None)).order_by(attempts.c.started_ms)
        return tuple(Attempt(**row._mapping) for row in self._scope.rows(query))

    def causes(self, gang: str) -> Counter[Cause]:
        """How many attempts of a gang ended by each cause."""
        return Counter(a.end.cause for a in self.of(gang) if a.end is not None)

    def members(self, gang: str, number: int) -> tuple[Member, ...]:
        """In node-rank order."""
        query = select(members).where(_part(members, gang, number)).order_by(members.c.node_rank)
        return tuple(Member(**row._mapping) for row in self._scope.rows(query))

    def member_on(self, gang: str, number: int, node: str) -> Member | None:
        row = self._scope.row(select(members).where(_part(members, gang, number), members.c.node == node))
        return None if row is None else Member(**row._mapping)

    def unready(self, gang: str, number: int) -> int:
        """How many nodes have not reported ready yet."""
        return self._count(members, gang, number, members.c.ready_ms.is_(None))

    def unstarted(self, gang: str, number: int) -> int:
        return self._count(members, gang, number, members.c.started_ms.is_(None))

    def unempty(self, gang: str, number: int) -> int:
        """On how many nodes a process may be left."""
        return self._count(members, gang, number, members.c.empty_ms.is_(None))

    def unfinished_ranks(self, gang: str, number: int, node_rank: int | None = None) -> int:
        """How many ranks have not ended well, of the whole attempt or of one node."""
        undone = or_(ranks.c.cause.is_(None), ranks.c.cause != Cause.SUCCESS)
        if node_rank is not None:
            undone = and_(undone, ranks.c.node_rank == node_rank)
        return self._count(ranks, gang, number, undone)

    def rank(self, gang: str, number: int, rank: int) -> Rank | None:
        row = self._scope.row(select(ranks).where(_part(ranks, gang, number), ranks.c.rank == rank))
        return None if row is None else Rank(**row._mapping)

    def busy_on(self, node: str) -> tuple[Member, ...]:
        """Members on a node that may still have processes there."""
        query = (select(members).where(members.c.node == node, members.c.empty_ms.is_(None))
                 .order_by(members.c.gang, members.c.attempt))
        return tuple(Member(**row._mapping) for row in self._scope.rows(query))

    def ranks(self, gang: str, number: int) -> tuple[Rank, ...]:
        query = select(ranks).where(_part(ranks, gang, number)).order_by(ranks.c.rank)
        return tuple(Rank(**row._mapping) for row in self._scope.rows(query))

    def add(self, attempt: Attempt, parts: Sequence[Member], processes: Sequence[Rank]) -> None:
        self._scope.run(insert(attempts).values(**columns(attempt)))
        self._scope.run(insert(members), [columns(part) for part in parts])
        self._scope.run(insert(ranks), [columns(rank) for rank in processes])
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

    def close(self, attempt: Attempt, end: End, now_ms: int) -> None:
        self._set(attempt, end=end, ended_ms=now_ms)

    def reissue(self, attempt: Attempt, resume: tuple[Resume, ...], now_ms: int) -> None:
        """Every node assembles again, from other versions."""
        self._scope.run(update(members).where(
            _part(members, attempt.gang, attempt.number)).values(ready_ms=None))
        self._set(attempt, resume=resume, issued_ms=now_ms)

    def delivered(self, member: Member, incarnation: str) -> None:
        """A supervisor has seen the orders: from now on it may have started something."""
        self._mark(member, incarnation=incarnation)

    def ready(self, member: Member, now_ms: int) -> None:
        self._mark(member, ready_ms=now_ms)

    def started(self, member: Member, now_ms: int) -> None:
        """User code runs on the node; its ranks that have not ended yet are running."""
        self._mark(member, started_ms=now_ms)
        self._scope.run(update(ranks).where(
            _part(ranks, member.gang, member.attempt), ranks.c.node_rank == member.node_rank,
            ranks.c.state == "waiting").values(state="running"))

    def empty(self, member: Member, now_ms: int) -> None:
        self._mark(member, empty_ms=now_ms)

    def lost(self, member: Member) -> None:
        self._mark(member, lost=True)

    def exited(self, report: RankExit) -> None:
        self._scope.wake(gang=report.gang)
        self._scope.run(update(ranks).where(
            _part(ranks, report.gang, report.attempt), ranks.c.rank == report.rank).values(
            state="exited", cause=report.cause, exit_code=report.exit_code, signal=report.signal,
            result=report.result))

    def _count(self, table: Any, gang: str, number: int, where: ColumnElement[bool]) -> int:
        return int(self._scope.scalar(select(func.count()).select_from(table).where(
            _part(table, gang, number), where)))

    def _mark(self, member: Member, **values: Any) -> None:
        self._scope.run(update(members).where(
            _part(members, member.gang, member.attempt),
            members.c.node_rank == member.node_rank).values(**values))

    def _set(self, attempt: Attempt, **values: Any) -> None:
        self._scope.run(update(attempts).where(_is(attempt.gang, attempt.number)).values(**values))
        self._scope.move(gang=attempt.gang)
        for member in self.members(attempt.gang, attempt.number):
            self._scope.wake(node=member.node)


def _is(gang: str, number: int) -> Any:
    return and_(attempts.c.gang == gang, attempts.c.number == number)


def _part(table: Any, gang: str, number: int) -> Any:
    return and_(table.c.gang == gang, table.c.attempt == number)
