"""Verbs on gangs. `move` is the only way a state changes, and it heeds the table of transitions."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from sqlalchemy import and_, func, insert, or_, select, update

from gangline.model.errors import NotFound
from gangline.model.gang import End, Progress
from gangline.model.states import FINAL, Cause, GangState, check_transition
from gangline.store.schema import gangs
from gangline.store.scope import Scope, columns, key
from gangline.store.values import Gang, Success

_FINAL = tuple(sorted(FINAL))
_GET = select(gangs).where(gangs.c.id == key("id"))
_SET = update(gangs).where(gangs.c.id == key("id"))
_ADD = insert(gangs)
_NEWEST = select(gangs).where(gangs.c.seq.in_(select(func.max(gangs.c.seq)).where(
    gangs.c.slot.in_(key("slots", many=True))).group_by(gangs.c.slot)))
_UNFINISHED = select(gangs).where(gangs.c.state.not_in(_FINAL)).order_by(gangs.c.seq)
_PLACE = _SET.values(state=GangState.PLACED, changed_ms=key("changed"), attempt=key("attempt"),
                     generation=key("generation"))
_FIRST = (select(gangs.c.slot, gangs.c.id).where(gangs.c.slot.in_(key("slots", many=True)),
                                                 gangs.c.state.not_in(_FINAL)).order_by(gangs.c.seq.desc()))
_SOME = select(gangs).where(gangs.c.id.in_(key("ids", many=True)))
_LATEST = select(gangs.c.tenant, gangs.c.name, gangs.c.ended_ms, gangs.c.seq, gangs.c.ran_ms,
                 func.row_number().over(partition_by=(gangs.c.tenant, gangs.c.name),
                                        order_by=(gangs.c.ended_ms.desc(), gangs.c.seq.desc())).label("place"),
                 ).where(gangs.c.state == GangState.SUCCEEDED).subquery()
_PAGE = _UNFINISHED.where(gangs.c.seq > key("seq")).limit(key("most"))
_IN_SLOT = _UNFINISHED.where(gangs.c.slot == key("slot"))


class Gangs:
    """Gangs, their slots and their owners."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope

    def get(self, gang: str) -> Gang:
        """The gang; NotFound when there is none of that id."""
        found = self.find(gang)
        if found is None:
            raise NotFound(f"there is no gang {gang}", fix="gangline list shows them")
        return found

    def find(self, gang: str) -> Gang | None:
        row = self._scope.row(_GET, key_id=gang)
        return None if row is None else Gang(**row._mapping)

    def some(self, ids: Collection[str]) -> dict[str, Gang]:
        """Gangs by id, final ones too; ids of none are left out."""
        return {row.id: Gang(**row._mapping) for row in self._scope.each(_SOME, "ids", ids)}

    def successes(self, most: int) -> tuple[Success, ...]:
        """The newest successes of each (tenant, name), at most so many of each."""
        query = select(_LATEST).where(_LATEST.c.place <= most)
        return tuple(Success(tenant=row.tenant, name=row.name, ended_ms=row.ended_ms, seq=row.seq,
                             ran_ms=row.ran_ms) for row in self._scope.rows(query))

    def named(self, text: str, most: int) -> tuple[tuple[Gang, ...], int]:
        """Gangs that are not final: those called `text`, else those whose id or name begins so. The `most` that were
        submitted first, and how many there are."""
        prefix = or_(gangs.c.id.startswith(text, autoescape=True), gangs.c.name.startswith(text, autoescape=True))
        for where in (gangs.c.name == text, prefix):
            meant = and_(gangs.c.state.not_in(_FINAL), where)
            rows = self._scope.rows(select(gangs).where(meant).order_by(gangs.c.seq).limit(most))
            if rows:
                many = len(rows) if len(rows) < most else self._scope.scalar(
                    select(func.count()).select_from(gangs).where(meant))
                return tuple(Gang(**row._mapping) for row in rows), int(many)
        return (), 0

    def newest_in_each(self, slots: Collection[str]) -> dict[str, Gang]:
        """The gang that was submitted last in each of these slots, whatever its state."""
        return {row.slot: Gang(**row._mapping) for row in self._scope.each(_NEWEST, "slots", slots)}

    def unfinished(self, slot: str | None = None) -> tuple[Gang, ...]:
        """Every gang that is not final, of one slot or of all, in the order of submission."""
        rows = self._scope.rows(_UNFINISHED) if slot is None else self._scope.rows(_IN_SLOT, key_slot=slot)
        return tuple(Gang(**row._mapping) for row in rows)

    def unfinished_after(self, seq: int, most: int) -> tuple[Gang, ...]:
        """The first `most` gangs that are not final, of those with a higher number."""
        return tuple(Gang(**row._mapping) for row in self._scope.rows(_PAGE, key_seq=seq, key_most=most))

    def first_in(self, slots: Collection[str]) -> dict[str, str]:
        """The gang of each slot that was submitted first of those that are not final."""
        return {row.slot: row.id for row in self._scope.each(_FIRST, "slots", slots)}

    def listed(self, states: Collection[GangState], slot_prefix: str | None, limit: int) -> tuple[Gang, ...]:
        """Newest first; no states means all of them."""
        query = select(gangs).order_by(gangs.c.seq.desc()).limit(limit)
        if states:
            query = query.where(gangs.c.state.in_(list(states)))
        if slot_prefix:
            query = query.where(gangs.c.slot.startswith(slot_prefix, autoescape=True))
        return tuple(Gang(**row._mapping) for row in self._scope.rows(query))

    def counts(self) -> dict[GangState, int]:
        """How many gangs there are in each state that is not final."""
        query = (select(gangs.c.state, func.count().label("many"))
                 .where(gangs.c.state.not_in(_FINAL)).group_by(gangs.c.state))
        return {row.state: int(row.many) for row in self._scope.rows(query)}

    def next_seq(self) -> int:
        return self._scope.next("gang")

    def add(self, new: Sequence[Gang]) -> None:
        self._scope.run_all(_ADD, [columns(gang) for gang in new])
        for gang in new:
            self._scope.move(gang=gang.id)

    def move(self, gang: Gang, state: GangState, now_ms: int) -> None:
        """Changes the state; Bug when the table does not allow it."""
        check_transition(gang.state, state)
        self._set(gang.id, state=state, changed_ms=now_ms)

    def finish(self, gang: Gang, state: GangState, end: End, now_ms: int) -> None:
        """Moves to a final state, which frees the slot."""
        self.move(gang, state, now_ms)
        self._set(gang.id, end=end, ended_ms=now_ms, active=False)

    def ask_to_end(self, gang: str, cause: Cause, text: str) -> None:
        """Records who wants it to end and why; it no longer holds its slot."""
        self._set(gang, cancel_cause=cause, cancel_text=text, active=False)

    def leave_slot(self, gang: str) -> None:
        self._set(gang, active=False)

    def new_owner(self, gang: Gang, token_hash: str, now_ms: int) -> None:
        """Another one acts for it from now on; the token before is void."""
        self._scope.run(_SET, key_id=gang.id, owner=gang.owner + 1, token_hash=token_hash,
                        watched_ms=max(now_ms, gang.watched_ms))
        self._scope.wake(gang=gang.id)

    def renew(self, gang: str, now_ms: int) -> None:
        self._scope.run(_SET, key_id=gang, watched_ms=now_ms)

    def placed(self, placed: Sequence[Gang], now_ms: int) -> None:
        """These gangs hold their nodes: each one's next attempt is issued under a new generation."""
        for gang in placed:
            check_transition(gang.state, GangState.PLACED)
            self._scope.move(gang=gang.id)
        self._scope.run_all(_PLACE, [{
            "key_id": gang.id, "key_changed": now_ms, "key_attempt": gang.attempt + 1,
            "key_generation": gang.generation + 1} for gang in placed])

    def issue(self, gang: str, attempt: int, generation: int) -> None:
        """New orders go out, for this attempt under this generation."""
        self._set(gang, attempt=attempt, generation=generation)

    def end_attempt(self, gang: Gang, ran_ms: int, avoid: Iterable[str]) -> None:
        """Adds what the attempt ran and the nodes that failed it."""
        self._set(gang.id, ran_ms=gang.ran_ms + ran_ms, avoid=tuple(sorted({*gang.avoid, *avoid})))

    def preempted(self, gang: str, now_ms: int) -> None:
        """It is told to make room for others."""
        self._set(gang, preempted_ms=now_ms)

    def resized(self, gang: str, now_ms: int) -> None:
        """It is told to go on with another number of nodes."""
        self._set(gang, resized_ms=now_ms)

    def advance(self, gang: str, progress: Progress) -> None:
        self._scope.run(_SET, key_id=gang, progress=progress)
        self._scope.wake(gang=gang)

    def _set(self, gang: str, **values: Any) -> None:
        self._scope.run(_SET, key_id=gang, **values)
        self._scope.move(gang=gang)
