"""`Reasons`: why gangs wait, as the last pass said it. They live in memory, one for all gangs that share it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from gangline.model.gang import Holder, Wait
from gangline.plan.outcome import Waiting
from gangline.plan.snapshot import Snapshot
from gangline.store import Store

EARLIEST_NEWS = 0.1  # a forecast is told again when it moved by this share of what is left
MOST_EVENTS = 64  # a pass writes of reasons: histories are for people, and a backlog has one reason
MOST_AT_ONCE = 16  # of them in one transaction: others must not wait long for their turn
_Name = Callable[[str], Holder | None]


@dataclass(slots=True, eq=False)
class _Group:
    """Gangs that wait for one reason. `told` is what was last said of it, as news number `number`."""

    gangs: tuple[str, ...]
    members: set[str]
    said: Waiting  # as it was when it was told
    told: Wait
    number: int
    heard: int  # the pass that said it last


@dataclass(frozen=True, slots=True, kw_only=True)
class _Heard:
    """What a group's reason changed for whom."""

    number: int | None = None
    joined: frozenset[str] = frozenset()
    reworded: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Told:
    """Whose reason changed in a pass: all gangs of some groups, and those that came to a group.

    `reworded` are the first of them that wait for another thing now, at most `MOST_EVENTS`.
    """

    groups: frozenset[int] = frozenset()
    joined: frozenset[str] = frozenset()
    reworded: tuple[str, ...] = ()
    of: Callable[[str], int] = lambda gang: 0

    def __bool__(self) -> bool:
        return bool(self.groups or self.joined)

    def __contains__(self, gang: object) -> bool:
        return isinstance(gang, str) and (gang in self.joined or self.of(gang) in self.groups)


class Reasons:
    """The reason of each gang that waits. Work is done for each group, for a gang only when it comes to one."""

    def __init__(self) -> None:
        self._of: dict[str, _Group] = {}
        self._said = 0  # passes; while one is being heard, what the one before it said still holds
        self._number = 0

    def say(self, waiting: Iterable[Waiting], snapshot: Snapshot, now_ms: int) -> Told:
        """What a pass over `snapshot` said, in place of all that was said before. Tells whose reason is
        another one now: forecasts drift with every pass, which is no news."""
        name = _names(snapshot)
        numbers: set[int] = set()
        joined: set[str] = set()
        reworded: list[str] = []
        many = 0
        for said in waiting:
            if said.gangs:
                many += len(said.gangs)
                heard = self._hear(said, name, now_ms)
                joined |= heard.joined
                reworded += heard.reworded[:MOST_EVENTS - len(reworded)]
                if heard.number is not None:
                    numbers.add(heard.number)
        self._said += 1
        if len(self._of) > 2 * many + 1_000:
            self._of = {gang: group for gang, group in self._of.items() if group.heard == self._said}
        return Told(frozenset(numbers), frozenset(joined), tuple(reworded), self.mark)

    def wait(self, gang: str) -> Wait | None:
        """Why a gang waits; None when no pass has looked at it yet, or it does not wait."""
        group = self._of.get(gang)
        return group.told if group is not None and group.heard >= self._said else None

    def mark(self, gang: str) -> int:
        """A number that is another one when the gang's reason is; 0 without any."""
        group = self._of.get(gang)
        return group.number if group is not None and group.heard >= self._said else 0

    def _hear(self, said: Waiting, name: _Name, now_ms: int) -> _Heard:
        old = self._of.get(said.gangs[0])
        if old is not None and old.heard != self._said:
            old = None
        if old is None or not _same_news(old.said, said, now_ms):
            group = _Group(said.gangs, set(said.gangs), said, _wait(said, name), self._next(), self._said + 1)
            self._of.update(dict.fromkeys(said.gangs, group))
            same_words = old is not None and (old.said.code, old.said.text) == (said.code, said.text)
            return _Heard(number=group.number, reworded=() if same_words else said.gangs)
        old.heard = self._said + 1
        if old.gangs == said.gangs:
            return _Heard()
        # Of a backlog few come and go between two passes; the others stay where they are.
        members = set(said.gangs)
        came, left = members - old.members, old.members - members
        old.gangs, old.members = said.gangs, members
        for gang in left:
            if self._of.get(gang) is old:
                del self._of[gang]
        self._of.update(dict.fromkeys(came, old))
        return _Heard(joined=frozenset(came), reworded=tuple(sorted(came)[:MOST_EVENTS]))

    def _next(self) -> int:
        self._number += 1
        return self._number


def record(store: Store, reasons: Reasons, gangs: Iterable[str], now_ms: int) -> None:
    """Writes into the history of these gangs what they wait for now."""
    waits = [(gang, wait) for gang in gangs if (wait := reasons.wait(gang)) is not None]
    for start in range(0, len(waits), MOST_AT_ONCE):
        with store.transaction() as tx:
            for gang, wait in waits[start:start + MOST_AT_ONCE]:
                tx.events.add("plan.waiting", now_ms, gang=gang, code=wait.code, text=wait.text, short=wait.short,
                              blocked_by=[holder.gang for holder in wait.blocked_by], earliest_ms=wait.earliest_ms)


def _names(snapshot: Snapshot) -> _Name:
    running = {gang.gang: gang for gang in snapshot.running}

    def name(gang: str) -> Holder | None:
        found = running.get(gang) or snapshot.queue.get(gang)
        return None if found is None else Holder(gang=gang, name=found.name, slot=found.slot, tenant=found.tenant)

    return name


def _wait(said: Waiting, name: _Name) -> Wait:
    return Wait(code=said.code, text=said.text, short=said.short, earliest_ms=said.earliest_ms,
                blocked_by=tuple(holder for gang in said.blocked_by if (holder := name(gang)) is not None))


def _same_news(old: Waiting, new: Waiting, now_ms: int) -> bool:
    """Nothing a reader would act on has changed."""
    if (old.code, old.text, old.short, old.blocked_by) != (new.code, new.text, new.short, new.blocked_by):
        return False
    if old.earliest_ms is None or new.earliest_ms is None:
        return old.earliest_ms == new.earliest_ms
    left_ms = max(1_000, old.earliest_ms - now_ms)
    return abs(new.earliest_ms - old.earliest_ms) <= left_ms * EARLIEST_NEWS
