"""Pools of other systems, from the loop's side: nodes follow what is seen, attempts become jobs, jobs that are
over end their attempts."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial

from gangline.engines.base import JobStatus, SeenNode, job_name
from gangline.model.errors import Conflict
from gangline.model.fleet import Fleet
from gangline.model.node import NodeView
from gangline.model.states import NodeLifecycle
from gangline.scheduler.crew import Crew, Look, Outcome
from gangline.service import jobs, sights
from gangline.service.jobs import Act, Case, Shown
from gangline.store import Store

LAST_LINES = 20
END_S = 20.0  # for jobs to be over when the server is to leave nothing

_log = logging.getLogger("gangline.engines")


@dataclass(slots=True)
class Hosting:
    """All crews of a server, and the attempts that are theirs. One thread, the loop's, calls it."""

    store: Store
    crews: tuple[Crew, ...]
    fleet_id: str
    now_ms: Callable[[], int]
    _cases: dict[str, Case] = field(init=False, default_factory=dict)  # by job name
    _names: dict[str, str] = field(init=False, default_factory=dict)  # of each gang's present job
    _touched: set[str] | None = field(init=False, default=None)  # gangs to read again; None: all of them
    _notes: threading.Lock = field(init=False, default_factory=threading.Lock)
    _looks: dict[int, Look] = field(init=False, default_factory=dict)
    _nodes: dict[int, dict[str, SeenNode]] = field(init=False, default_factory=dict)
    _agreed: dict[int, dict[str, SeenNode]] = field(init=False, default_factory=dict)  # see `sights.follow`
    _over_ms: dict[int, dict[str, int]] = field(init=False, default_factory=dict)  # jobs without an attempt: since when
    _logs: dict[str, tuple[str, ...]] = field(init=False, default_factory=dict)  # the last lines of jobs that failed
    _asked: dict[str, int | None] = field(init=False, default_factory=dict)  # nodes to come up, by when
    _on_news: Callable[[], None] | None = field(init=False, default=None)
    due_ms: int | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self.store.on_commit.append(self._note)

    def start(self, on_news: Callable[[], None]) -> None:
        """Begin to look; `on_news` is called, from any thread, when `observe` has something to take."""
        self._on_news = on_news
        for crew in self.crews:
            crew.on_news = on_news
            crew.start()

    def follow(self, crews: tuple[Crew, ...]) -> None:
        """Other crews from now on. Those whose pools are as they were go on."""
        kept = [next((old for old in self.crews if old.pools == new.pools), new) for new in crews]
        for old in self.crews:
            if not any(old is crew for crew in kept):
                old.stop()
                old.engine.close()
        for crew in kept:
            if not any(crew is old for old in self.crews) and self._on_news is not None:
                crew.on_news = self._on_news
                crew.start()
        self.crews = tuple(kept)
        self._looks, self._nodes, self._agreed, self._over_ms = {}, {}, {}, {}

    def needs(self, fleet: Fleet) -> None:
        """`Conflict` when gangs run in pools of other systems that the fleet has no more: nobody could end them."""
        self._read()
        names = {pool.name for pool in fleet.pools}
        for case in self._cases.values():
            if case.attempt.pool not in names:
                raise Conflict(f"{case.gang.id} runs in pool {case.attempt.pool}, which the file has no more",
                               fix="cancel it or wait for it, then reload")

    def stop(self) -> None:
        """Nothing more is looked at or done. Jobs go on."""
        for crew in self.crews:
            crew.stop()

    def end_jobs(self) -> None:
        """Ends what is left of jobs, such as supervisors that are just leaving. Call after `stop`."""
        for crew in self.crews:
            crew.end_jobs(lambda name: jobs.is_ours(name, self.fleet_id), END_S)

    def close(self) -> None:
        """No engine is asked any more."""
        for crew in self.crews:
            crew.engine.close()

    def _note(self, gangs: set[str], nodes: set[str]) -> None:
        with self._notes:
            if self._touched is not None:
                self._touched |= gangs

    def observe(self) -> None:
        """Takes what the crews have seen and done into the store."""
        self.due_ms = None
        if not self.crews:
            return
        self._read()
        for number, crew in enumerate(self.crews):
            look, outcomes = crew.collect()
            for outcome in outcomes:
                self._note_launch(outcome)
            if look is not None:
                self._agreed[number] = sights.follow(self.store, crew.pools, look.sight.nodes,
                                                     self._agreed.get(number, {}), now_ms=self.now_ms())
                self._nodes[number] = {node.name: node for node in look.sight.nodes}
                self._looks[number] = look  # last: jobs are judged by the nodes of the same look

    def act(self) -> None:
        """Asks the crews for what is missing, and ends attempts whose job is over."""
        if not self.crews:
            return
        self._read()
        for number, crew in enumerate(self.crews):
            self._act_by(number, crew)

    def _read(self) -> None:
        with self._notes:
            touched, self._touched = self._touched, set()
        if touched is not None and not touched:
            return
        try:
            found = jobs.cases(self.store, touched)
        except BaseException:
            with self._notes:
                self._touched = None  # a job whose attempt is not known would be taken for a stray
            raise
        if touched is None:
            self._cases, self._names = {}, {}
        for gang in touched or ():
            self._cases.pop(self._names.pop(gang, ""), None)
        for gang, case in found.items():
            name = job_name(self.fleet_id, gang, case.attempt.number)
            self._cases[name], self._names[gang] = case, name

    def keep_nodes(self, nodes: Iterable[NodeView]) -> None:
        """Asks for nodes that are to come up, each once, and gives back those that were given up."""
        by_pool: dict[str, list[NodeView]] = {}
        for node in nodes:
            by_pool.setdefault(node.pool, []).append(node)
        for crew in self.crews:
            for pool in crew.pools:
                booting = [node for node in by_pool.get(pool.name, ()) if node.lifecycle is NodeLifecycle.BOOTING]
                new = [node for node in booting if self._asked.get(node.node, -1) != node.boot_done_ms]
                if new:
                    self._asked |= {node.node: node.boot_done_ms for node in new}
                    crew.call(f"ask for {', '.join(node.node for node in new)}", partial(crew.engine.provision, new))

    def _note_launch(self, outcome: Outcome) -> None:
        case = self._cases.get(outcome.name)
        if case is None:
            return
        if outcome.log is not None:
            self._logs[outcome.name] = tuple(outcome.log.splitlines()[-LAST_LINES:])
        elif outcome.job is not None:
            jobs.launched(self.store, case, outcome.job, now_ms=self.now_ms())
        elif outcome.final:
            jobs.refused(self.store, case, outcome.error, now_ms=self.now_ms())
        else:
            jobs.told(self.store, case, outcome.error)

    def _act_by(self, number: int, crew: Crew) -> None:
        look, now_ms = self._looks.get(number), self.now_ms()
        shown = {} if look is None else {job.name: job for job in look.sight.jobs}
        pools = {pool.name for pool in crew.pools}
        launches, stops, reads = [], {}, []
        mine = {name: case for name, case in self._cases.items() if case.attempt.pool in pools}
        for name, case in mine.items():
            told = None if look is None or name in look.busy else Shown(
                job=shown.get(name), began_ms=look.began_ms, nodes=self._nodes.get(number, {}))
            match jobs.act_on(case, told, now_ms):
                case Act.LAUNCH:
                    launches.append(jobs.job_of(case, self.fleet_id))
                case Act.RETREAT:
                    why = jobs.taken(case, self._nodes.get(number, {})) or ""
                    jobs.retreat(self.store, case, why, now_ms=now_ms)
                    stops[name] = 0.0
                case Act.STOP:
                    stops[name] = 0.0
                case Act.BURY:
                    assert told is not None
                    if jobs.failed_early(case) and name not in self._logs:
                        reads.append(name)  # what its supervisors said is all there is to know why
                        continue
                    self._due(jobs.bury(self.store, case, told, self._nodes.get(number, {}), now_ms=now_ms,
                                        lease_s=jobs.lease_s(case.attempt, crew.pools),
                                        last_lines=self._logs.pop(name, ())))
                case Act.KEEP:
                    if told is not None and told.job is not None:
                        jobs.told(self.store, case, told.job.text)
        if look is not None:
            stops |= dict.fromkeys(self._strays(number, look, now_ms), 0.0)
        crew.want(launches, stops, reads, active=bool(mine) or bool(self._over_ms.get(number)))

    def _strays(self, number: int, look: Look, now_ms: int) -> list[str]:
        there = {job.name for job in look.sight.jobs if job.status is not JobStatus.ENDED} - self._cases.keys()
        before = self._over_ms.get(number, {})
        self._over_ms[number] = over_ms = {name: before.get(name, now_ms) for name in there}
        return jobs.stray(look.sight.jobs, self.fleet_id, self._cases.keys(), over_ms, now_ms)

    def _due(self, due_ms: int | None) -> None:
        if due_ms is not None:
            self.due_ms = due_ms if self.due_ms is None else min(self.due_ms, due_ms)
