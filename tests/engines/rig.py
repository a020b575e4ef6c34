"""What the conformance suite needs of an engine under test beside the engine itself, and how it looks around."""

from __future__ import annotations

import itertools
import json
import os
import secrets
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol, TypeVar

from hub import Guest, Hub

from gangline.engines.base import Engine, Job, JobNode, JobStatus, SeenJob, SeenNode, job_name
from gangline.engines.supervision import Supervision

FLEET, OTHER_FLEET = "00c0ffee", "0ddba115"
PATIENCE_S = 90.0
MARK_ENV = "GANGLINE_TEST_MARK"
_LOOK_S = 0.1
_T = TypeVar("_T")
_gangs = itertools.count(1)


class Trait(StrEnum):
    """What not every engine has; tests about the others are not run."""

    QUEUE = "queue"  # a job whose nodes are taken waits there
    FRACTIONS = "fractions"  # several jobs may share a node
    DRAIN = "drain"  # the engine has drains of its own
    PATHS = "paths"  # it knows switches
    FOREIGN = "foreign"  # others may run jobs there


class Rig(Protocol):
    """An engine with its real servers, all nodes up and idle when a test begins."""

    engine: Engine
    hub: Hub
    pool: str
    nodes: tuple[str, ...]  # at least 3
    gpu_type: str  # as the engine says it
    gpus: int  # of each node; at least 2
    traits: frozenset[Trait]

    def again(self) -> Engine:
        """Another object for the same engine and fleet: what a server has that was started after a crash."""

    def other_fleet(self) -> Engine:
        """The engine of a server with another fleet, `OTHER_FLEET`, on the same nodes."""

    def occupy(self, node: str, gpus: int) -> Callable[[], None]:
        """A job of somebody else runs on the node when this returns; `gpus` of all of them means the whole
        node. What is returned ends it."""

    def others_drain(self, node: str, reason: str) -> Callable[[], None]:
        """Somebody else drains the node; what is returned lifts it."""

    def kill_node(self, node: str) -> Callable[[], None]:
        """The node loses power; what is returned brings it back."""


def supervision(hub: Hub) -> Supervision:
    """How supervisors that call the hub are started."""
    return Supervision(server_url=hub.url)


@dataclass
class Run:
    """A job as a test asks for it, and as its supervisors and its engine tell of it."""

    rig: Rig
    job: Job
    guest: Guest
    id: str = ""

    @property
    def name(self) -> str:
        return self.job.name

    def launch(self, engine: Engine | None = None) -> str:
        engine = engine or self.rig.engine
        self.id = engine.launch(engine.prepare(self.job), self.guest.token)
        return self.id

    def seen(self, engine: Engine | None = None) -> SeenJob | None:
        return (engine or self.rig.engine).poll_many([self.name]).get(self.name)

    def wait_hello(self) -> None:
        self.rig.hub.wait(lambda: self.guest.hellos.keys() == self.guest.nodes, f"hello of {self.guest.nodes}")

    def wait_started(self) -> None:
        """Until the ranks run on every node."""
        self.rig.hub.wait(lambda: self.guest.reported("started") == self.guest.nodes, "the ranks' start")

    def wait_status(self, status: JobStatus) -> SeenJob:
        def reached() -> SeenJob | None:
            seen = self.seen()
            return seen if seen is not None and seen.status is status else None
        return until(reached, f"{self.name} to be {status}", lambda: self.seen())

    def wait_over(self) -> None:
        """Until the engine says that it has ended, or knows nothing of it any more."""
        until(lambda: (seen := self.seen()) is None or seen.status is JobStatus.ENDED, f"{self.name} to be over",
              lambda: self.seen())

    def processes(self) -> list[str]:
        """All that is left of it on this machine: supervisors and who started them, and ranks."""
        return [*_holding("cmdline", self.name), *_holding("environ", f"{MARK_ENV}={self.name}")]


def ask(rig: Rig, nodes: tuple[str, ...], gpus: int | None = None, *, fleet: str = FLEET, slot: str = "daily/train",
        tenant: str = "default", title: str = "sft") -> Run:
    """A new job on these nodes, whole unless `gpus` is fewer than they have; its token is known to the hub."""
    count = rig.gpus if gpus is None else gpus
    gang = f"g-{os.getpid():x}t{next(_gangs)}"
    name = job_name(fleet, gang, 1)
    job = Job(name=name, gang=gang, attempt=1, pool=rig.pool, slot=slot, tenant=tenant, title=title,
              nodes=tuple(JobNode(node=node, gpus=count, whole=count == rig.gpus) for node in nodes))
    # A rank with a child in a session of its own, which a signal to a process group does not reach.
    code = "import subprocess, time; subprocess.Popen(['sleep', '1000'], start_new_session=True); time.sleep(1000)"
    return Run(rig, job, rig.hub.admit(job, secrets.token_urlsafe(24), (sys.executable, "-S", "-c", code),
                                       {MARK_ENV: name}))


def start(rig: Rig, nodes: tuple[str, ...], gpus: int | None = None, *, fleet: str = FLEET) -> Run:
    """A job that is launched, with a supervisor on each of its nodes."""
    run = ask(rig, nodes, gpus, fleet=fleet)
    run.launch(rig.other_fleet() if fleet != FLEET else None)
    run.wait_hello()
    return run


def look(rig: Rig, node: str, engine: Engine | None = None) -> SeenNode:
    """The node as the engine sees it now."""
    return next(seen for seen in (engine or rig.engine).observe().nodes if seen.name == node)


def until(probe: Callable[[], _T | None], what: str, told: Callable[[], object] = lambda: "",
          within_s: float = PATIENCE_S) -> _T:
    """The first true value of the probe: engines do not say when something changes. Fails with `told()`."""
    deadline_s = time.monotonic() + within_s
    while not (value := probe()):
        assert time.monotonic() < deadline_s, f"waited {within_s:g} s for {what}; now: {told()}"
        time.sleep(_LOOK_S)
    return value


def everywhere(text: str) -> list[str]:
    """Processes of this machine that have the text in their arguments, which anybody may read."""
    return _holding("cmdline", text)


def _holding(file: str, text: str) -> list[str]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            held = (folder / file).read_bytes()
            if text.encode() in held:
                found.append(f"{folder.name} {json.dumps((folder / 'cmdline').read_text(errors='replace'))[:200]}")
        except OSError:
            continue
    return found
