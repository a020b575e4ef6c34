"""The loop: observe -> plan -> check -> commit -> act, over the whole fleet and every gang.

It runs when something changed, when a deadline is due, and every `BACKSTOP_S` in case a wake-up was
lost. Planning is skipped when nothing a plan depends on has changed since the last one.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gangline.engines.base import Engine, NodeStatus
from gangline.model.errors import GanglineError
from gangline.model.fleet import Fleet
from gangline.model.inventory import FleetChanges
from gangline.model.node import NodeView
from gangline.scheduler.crew import Crew
from gangline.scheduler.hosting import Hosting
from gangline.scheduler.planning import Planning
from gangline.service import fleet as fleet_service
from gangline.service import loop as loop_service
from gangline.service import nodes as node_service
from gangline.service import saves, views
from gangline.service.picture import Picture
from gangline.service.tenants import tenant_changes
from gangline.store import Node, Store

BACKSTOP_S = 5.0
ERROR_PAUSE_S = 1.0

_log = logging.getLogger("gangline.loop")


@dataclass(slots=True)
class Loop:
    """One thread that keeps the world agreeing with the plan; safe to wake from any thread.

    `engines` are those on whose nodes supervisors stand; `hosting` has those of other systems.
    """

    store: Store
    fleet: Fleet
    engines: Mapping[str, Engine]
    volumes_root: Path
    now_ms: Callable[[], int]
    fleet_id: str = ""
    make_crews: Callable[[Fleet], tuple[Crew, ...]] = lambda fleet: ()
    hosting: Hosting = field(init=False)
    picture: Picture = field(init=False)
    planning: Planning = field(init=False)
    _wake: threading.Event = field(init=False, default_factory=threading.Event)
    _stopping: bool = field(init=False, default=False)
    _thread: threading.Thread | None = field(init=False, default=None)
    _turn: threading.Lock = field(init=False, default_factory=threading.Lock)  # held by a pass
    _tending: fleet_service.Tending = field(init=False, default_factory=fleet_service.Tending)
    _views: dict[str, tuple[Node, NodeView]] = field(init=False, default_factory=dict)
    _seen: tuple[Node, ...] | None = field(init=False, default=None)
    _by_engine: dict[str, list[NodeView]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.hosting = Hosting(self.store, self.make_crews(self.fleet), self.fleet_id, self.now_ms)
        self.picture = Picture(self.store, self.fleet)
        self.planning = Planning(self.store, self.fleet, self.picture, self.now_ms, self._tending.backoff)

    def start(self) -> None:
        """Begin; the first pass runs at once and finds again what an earlier server left running."""
        self.picture.begin()
        self.store.on_commit.append(self._committed)
        for engine in self.engines.values():
            engine.on_change(self.wake)
        self.hosting.start(self.wake)
        self._wake.set()
        self._thread = threading.Thread(target=self._run, name="loop", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Run a pass soon."""
        self._wake.set()

    def stop(self) -> None:
        """End after the pass in progress. Nodes and gangs go on."""
        self._stopping = True
        self.wake()
        if self._thread is not None:
            self._thread.join()
        for engine in self.engines.values():
            engine.close()
        self.hosting.stop()

    def adopt(self, fleet: Fleet, *, dry_run: bool = False) -> FleetChanges:
        """Follow another fleet from the next pass on; what that changes. It waits for a pass in progress.

        A crash in between is no harm: the inventory changes in one transaction, and a new server follows
        the file anyway.

        Raises:
            Rejected: a pool needs an engine that this server cannot have. Nothing has changed then.
            Conflict: gangs run in a pool of another system that the file has no more.
        """
        with self._turn:
            self.hosting.needs(fleet)
            crews = self.make_crews(fleet)
            changes = fleet_service.sync_fleet(self.store, fleet, now_ms=self.now_ms(), dry_run=dry_run)
            changes = changes.model_copy(update={"tenants": tenant_changes(self.fleet, fleet)})
            if not dry_run:
                self.fleet = fleet
                self.hosting.follow(crews)
                self.planning.follow(fleet)
                self.picture.refresh()  # what is submitted from now on is judged by it
        self.wake()
        return changes

    def close(self) -> None:
        """Ask no engine any more. The last call."""
        self.hosting.close()

    def shutdown_nodes(self) -> None:
        """End every supervisor with everything it runs, those of other systems' jobs too. Call after `stop`."""
        self.hosting.end_jobs()
        for name, engine in self.engines.items():
            engine.release([node for node in views.nodes(self.store) if node.engine == name])

    def pass_once(self) -> int | None:
        """One whole pass; returns the next instant (ms) at which something is due, if any."""
        with self._turn:
            return self._pass()

    def _pass(self) -> int | None:
        self._look()
        self._observe()
        saves.finish(self.store, now_ms=self.now_ms(), volumes_root=self.volumes_root)
        self._look()
        loop_service.tick(self.store, now_ms=self.now_ms(), dues=self.picture.dues)
        tend_ms = None
        if not (self.picture.settled and self._tending.settled):
            tend_ms = fleet_service.tend(self.store, self.fleet, self._tending, now_ms=self.now_ms())
        self._look()
        self.planning.run()
        self._look()
        boot_ms = self._keep_nodes()
        self.hosting.act()
        dues = (self.picture.dues.next_ms(), tend_ms, boot_ms, self.planning.due_ms, self.hosting.due_ms)
        return min((due for due in dues if due is not None), default=None)

    def _look(self) -> None:
        if self.picture.stale:
            self.picture.refresh()

    def _observe(self) -> None:
        self.hosting.observe()
        for name, engine in self.engines.items():
            spoke = {node.node for node in self._nodes_of(name) if node.incarnation is not None}
            for seen in engine.observe().nodes:
                if seen.status is NodeStatus.DOWN and seen.name in spoke:
                    _log.warning("%s", seen.text)
                    node_service.node_lost(self.store, seen.name, seen.text, now_ms=self.now_ms(), swept=seen.empty)

    def _keep_nodes(self) -> int | None:
        """See that every booted node has a supervisor; when the next one has booted, if any is booting."""
        now_ms, boots_ms = self.now_ms(), []
        for name, engine in self.engines.items():
            nodes = self._nodes_of(name)
            engine.provision([node for node in nodes if (node.boot_done_ms or 0) <= now_ms])
            boots_ms += [node.boot_done_ms for node in nodes if (node.boot_done_ms or 0) > now_ms]
        self.hosting.keep_nodes(self._hosted())
        return min((at_ms for at_ms in boots_ms if at_ms is not None), default=None)

    def _hosted(self) -> Iterable[NodeView]:
        """The nodes of other systems that are to come up."""
        return (node for name, nodes in self._nodes().items() if name not in self.engines for node in nodes)

    def _nodes_of(self, engine: str) -> list[NodeView]:
        """An engine's nodes, without who leases them."""
        return self._nodes().get(engine, [])

    def _nodes(self) -> Mapping[str, list[NodeView]]:
        """All nodes by engine; views are made anew only for nodes that have changed."""
        nodes = self.picture.nodes()
        if nodes is not self._seen:
            self._seen, self._by_engine = nodes, {}
            for node in nodes:
                known = self._views.get(node.name)
                if known is None or known[0] is not node:
                    known = self._views[node.name] = node, views.node_view(node, {}, None)
                self._by_engine.setdefault(node.engine, []).append(known[1])
        return self._by_engine

    def _committed(self, gangs: set[str], nodes: set[str]) -> None:
        if gangs or nodes:
            self.wake()

    def _run(self) -> None:
        wait_s = 0.0
        while not self._stopping:
            self._wake.wait(wait_s)
            self._wake.clear()
            if self._stopping:
                return
            wait_s = self._guarded_pass()

    def _guarded_pass(self) -> float:
        try:
            due_ms = self.pass_once()
        except GanglineError as exc:
            _log.error("pass failed: %s", exc)
            return ERROR_PAUSE_S
        except Exception:  # noqa: BLE001 - a fault in one pass must not end the loop
            _log.exception("pass failed")
            return ERROR_PAUSE_S
        if due_ms is None:
            return BACKSTOP_S
        return min(BACKSTOP_S, max(0.0, (due_ms - self.now_ms()) / 1000))
