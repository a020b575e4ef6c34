"""`Picture`: fleet, queue and running gangs in memory, kept equal to the store by what each commit touched."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import islice

from gangline.model.fleet import Fleet
from gangline.model.states import NodeLifecycle
from gangline.plan.fleet import FleetMap, FleetState
from gangline.plan.outcome import Reservation
from gangline.plan.queue import Queue
from gangline.plan.snapshot import PoolState, RunningGang, Snapshot
from gangline.service import facts
from gangline.service.crowd import Crowd, Known
from gangline.service.dues import Dues
from gangline.service.inventory import unsettled
from gangline.service.sighting import Sighting
from gangline.store import Node, Store

MOST_AT_ONCE = 100  # gangs, and nodes, read in one transaction: others must not wait long for their turn


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
        self._begun = False  # nodes and pools were read
        self._whole = False  # and so was every gang
        self._followed = True  # the fleet file that the map was made for is the one to follow
        self._version = 0
        self._wanted: dict[str, int] = {}
        self._nodes: dict[str, Node] = {}
        self._unsettled: set[str] = set()
        self._present: tuple[Node, ...] | None = None
        self._crowd = Crowd()
        self._pools: tuple[PoolState, ...] = ()
        self._fleet = FleetState.empty(FleetMap((), ()))
        self._queue = Queue()
        self._running: tuple[RunningGang, ...] | None = None
        self.inventory = self.look()  # nodes and pools alone, for those who ask what could ever be
        store.on_move.append(self._note)

    def close(self) -> None:
        """Hears of no further commits."""
        self._store.on_move.remove(self._note)

    @property
    def stale(self) -> bool:
        """Something was touched since the last `refresh`."""
        with self._notes:
            return not self._whole or not self._followed or any(self._touched)

    def begin(self) -> None:
        """Reads nodes and pools, once: they tell what could ever be. Gangs are seen from the next `refresh` on."""
        if self._begun:
            return
        with self._store.transaction() as tx:
            with self._notes:
                self._touched = set(), set()  # all of it is read from here on
            news = Sighting.of_nodes(tx)
        with self.lock:
            self._crowd, self._queue = Crowd(), Queue()
            self._nodes, self._unsettled, self._pools = {}, set(), ()
            self._apply(news)
        self._begun = True

    def refresh(self) -> None:
        """Reads what was touched since the last time. Others have their turn in between; yet what it shows then
        is the store at one version, for what changes while it reads is read again."""
        try:
            self.begin()
            if not self._whole:
                self._read_gangs()
            news = self._read_touched()
            with self.lock:
                self._apply(news)
        except BaseException:
            self._begun = self._whole = False  # half a picture is none: the next one is made anew
            raise

    def snapshot(self, now_ms: int) -> Snapshot:
        """The picture as the last `refresh` left it, for a pass at `now_ms`. Valid until the next one.

        Only the thread that refreshes may ask for it: of gangs that have outlived their like by now,
        nothing says any more when they end.
        """
        with self.lock:
            late = self._crowd.outlived(now_ms)
            if late:
                self._hold({}, late)
                self._running = None
            return self.look()

    def look(self) -> Snapshot:
        """What the last `refresh` read. Hold the `lock` while you look at it."""
        with self.lock:
            if self._running is None:
                self._running = self._crowd.running()
            return Snapshot(version=self._version, fleet=self._fleet, pools=self._pools, queue=self._queue,
                            running=self._running, tenants=self._tenants)

    def still(self) -> Snapshot:
        """The same with a fleet of its own, which stays as it is now; its queue goes on."""
        with self.lock:
            seen = self.look()
            return replace(seen, fleet=seen.fleet.copy())

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
    def dues(self) -> Dues:
        """When each gang is due by the clock."""
        return self._crowd.dues

    @property
    def version(self) -> int:
        """The store's version that the last `refresh` read."""
        return self._version

    def follow(self, fleet: Fleet) -> None:
        """Plans for another fleet file from the next `refresh` on."""
        with self.lock:
            self._file = fleet
            self._tenants = tuple(facts.tenant_state(tenant) for tenant in fleet.tenants)
            self._followed = False

    def promise(self, reservations: Iterable[Reservation]) -> None:
        """Remembers where a pass expects gangs to start: the next one keeps to it. Others have no promise."""
        with self.lock:
            self._crowd.requeue(self._queue, (), self._crowd.promise(reservations))

    def _note(self, gangs: set[str], nodes: set[str]) -> None:
        with self._notes:
            self._touched[0].update(gangs)
            self._touched[1].update(nodes)

    def _read_gangs(self) -> None:
        after: int | None = 0
        while after is not None:
            with self._store.transaction() as tx:
                page = Sighting.page(tx, after, MOST_AT_ONCE)
            with self.lock:
                self._apply(page)
            after = max((gang.seq for gang in page.gangs.values() if gang is not None), default=None)
        self._whole = True

    def _read_touched(self) -> Sighting:
        """What was touched, all of it: only when nothing is left do several transactions tell of one version."""
        news, left = Sighting(), True
        while left:
            with self._store.transaction() as tx:
                gangs, nodes, left = self._take_notes()
                news.add(Sighting.of(tx, gangs, nodes))
        return news

    def _take_notes(self) -> tuple[set[str], set[str], bool]:
        """Some of what was touched, and whether more is left."""
        # Inside a transaction: commits are told of before the next one begins, so this is all there is.
        with self._notes:
            gangs, nodes = (set(islice(noted, MOST_AT_ONCE)) for noted in self._touched)
            self._touched[0].difference_update(gangs)
            self._touched[1].difference_update(nodes)
            return gangs, nodes, any(self._touched)

    def _apply(self, news: Sighting) -> None:
        self._version = news.version
        moved = self._take_nodes(news)
        changed, slots, before = self._crowd.take(news, self._nodes.values())
        if moved:
            changed |= self._crowd.avoid_anew(self._nodes.values())
            self._rebuild()
            self.inventory = Snapshot(version=self._version, fleet=self._fleet, pools=self._pools, queue=Queue())
        else:
            known = self._crowd.known
            self._hold(before, [known[gang] for gang in changed if gang in known])
        self._crowd.requeue(self._queue, slots, changed)
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
        if not self._followed:
            self._followed = moved = True
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
            fleet.lend(row, node.foreign_gpus)
            fleet.idle[row] = facts.idle_ms(node)

    def _rebuild(self) -> None:
        """Maps the fleet anew: nodes came or went."""
        nodes = [node for node in self._nodes.values() if node.lifecycle is not NodeLifecycle.GONE]
        self._fleet = FleetState.empty(FleetMap(map(facts.node_facts, nodes), self._pools))
        for node in nodes:
            self._serve(self._fleet, node)
        self._hold({}, self._crowd.known.values())

    def _hold(self, before: Mapping[str, Known], now: Iterable[Known]) -> None:
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
