"""One engine's crew: looks at it and carries out what is to be done there, so that no pass ever waits for it.

The loop says which jobs there should be, as often as it likes; the crew does what is missing, each job's
calls one after another, and hands back what came of them. It remembers nothing that matters: whatever is
lost with it is seen again.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field

from gangline.engines.base import Job, JobEngine, JobStatus, Sight
from gangline.model.errors import GanglineError, Rejected, Unavailable
from gangline.model.fleet import Pool

LOOK_S = 2.0  # between looks while there are jobs, and between tries of what failed
IDLE_LOOK_S = 10.0
LEAST_LOOK_S = 0.2  # however much there is news of
WORKERS = 4

_log = logging.getLogger("gangline.engines")


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What the engine showed last, by a look that began at `began_ms`. `busy` are jobs that something was being
    done about meanwhile: that they are not shown, or how, says nothing."""

    sight: Sight
    began_ms: int
    busy: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of a launch: the engine's id of the job, or why there is none (`final`: asking again is of no
    use). Or what a job's log says."""

    name: str
    job: str | None = None
    log: str | None = None
    error: str = ""
    final: bool = False


@dataclass(slots=True)
class Crew:
    """Drives one engine in threads of its own. `on_news` is called from them when there is something to collect."""

    engine: JobEngine
    pools: tuple[Pool, ...]
    token_of: Callable[[str, int], str]  # of a gang's attempt
    now_ms: Callable[[], int]
    on_news: Callable[[], None] = lambda: None
    workers: Executor | None = None  # that act; of its own if none is given
    trouble: str = ""  # why the engine could not be looked at, the last time
    _lock: threading.Lock = field(init=False, default_factory=threading.Lock)
    _wake: threading.Event = field(init=False, default_factory=threading.Event)
    _ended: threading.Event = field(init=False, default_factory=threading.Event)
    _look: Look | None = field(init=False, default=None)
    _outcomes: list[Outcome] = field(init=False, default_factory=list)
    _busy: set[str] = field(init=False, default_factory=set)
    _touched: set[str] = field(init=False, default_factory=set)  # busy at any time during the present look
    _not_before_s: dict[str, float] = field(init=False, default_factory=dict)  # what was tried is tried again then
    _soon: bool = field(init=False, default=True)
    _workers: Executor = field(init=False)
    _thread: threading.Thread | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self._workers = self.workers or ThreadPoolExecutor(WORKERS, f"{self.engine.name}-act")

    def start(self) -> None:
        self.engine.on_change(self._nudge)
        self._thread = threading.Thread(target=self._run, name=f"{self.engine.name}-look", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ends after the calls in progress. Jobs go on, and the engine can still be asked."""
        self._ended.set()
        self._wake.set()
        self._workers.shutdown(cancel_futures=True)
        if self._thread is not None:
            self._thread.join()

    def end_jobs(self, ours: Callable[[str], bool], within_s: float) -> None:
        """Ends every job of ours, and waits that long for them to be over. Call after `stop`."""
        deadline_s = time.monotonic() + within_s
        left = ["any"]
        asked: set[str] = set()
        while left and time.monotonic() < deadline_s:
            try:
                left = [job.name for job in self.engine.observe().jobs
                        if job.status is not JobStatus.ENDED and ours(job.name)]
                for name in {*left} - asked:
                    asked.add(name)
                    self.engine.stop(name, within_s / 4)  # its supervisors may be leaving
            except GanglineError as exc:
                _log.warning("%s: its jobs cannot be ended: %s", self.engine.name, exc)
            if left:
                time.sleep(LEAST_LOOK_S)
        if left:
            _log.warning("%s: jobs may be left: %s", self.engine.name, ", ".join(left))

    def collect(self) -> tuple[Look | None, list[Outcome]]:
        """The newest look, None when nothing was seen since the last time, and what came of launches."""
        with self._lock:
            look, self._look = self._look, None
            outcomes, self._outcomes = self._outcomes, []
        return look, outcomes

    def want(self, launches: Collection[Job], stops: Mapping[str, float], reads: Collection[str] = (), *,
             active: bool) -> None:
        """Launches these jobs, stops those (by name, with a grace in seconds) and reads the logs of those, unless
        that is being done.

        `active`: there are jobs, so look often.
        """
        self._soon = active
        for job in launches:
            self._do(job.name, self._launch, job)
        for name, grace_s in stops.items():
            self._do(name, self._end, name, grace_s)
        for name in reads:
            self._do(name, self._read, name)

    def call(self, what: str, function: Callable[[], None]) -> None:
        """Does something else of the engine's in turn: a drain, waking nodes. What fails is logged."""
        self._workers.submit(self._guarded, what, function)

    def _do(self, name: str, function: Callable[..., None], *args: object) -> None:
        with self._lock:
            due_s = self._not_before_s.get(name, 0.0)
            if name in self._busy or self._ended.is_set() or time.monotonic() < due_s:
                return
            self._busy.add(name)
            self._touched.add(name)
        self._workers.submit(self._in_turn, name, function, *args)

    def _in_turn(self, name: str, function: Callable[..., None], *args: object) -> None:
        try:
            function(*args)
        except Exception:  # noqa: BLE001 - a fault of ours about one job must not end the others
            _log.exception("%s: %s failed", self.engine.name, name)
        finally:
            with self._lock:
                self._busy.discard(name)
                self._not_before_s[name] = time.monotonic() + LOOK_S
            self._nudge()

    def _launch(self, job: Job) -> None:
        try:
            request = self.engine.prepare(job)
            outcome = Outcome(name=job.name, job=self.engine.launch(request, self.token_of(job.gang, job.attempt)))
        except Rejected as exc:
            outcome = Outcome(name=job.name, error=str(exc), final=True)
        except Unavailable as exc:
            outcome = Outcome(name=job.name, error=str(exc))
        with self._lock:
            self._outcomes.append(outcome)
        self.on_news()

    def _end(self, name: str, grace_s: float) -> None:
        self._guarded(f"stop {name}", lambda: self.engine.stop(name, grace_s))

    def _read(self, name: str) -> None:
        try:
            log = self.engine.logs(name)
        except Exception as exc:  # noqa: BLE001 - without any word the attempt would never be over
            log = f"its log cannot be read: {exc}"
        with self._lock:
            self._outcomes.append(Outcome(name=name, log=log))
        self.on_news()

    def _guarded(self, what: str, function: Callable[[], None]) -> None:
        try:
            function()
        except GanglineError as exc:
            _log.warning("%s: %s: %s", self.engine.name, what, exc)

    def _nudge(self) -> None:
        self._wake.set()

    def _run(self) -> None:
        while not self._ended.is_set():
            self._wake.clear()
            self.look()
            self._ended.wait(LEAST_LOOK_S)
            self._wake.wait(LOOK_S if self._soon or self.trouble else IDLE_LOOK_S)

    def look(self) -> None:
        """Looks at the engine once; what it showed can be collected."""
        with self._lock:
            self._touched = set(self._busy)
            now_s = time.monotonic()
            self._not_before_s = {name: due_s for name, due_s in self._not_before_s.items() if due_s > now_s}
        began_ms = self.now_ms()
        try:
            sight = self.engine.observe()
        except Exception as exc:  # noqa: BLE001 - an engine that cannot be looked at now is looked at again
            if not isinstance(exc, GanglineError):
                _log.exception("%s cannot be looked at", self.engine.name)
            elif str(exc) != self.trouble:
                _log.error("%s cannot be looked at: %s", self.engine.name, exc)
            self.trouble = str(exc) or type(exc).__name__
            return
        if self.trouble:
            _log.info("%s answers again", self.engine.name)
        self.trouble = ""
        with self._lock:
            self._look = Look(sight=sight, began_ms=began_ms, busy=frozenset(self._touched))
        self.on_news()
