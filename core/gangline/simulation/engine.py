"""`replay`: the production planner over a trace, from event to event of a virtual clock."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush

from gangline.model.errors import Bug
from gangline.plan.outcome import Plan
from gangline.plan.planner import decide
from gangline.plan.policy import Policy
from gangline.plan.snapshot import Held, PendingGang, Snapshot
from gangline.simulation.events import Event, Events, Failures, Kind
from gangline.simulation.run import GRACE_MS, Run, saved_ms
from gangline.simulation.site import Site
from gangline.simulation.tally import Tally
from gangline.simulation.trace import Job
from gangline.simulation.world import World

Planner = Callable[[Snapshot, Policy, int], Plan]
Progress = Callable[[int, int, int], None]  # jobs done, jobs, virtual instant (ms)
MAX_FRUITLESS = 1000  # passes that only time asks for and that change nothing, once nothing else will happen
_REPORT_EVERY = 64  # passes


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """What befalls a replay beside its trace. Preempted and failed gangs lose what they did since their
    last checkpoint. 0.0065 failures per node and day is what Meta saw on 16,000 A100 (arXiv 2410.21680)."""

    seed: int = 0
    failures_per_node_day: float = 0.0
    repair_ms: int = 4 * 3_600_000
    checkpoint_ms: int = 30 * 60_000


@dataclass(slots=True, kw_only=True)
class Replay:
    """What a replay came to. Runs without `first_ms` never started. `end_ms` is when the last one ended."""

    policy: Policy
    world: World
    runs: tuple[Run, ...]
    tally: Tally
    pass_ms: list[float]
    end_ms: int


def decisions(snapshot: Snapshot, policy: Policy, now_ms: int) -> Plan:
    """What the planner decides; the reasons of waits, which nobody reads here, are left out."""
    return decide(snapshot, policy, now_ms).bare_plan()


def replay(world: World, gangs: Sequence[tuple[Job, PendingGang]], policy: Policy, conditions: Conditions, *,
           planner: Planner = decisions, timer: Callable[[], float] = time.perf_counter,
           progress: Progress | None = None) -> Replay:
    """Run every gang through the planner; the same arguments give the same result but for `pass_ms`.

    `gangs` are in order of submission. `timer` counts seconds.

    Raises:
        Bug: a plan leases what is leased or out of service.
    """
    return _Engine(world, gangs, policy, conditions, planner, timer).run(progress)


@dataclass(slots=True)
class _Engine:
    world: World
    gangs: Sequence[tuple[Job, PendingGang]]
    policy: Policy
    conditions: Conditions
    planner: Planner
    timer: Callable[[], float]
    site: Site = field(init=False)
    tally: Tally = field(init=False)
    failures: Failures = field(init=False)
    events: Events = field(init=False, default_factory=Events)
    runs: list[Run] = field(init=False, default_factory=list)
    active: dict[str, Run] = field(init=False, default_factory=dict)  # submitted and not done
    saves: list[tuple[int, str, int]] = field(init=False, default_factory=list)
    due_ms: int | None = field(init=False, default=None)
    pass_ms: list[float] = field(init=False, default_factory=list)
    end_ms: int = field(init=False, default=0)
    _preempts: bool = field(init=False)
    _idles: bool = field(init=False)

    def __post_init__(self) -> None:
        self.site = Site(self.world)
        self.tally = Tally(self.site, self.gangs[-1][0].submit_ms if self.gangs else 0)
        self.failures = Failures(self.site.map.names, self.conditions.failures_per_node_day, self.conditions.seed)
        for node in self.world.nodes:
            if node.usable_ms:
                self.events.add(node.usable_ms, Event(Kind.BOOTED, node.name))
        # Nobody reads how far a gang has saved unless it may be preempted: of another priority, or of a cohort.
        self._preempts = self.policy.preempt and (
            len({job.priority for job, _ in self.gangs}) > 1 or any(t.cohort for t in self.world.tenants))
        self._idles = any(pool.warm or pool.idle_ms is not None for pool in self.world.pools)

    def run(self, progress: Progress | None) -> Replay:
        fruitless = 0
        while (now_ms := self._next_ms()) is not None and fruitless < MAX_FRUITLESS:
            self.tally.advance(now_ms)
            changed = self._happen(now_ms)
            if not changed and now_ms != self.due_ms:
                continue
            acted = self._pass(now_ms)
            last = not len(self.events) and len(self.runs) == len(self.gangs)
            fruitless = fruitless + 1 if last and not changed and not acted else 0
            if progress is not None and len(self.pass_ms) % _REPORT_EVERY == 0:
                progress(len(self.runs) - len(self.active), len(self.gangs), now_ms)
        return Replay(policy=self.policy, world=self.world, runs=tuple(self.runs), tally=self.tally,
                      pass_ms=self.pass_ms, end_ms=self.end_ms)

    def _next_ms(self) -> int | None:
        """The next instant at which anything happens; None when all is done or nothing can happen any more."""
        to_come = len(self.runs) < len(self.gangs)
        if not to_come and not self.active:
            return None
        coming = [self.gangs[len(self.runs)][0].submit_ms] if to_come else []
        if (at_ms := self.events.next_ms()) is not None:
            coming.append(at_ms)
        if self.failures.next_ms is not None and coming:  # a failure alone lets nobody start
            coming.append(self.failures.next_ms)
        if self.due_ms is not None:
            coming.append(self.due_ms)
        return min(coming, default=None)

    def _happen(self, now_ms: int) -> bool:
        """Everything of this instant but the pass; whether there is something to plan for."""
        new = []
        while len(self.runs) < len(self.gangs) and self.gangs[len(self.runs)][0].submit_ms <= now_ms:
            run = Run.of(*self.gangs[len(self.runs)])
            self.runs.append(run)
            self.active[run.asked.gang] = run
            new.append(run.asked)
        if new:
            self.site.wait(new)
        changed = bool(new)
        while (event := self.events.pop(now_ms)) is not None:
            changed |= self._one(event, now_ms)
        while (node := self.failures.pop(now_ms)) is not None:
            changed |= self._fail(node, now_ms)
        return changed

    def _one(self, event: Event, now_ms: int) -> bool:
        if event.kind in (Kind.BOOTED, Kind.REPAIRED):
            return self.site.serve(event.name, usable=True, now_ms=now_ms)
        run = self.active.get(event.name)
        if run is None or run.attempt != event.attempt or event.name not in self.site.running:
            return False
        if event.kind is Kind.ENDED:
            self.site.end(event.name, (), now_ms)
            run.finish(now_ms)
            del self.active[event.name]
            self.end_ms = now_ms
        else:
            run.preempted += 1
            self._interrupt(run, (), now_ms)
        return True

    def _interrupt(self, run: Run, kept: tuple[Held, ...], now_ms: int) -> None:
        """An attempt ends before its work is done: the gang waits again, from its last checkpoint."""
        self.site.end(run.asked.gang, kept, now_ms)
        run.interrupt(now_ms, self.conditions.checkpoint_ms, kept)
        self.site.wait([run.pending()])

    def _fail(self, node: str, now_ms: int) -> bool:
        if not self.site.serve(node, usable=False, now_ms=now_ms):
            return False
        self.events.add(now_ms + self.conditions.repair_ms, Event(Kind.REPAIRED, node))
        hit = [run for run in self.active.values() if any(held.node == node for held in run.holds)]
        for run in hit:
            kept = tuple(held for held in run.holds if held.node != node)
            running = self.site.running.get(run.asked.gang)
            if running is None:  # in repair already: a second node of it failed at the same instant
                self._give_back(run, {node}, now_ms)
                continue
            run.failed += 1
            self._interrupt(run, () if running.ending else kept, now_ms)
        return True

    def _give_back(self, run: Run, nodes: set[str], now_ms: int) -> None:
        """A gang that waits for its repair gives back what it holds of these nodes."""
        self.site.give_back(run.asked.gang, (held for held in run.holds if held.node in nodes), now_ms)
        run.holds = tuple(held for held in run.holds if held.node not in nodes)
        self.site.wait([run.pending()])

    # Passes

    def _pass(self, now_ms: int) -> bool:
        """Plan and act until nothing given back is left to plan for; whether anything was decided."""
        self.due_ms = None
        if not len(self.site.queue) and not self._idles:
            self.tally.observe(now_ms, ())
            return False
        self._save(now_ms)
        while True:
            snapshot, began_s = self.site.snapshot(), self.timer()
            decided = self.planner(snapshot, self.policy, now_ms)
            self.pass_ms.append(1000 * (self.timer() - began_s))
            acted = self._act(decided, now_ms)
            if not decided.releases:
                self.tally.observe(now_ms, decided.reservations)
                return acted

    def _act(self, decided: Plan, now_ms: int) -> bool:
        if decided.resizes:
            raise Bug(f"{decided.resizes[0].gang} is to change its size, and no gang of a trace can")
        for preemption in decided.preemptions:
            self._preempt(preemption.gang, now_ms)
        for release in decided.releases:
            self._give_back(self.active[release.gang], set(release.nodes), now_ms)
        for placement in decided.placements:
            self.tally.placed(placement)
            self._start(placement.gang, tuple(Held(node=m.node, gpus=m.gpus) for m in placement.nodes), now_ms)
        if decided.placements:
            self.site.leave(placement.gang for placement in decided.placements)
        for request in decided.capacity:
            boot_ms = next(pool.boot_ms for pool in self.site.pools if pool.name == request.pool)
            for node in self.site.add(request.pool, request.nodes, now_ms + boot_ms):
                self.events.add(now_ms + boot_ms, Event(Kind.BOOTED, node))
        gone = [node for retirement in decided.retirements for node in retirement.nodes]
        if gone:
            self.site.remove(gone)
        self.site.promise({kept.gang: kept.promise for kept in decided.reservations if kept.promise is not None})
        self.due_ms = decided.due_ms if decided.due_ms is not None and decided.due_ms > now_ms else None
        return bool(decided.placements or decided.preemptions or decided.releases or decided.capacity or gone)

    def _start(self, gang: str, holds: tuple[Held, ...], now_ms: int) -> None:
        run = self.active[gang]
        kept = run.holds
        ends_ms = run.start(holds, now_ms)
        self.site.start(run.running(), kept)
        self.events.add(ends_ms, Event(Kind.ENDED, gang, run.attempt))
        if self._preempts:
            heappush(self.saves, (now_ms + self.conditions.checkpoint_ms, gang, run.attempt))

    def _preempt(self, gang: str, now_ms: int) -> None:
        run, running = self.active[gang], self.site.running[gang]
        run.preempted_ms = now_ms
        by_ms = now_ms + GRACE_MS if running.ends_by_ms is None else min(running.ends_by_ms, now_ms + GRACE_MS)
        self.site.change(replace(running, ending=True, ends_by_ms=by_ms, preempted_ms=now_ms))
        self.events.add(now_ms + GRACE_MS, Event(Kind.STOPPED, gang, run.attempt))

    def _save(self, now_ms: int) -> None:
        """Running gangs that may be preempted have saved what they did up to their last checkpoint."""
        every_ms = self.conditions.checkpoint_ms
        while self.saves and self.saves[0][0] <= now_ms:
            _, gang, attempt = heappop(self.saves)
            running, run = self.site.running.get(gang), self.active.get(gang)
            if running is None or run is None or run.attempt != attempt:
                continue
            saved = running.since_ms + saved_ms(now_ms - running.since_ms, every_ms)
            self.site.change(replace(running, saved_ms=saved))
            heappush(self.saves, (saved + every_ms, gang, attempt))
