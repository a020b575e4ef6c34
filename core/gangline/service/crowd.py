"""`Crowd`: the gangs that are not final, as a pass sees them, and what ties them to each other."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from gangline.model.states import LIVE, GangState
from gangline.plan.outcome import Reservation
from gangline.plan.queue import Queue
from gangline.plan.snapshot import UNKNOWN_MS, Held, PendingGang, Promise, RunningGang
from gangline.service import facts
from gangline.service.dues import Dues, first_due_ms
from gangline.service.durations import Durations, Key
from gangline.service.sighting import Sighting
from gangline.store import Gang, Node


@dataclass(slots=True)
class Known:
    """A gang that is not final. `likely` says that only its like's duration tells when it ends; `avoids` is
    its row when hardware has failed it."""

    seq: int
    slot: str
    key: Key
    holds: tuple[Held, ...]
    pending: PendingGang | None
    running: RunningGang | None
    avoids: Gang | None
    likely: bool

    @property
    def until_ms(self) -> int:
        """When what it holds is expected to be free."""
        ends_by_ms = None if self.running is None else self.running.ends_by_ms
        return UNKNOWN_MS if ends_by_ms is None else ends_by_ms


class Crowd:
    """Gangs by id, by slot and by what they are alike in; how long those like them ran, and what is due when."""

    def __init__(self) -> None:
        self.known: dict[str, Known] = {}
        self.dues = Dues()
        self._live: dict[str, Known] = {}
        self._slots: dict[str, dict[str, int]] = {}
        self._alike: dict[Key, set[str]] = {}
        self._durations = Durations()
        self._likely_ends = Dues()
        self._promises: dict[str, Promise] = {}

    def running(self) -> tuple[RunningGang, ...]:
        """The gangs that hold nodes and run, in the order of submission."""
        live = sorted((known.seq, known.running) for known in self._live.values() if known.running is not None)
        return tuple(running for _, running in live)

    def take(self, news: Sighting, nodes: Collection[Node]) -> tuple[set[str], set[str], dict[str, Known]]:
        """Puts gangs as they were seen. The ids that are another thing now, the slots to look at, and what was
        known of the gangs before."""
        learned = self._durations.learn(news.successes)
        before = {gang: old for gang in news.gangs if (old := self.known.get(gang)) is not None}
        slots = {old.slot for old in before.values()}
        for gang, row in news.gangs.items():
            self._drop(gang)
            if row is not None and not row.state.final:
                self._add(row, news, nodes)
                slots.add(row.slot)
        return {*news.gangs, *self._relearn(learned, news.gangs)}, slots, before

    def avoid_anew(self, nodes: Collection[Node]) -> set[str]:
        """What a gang can avoid depends on what else there is; the ids of gangs that avoid something."""
        avoiding = set()
        for gang, known in self.known.items():
            if known.avoids is not None:
                avoiding.add(gang)
                exclude = facts.excluded(known.avoids, nodes)
                if known.pending is not None:
                    known.pending = replace(known.pending, exclude=exclude)
                elif known.running is not None and known.running.again is not None:
                    known.running = replace(known.running, again=replace(known.running.again, exclude=exclude))
        return avoiding

    def outlived(self, now_ms: int) -> list[Known]:
        """Gangs that have run longer than their like: nothing says any more when they end."""
        late = []
        for gang in self._likely_ends.take(now_ms):
            known = self._live.get(gang)
            if known is not None and known.likely and known.running is not None:
                known.running = replace(known.running, ends_by_ms=None)
                late.append(known)
        return late

    def promise(self, reservations: Iterable[Reservation]) -> list[str]:
        """Remembers where a pass expects gangs to start, and forgets what the one before it expected; the gangs
        for which that is another thing now."""
        promises = {kept.gang: kept.promise for kept in reservations if kept.promise is not None}
        changed = [gang for gang in {*promises, *self._promises}
                   if promises.get(gang) != self._promises.get(gang) and gang in self.known]
        self._promises = promises
        for gang in changed:
            known = self.known[gang]
            if known.pending is not None:
                known.pending = replace(known.pending, promise=promises.get(gang))
        return changed

    def requeue(self, queue: Queue, slots: Iterable[str], changed: Collection[str]) -> None:
        """Queues the first gang of each slot if it waits; the others wait for that one to be over."""
        drop = [gang for gang in changed if gang not in self.known]
        put = []
        for slot in {*slots, *(self.known[gang].slot for gang in changed if gang in self.known)}:
            gangs: Mapping[str, int] = self._slots.get(slot, {})
            first = min(gangs, key=lambda gang: gangs[gang], default=None)
            for gang in gangs:
                wanted = self.known[gang].pending if gang == first else None
                queued = queue.get(gang)
                if wanted is not None and wanted is not queued:
                    put.append(wanted)
                elif wanted is None and queued is not None:
                    drop.append(gang)
        queue.update(put, drop)

    def _add(self, gang: Gang, news: Sighting, nodes: Collection[Node]) -> None:
        holds = facts.held(news.leases.get(gang.id, ()))
        key = gang.tenant, gang.name
        known = Known(gang.seq, gang.slot, key, holds, None, None, gang if gang.avoid else None,
                      gang.timeout_ms is None)
        last, exclude = news.attempts.get(gang.id), facts.excluded(gang, nodes)
        if gang.state is GangState.QUEUED:
            known.pending = facts.pending(gang, last, holds, exclude, self._durations.likely_ms(key),
                                          self._promises.get(gang.id))
        elif gang.state in LIVE and holds and last is not None:
            running = facts.running(gang, last, holds, news.saved_ms.get((gang.id, last.number)), exclude)
            known.likely &= not running.ending
            known.running = self._with_likely_end(running, key) if known.likely else running
            self._live[gang.id] = known
        self.known[gang.id] = known
        self.dues.put(gang.id, first_due_ms(gang, last))
        self._slots.setdefault(gang.slot, {})[gang.id] = gang.seq
        if known.likely:
            self._alike.setdefault(key, set()).add(gang.id)

    def _drop(self, gang: str) -> None:
        old = self.known.pop(gang, None)
        if old is None:
            return
        self._live.pop(gang, None)
        self.dues.put(gang, None)
        self._likely_ends.put(gang, None)
        del self._slots[old.slot][gang]
        if not self._slots[old.slot]:
            del self._slots[old.slot]
        if gang in self._alike.get(old.key, ()):
            self._alike[old.key].discard(gang)
            if not self._alike[old.key]:
                del self._alike[old.key]

    def _with_likely_end(self, running: RunningGang, key: Key) -> RunningGang:
        likely_ms = self._durations.likely_ms(key)
        if likely_ms is None:
            self._likely_ends.put(running.gang, None)
            return running if running.ends_by_ms is None else replace(running, ends_by_ms=None)
        self._likely_ends.put(running.gang, running.since_ms + likely_ms)
        return replace(running, ends_by_ms=running.since_ms + likely_ms)

    def _relearn(self, keys: Iterable[Key], fresh: Collection[str]) -> set[str]:
        """Tells gangs how long their like ran now; the ids of those it changed. `fresh` ones know already."""
        changed = set()
        for key in keys:
            likely_ms = self._durations.likely_ms(key)
            for gang in self._alike.get(key, set()).difference(fresh):
                known = self.known[gang]
                if known.pending is not None:
                    known.pending = replace(known.pending, likely_ms=likely_ms)
                elif known.running is not None:
                    known.running = self._with_likely_end(known.running, key)
                changed.add(gang)
        return changed
