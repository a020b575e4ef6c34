"""`Picture`: fleet, queue and running gangs in memory, kept equal to the store by what each commit touched."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from heapq import heappop, heappush

from gangline.model.fleet import Fleet
from gangline.model.states import LIVE, GangState, NodeLifecycle
from gangline.plan.fleet import FleetMap, FleetState
from gangline.plan.outcome import Reservation
from gangline.plan.queue import Queue
from gangline.plan.snapshot import UNKNOWN_MS, Held, PendingGang, PoolState, Promise, RunningGang, Snapshot
from gangline.service import facts
from gangline.service.dues import Dues, first_due_ms
from gangline.service.durations import Durations, Key
from gangline.service.inventory import unsettled
from gangline.service.sighting import Sighting
from gangline.store import Gang, Node, Store


@dataclass(slots=True)
class _Known:
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


class Picture:
    """Everything a pass may look at. Filled once from the store, then each `refresh` reads what changed.

    One thread refreshes; others hold `lock` while they look at a snapshot of it. A gang that replaces
    another one is not pending before that one has released its nodes.
    """

    def __init__(self, store: Store, fleet: Fleet) -> None:
        self.lock = threading.RLock()
        self._store = store
        self._file = fleet
        self._tenants = tuple(facts.tenant_state(tenant) for tenant in fleet.tenants)
        self._notes = threading.Lock()
        self._touched: tuple[set[str], set[str]] = set(), set()
        self._blank = True
        self._version = 0
        self._wanted: dict[str, int] = {}
        self._nodes: dict[str, Node] = {}
        self._unsettled: set[str] = set()
        self._present: tuple[Node, ...] | None = None
        self._known: dict[str, _Known] = {}
        self._slots: dict[str, dict[str, int]] = {}
        self._alike: dict[Key, set[str]] = {}
        self._durations = Durations()
        self._likely_ends: list[tuple[int, str]] = []
        self._pools: tuple[PoolState, ...] = ()
        self._fleet = FleetState.empty(FleetMap((), ()))
        self._queue = Queue()
        self._running: tuple[RunningGang, ...] | None = None
        self._promises: dict[str, Promise] = {}
        self.dues = Dues()
        store.on_move.append(self._note)

    def close(self) -> None:
        """Hears of no further commits."""
        self._store.on_move.remove(self._note)

    @property
    def stale(self) -> bool:
        """Something was touched since the last `refresh`."""
        with self._notes:
            return self._blank or any(self._touched)

    def refresh(self) -> None:
        """Reads what was touched since the last time, in one transaction."""
        try:
            with self._store.transaction() as tx:
                blank, gangs, nodes = self._take_notes()
                news = Sighting.of_all(tx) if blank else Sighting.of(tx, gangs, nodes)
            with self.lock:
                if blank:
                    self._forget()
                self._apply(news)
        except BaseException:
            self._blank = True  # half a picture is none: the next one is made anew
            raise

    def snapshot(self, now_ms: int) -> Snapshot:
        """The picture as the last `refresh` left it, for a pass at `now_ms`. Valid until the next one."""
        with self.lock:
            self._outlive(now_ms)
            if self._running is None:
                live = sorted((known.seq, known.running) for known in self._known.values()
                              if known.running is not None)
                self._running = tuple(running for _, running in live)
            return Snapshot(version=self._version, fleet=self._fleet, pools=self._pools, queue=self._queue,
                            running=self._running, tenants=self._tenants)

    def nodes(self) -> tuple[Node, ...]:
        """The nodes that have not left the fleet, as the last `refresh` read them: one value until they change."""
        with self.lock:
            if self._present is None:
                self._present = tuple(node for node in self._nodes.values()
                                      if node.lifecycle is not NodeLifecycle.GONE)
            return self._present

    @property
    def settled(self) -> bool:
        """No node boots or is to leave, and no pool was asked for a size."""
        with self.lock:
            return not self._unsettled and not self._wanted

    @property
    def version(self) -> int:
        """The store's version that the last `refresh` read."""
        return self._version

    def follow(self, fleet: Fleet) -> None:
        """Plans for another fleet file from the next `refresh` on."""
        with self.lock:
            self._file = fleet
            self._tenants = tuple(facts.tenant_state(tenant) for tenant in fleet.tenants)
            self._blank = True

    def promise(self, reservations: Iterable[Reservation]) -> None:
        """Remembers where a pass expects gangs to start: the next one keeps to it. Others have no promise."""
        with self.lock:
            promises = {kept.gang: Promise(node=kept.nodes[0], at_ms=kept.at_ms) for kept in reservations
                        if kept.nodes and kept.at_ms is not None}
            changed = [gang for gang in {*promises, *self._promises}
                       if promises.get(gang) != self._promises.get(gang) and gang in self._known]
            self._promises = promises
            for gang in changed:
                known = self._known[gang]
                if known.pending is not None:
                    known.pending = replace(known.pending, promise=promises.get(gang))
            self._requeue((), changed)

    def _note(self, gangs: set[str], nodes: set[str]) -> None:
        with self._notes:
            self._touched[0].update(gangs)
            self._touched[1].update(nodes)

    def _take_notes(self) -> tuple[bool, set[str], set[str]]:
        # Inside a transaction: commits are told of before the next one begins, so this is all there is.
        with self._notes:
            blank, self._blank = self._blank, False
            (gangs, nodes), self._touched = self._touched, (set(), set())
        return blank, gangs, nodes

    def _forget(self) -> None:
        self._nodes, self._known, self._slots, self._alike, self._unsettled = {}, {}, {}, {}, set()
        self._durations, self._likely_ends, self._queue, self._pools = Durations(), [], Queue(), ()
        self.dues = Dues()

    def _apply(self, news: Sighting) -> None:
        self._version = news.version
        moved = self._take_nodes(news)
        learned = self._durations.learn(news.successes)
        before = {gang: old for gang in news.gangs if (old := self._known.get(gang)) is not None}
        slots = {old.slot for old in before.values()}
        for gang, row in news.gangs.items():
            self._drop(gang)
            if row is not None and not row.state.final:
                self._add(row, news)
                slots.add(row.slot)
        changed = {*news.gangs, *self._relearn(learned, news.gangs)}
        if moved:
            changed |= self._avoid_anew()
            self._rebuild()
        else:
            self._hold(before, [self._known[gang] for gang in changed if gang in self._known])
        self._requeue(slots, changed)
        self._running = None

    def _take_nodes(self, news: Sighting) -> bool:
        """Whether nodes came or went, or what nodes or pools are is another thing now."""
        moved = False
        if news.nodes:
            self._present = None
        for name, node in news.nodes.items():
            old = self._nodes.get(name)
            self._nodes[name] = node
            (self._unsettled.add if unsettled(node) else self._unsettled.discard)(name)
            if old is None or facts.node_facts(old) != facts.node_facts(node):
                moved = True
        self._wanted = news.wanted
        pools = self._pool_states() if moved or not self._pools else tuple(
            facts.pool_state(pool, state.nodes, self._wanted.get(pool.name))
            for pool, state in zip(self._file.pools, self._pools, strict=True))
        moved |= pools != self._pools
        self._pools = pools
        if not moved:
            for node in news.nodes.values():
                self._serve(self._fleet, node)
        return moved

    def _pool_states(self) -> tuple[PoolState, ...]:
        present: dict[str, int] = {}
        for node in self._nodes.values():
            if node.lifecycle is not NodeLifecycle.GONE:
                present[node.pool] = present.get(node.pool, 0) + 1
        return tuple(facts.pool_state(pool, present.get(pool.name, 0), self._wanted.get(pool.name))
                     for pool in self._file.pools)

    @staticmethod
    def _serve(fleet: FleetState, node: Node) -> None:
        row = fleet.map.row.get(node.name)
        if row is not None:
            fleet.serve(row, usable=node.usable, usable_ms=facts.usable_ms(node))
            fleet.idle[row] = facts.idle_ms(node)

    def _add(self, gang: Gang, news: Sighting) -> None:
        holds = facts.held(news.leases.get(gang.id, ()))
        key = gang.tenant, gang.name
        known = _Known(gang.seq, gang.slot, key, holds, None, None, gang if gang.avoid else None,
                       gang.timeout_ms is None)
        last, exclude = news.attempts.get(gang.id), facts.excluded(gang, self._nodes.values())
        if gang.state is GangState.QUEUED:
            known.pending = facts.pending(gang, last, holds, exclude, self._durations.likely_ms(key),
                                          self._promises.get(gang.id))
        elif gang.state in LIVE and holds and last is not None:
            running = facts.running(gang, last, holds, news.saved_ms.get((gang.id, last.number)), exclude)
            known.likely &= not running.ending
            known.running = self._with_likely_end(running, key) if known.likely else running
        self._known[gang.id] = known
        self.dues.put(gang.id, first_due_ms(gang, last))
        self._slots.setdefault(gang.slot, {})[gang.id] = gang.seq
        if known.likely:
            self._alike.setdefault(key, set()).add(gang.id)

    def _drop(self, gang: str) -> None:
        old = self._known.pop(gang, None)
        if old is None:
            return
        self.dues.put(gang, None)
        _take_out(self._slots, old.slot, gang)
        if gang in self._alike.get(old.key, ()):
            self._alike[old.key].discard(gang)
            if not self._alike[old.key]:
                del self._alike[old.key]

    def _with_likely_end(self, running: RunningGang, key: Key) -> RunningGang:
        likely_ms = self._durations.likely_ms(key)
        if likely_ms is None:
            return running if running.ends_by_ms is None else replace(running, ends_by_ms=None)
        heappush(self._likely_ends, (running.since_ms + likely_ms, running.gang))
        return replace(running, ends_by_ms=running.since_ms + likely_ms)

    def _relearn(self, keys: Iterable[Key], fresh: Collection[str]) -> set[str]:
        """Tells gangs how long their like ran now; the ids of those it changed. `fresh` ones know already."""
        changed = set()
        for key in keys:
            likely_ms = self._durations.likely_ms(key)
            for gang in self._alike.get(key, set()) - set(fresh):
                known = self._known[gang]
                if known.pending is not None:
                    known.pending = replace(known.pending, likely_ms=likely_ms)
                elif known.running is not None:
                    known.running = self._with_likely_end(known.running, key)
                changed.add(gang)
        return changed

    def _outlive(self, now_ms: int) -> None:
        """Of a gang that has run longer than its like, nothing says when it ends."""
        late = []
        while self._likely_ends and self._likely_ends[0][0] <= now_ms:
            at_ms, gang = heappop(self._likely_ends)
            known = self._known.get(gang)
            if known is not None and known.likely and known.running is not None \
                    and known.running.ends_by_ms == at_ms:
                known.running = replace(known.running, ends_by_ms=None)
                late.append(known)
        if late:
            self._hold({}, late)
            self._running = None

    def _avoid_anew(self) -> set[str]:
        """What a gang can avoid depends on what else there is; the ids of gangs that avoid something."""
        avoiding = set()
        for gang, known in self._known.items():
            if known.avoids is not None:
                avoiding.add(gang)
                exclude = facts.excluded(known.avoids, self._nodes.values())
                if known.pending is not None:
                    known.pending = replace(known.pending, exclude=exclude)
                elif known.running is not None and known.running.again is not None:
                    known.running = replace(known.running, again=replace(known.running.again, exclude=exclude))
        return avoiding

    def _rebuild(self) -> None:
        """Maps the fleet anew: nodes came or went."""
        nodes = [node for node in self._nodes.values() if node.lifecycle is not NodeLifecycle.GONE]
        self._fleet = FleetState.empty(FleetMap(map(facts.node_facts, nodes), self._pools))
        for node in nodes:
            self._serve(self._fleet, node)
        self._hold({}, self._known.values())

    def _hold(self, before: Mapping[str, _Known], now: Iterable[_Known]) -> None:
        """Frees what gangs held before and nobody holds now, and leases what they hold now."""
        now = tuple(now)
        kept = {held for known in now for held in known.holds}
        for old in before.values():
            for held in old.holds:
                row = self._fleet.map.row.get(held.node)
                if row is not None and held not in kept:
                    self._fleet.release(row, held.gpus, facts.idle_ms(self._nodes[held.node]))
        for known in now:
            for held in known.holds:
                self._fleet.hold_named(held, known.until_ms)

    def _requeue(self, slots: Iterable[str], changed: Iterable[str]) -> None:
        """Queues the first gang of each slot if it waits; the others wait for that one to be over."""
        drop = [gang for gang in changed if gang not in self._known]
        put = []
        for slot in {*slots, *(self._known[gang].slot for gang in changed if gang in self._known)}:
            gangs = self._slots.get(slot, {})
            first = min(gangs, key=lambda gang: gangs[gang], default=None)
            for gang in gangs:
                wanted = self._known[gang].pending if gang == first else None
                queued = self._queue.get(gang)
                if wanted is not None and wanted is not queued:
                    put.append(wanted)
                elif wanted is None and queued is not None:
                    drop.append(gang)
        self._queue.update(put, drop)


def _take_out(table: dict[str, dict[str, int]], key: str, item: str) -> None:
    table[key].pop(item, None)
    if not table[key]:
        del table[key]
