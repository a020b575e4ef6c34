"""Planning: from the picture to a committed plan, its reasons told and the pass kept."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from gangline.model.fleet import Fleet
from gangline.model.node import RefusedPlan
from gangline.plan.check import check
from gangline.plan.differences import lines_of
from gangline.plan.outcome import Plan
from gangline.plan.planner import plan
from gangline.plan.policy import Policy
from gangline.plan.wire import Inputs
from gangline.service import fleet as fleet_service
from gangline.service import loop as loop_service
from gangline.service.backoff import Backoff
from gangline.service.facts import policy_of
from gangline.service.passes import Recorder, decided
from gangline.service.picture import Picture
from gangline.service.reasons import Reasons, Told, record
from gangline.store import Store

FAULT_PAUSE_MS = 1_000
MOST_LINES = 50  # of one pass in the log; the pass itself names all

_log = logging.getLogger("gangline.loop")


@dataclass(slots=True)
class Planning:
    """One pass after another over a picture. `due_ms` is when the next may decide otherwise by itself.

    While it is `holding` there are none: the server is leaving.

    Whoever listens in `on_told` hears whose reason to wait has changed.
    """

    store: Store
    fleet: Fleet
    picture: Picture
    now_ms: Callable[[], int]
    backoff: Backoff
    reasons: Reasons = field(init=False, default_factory=Reasons)
    due_ms: int | None = field(init=False, default=None)
    holding: bool = field(init=False, default=False)
    last: Plan = field(init=False, default_factory=lambda: Plan(base=-1))
    refused: RefusedPlan | None = field(init=False, default=None)  # until a plan is accepted again
    on_told: list[Callable[[Told], None]] = field(init=False, default_factory=list)
    policy: Policy = field(init=False)
    _recorder: Recorder = field(init=False)
    _planned: int = field(init=False, default=-1)  # the store's version that the last plan was for

    def __post_init__(self) -> None:
        self._recorder = Recorder(self.store)
        self.policy = policy_of(self.fleet.scheduling)
        self.store.reasons = self.reasons.wait

    def follow(self, fleet: Fleet) -> None:
        """Plans for another fleet file from the next pass on."""
        self.fleet, self.policy, self._planned = fleet, policy_of(fleet.scheduling), -1
        self.picture.follow(fleet)

    def run(self) -> None:
        """A pass, unless the last one saw the same and nothing is due."""
        if self.holding:
            self.due_ms = None
            return
        now_ms = self.now_ms()
        changed = self.picture.version != self._planned
        if not changed and (self.due_ms is None or now_ms < self.due_ms):
            return
        trigger = "start" if self._planned < 0 else "change" if changed else "time"
        inputs = Inputs(self.picture.snapshot(now_ms), self.policy, now_ms)
        began_ns = time.perf_counter_ns()
        found = plan(inputs.snapshot, inputs.policy, now_ms)
        duration_us = (time.perf_counter_ns() - began_ns) // 1000
        faults = check(inputs.snapshot, found, inputs.policy)
        if faults:
            # A planner fault must not move anything; every gang keeps its state for the next pass.
            self.due_ms = now_ms + FAULT_PAUSE_MS
            self._refuse(inputs, found, faults, trigger, duration_us)
            return
        self._accept()
        version = inputs.snapshot.version
        self._act(inputs, found, trigger, duration_us)
        self._planned, self.due_ms = version, found.due_ms  # what this plan changed is planned for once more

    def _refuse(self, inputs: Inputs, found: Plan, faults: tuple[str, ...], trigger: str, duration_us: int) -> None:
        """Keep the plan, and say so once: it is made again every moment, and most often it is wrong in the same way."""
        last = self.refused
        if last is not None and last.faults == faults:
            return
        number = self._recorder.keep(inputs, self._recorder.pack(inputs, always=True), found, trigger=trigger,
                                     duration_us=duration_us, faults=faults)
        self.refused = RefusedPlan(number=number, faults=faults,
                                   since_ms=inputs.now_ms if last is None else last.since_ms)
        _log.error("pass %d: its plan is refused and nothing moves: %s", number, "; ".join(faults[:MOST_LINES]))

    def _accept(self) -> None:
        if self.refused is not None:
            _log.info("plans are accepted again; pass %d was the last one refused", self.refused.number)
            self.refused = None

    def _act(self, inputs: Inputs, found: Plan, trigger: str, duration_us: int) -> None:
        acts = decided(found)
        packed = self._recorder.pack(inputs) if acts else None
        committed = loop_service.commit_plan(self.store, found, now_ms=inputs.now_ms)
        for gang, reason in committed.refused:
            _log.warning("%s is not as planned: %s", gang, reason)
        for request in found.capacity:
            names = fleet_service.provision(self.store, self.fleet.pool(request.pool), request.nodes,
                                            now_ms=self.now_ms(), backoff=self.backoff)
            _log.info("asked pool %s for %s", request.pool, ", ".join(names) or "nothing")
        told = self.reasons.say(found.waiting, inputs.snapshot, inputs.now_ms)  # now: what failed was not news
        self.last = found
        self.picture.promise(found.reservations)
        record(self.store, self.reasons, told.reworded, inputs.now_ms)
        if acts or told:
            number = self._recorder.keep(inputs, packed, found, trigger=trigger, duration_us=duration_us,
                                         refused=len(committed.refused))
            _say(number, found)
        if told:
            for listener in self.on_told:
                listener(told)


def _say(number: int, found: Plan) -> None:
    """One line for each thing a pass decided; why gangs wait is for those who ask."""
    lines = lines_of(replace(found, reservations=(), waiting=()))
    for line in lines[:MOST_LINES]:
        _log.info("pass %d: %s", number, line)
    if len(lines) > MOST_LINES:
        _log.info("pass %d: and %d more decisions", number, len(lines) - MOST_LINES)
