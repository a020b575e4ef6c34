"""An engine in memory, for tests of what drives engines: jobs start, end and vanish when it is told so."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace

from gangline.engines.base import TAG, Job, JobStatus, NodeStatus, Request, SeenJob, SeenNode, Sight
from gangline.model.errors import Rejected
from gangline.model.node import NodeView


@dataclass(slots=True)
class FakeEngine:
    """Nodes and jobs as a test sets them. It passes the conformance suite, without processes.

    `fault` is raised by the next call that reaches the engine, once; `after` runs right after a launch has
    taken effect, where a crash would leave a job that nobody has noted.
    """

    nodes: dict[str, SeenNode]
    name: str = "fake"
    jobs: dict[str, SeenJob] = field(default_factory=dict)
    tokens: dict[str, str] = field(default_factory=dict)
    launches: list[str] = field(default_factory=list)  # by name, only those that made a job
    fault: Exception | None = None
    refusal: str = ""  # why it takes no job, while it does not
    after: Callable[[], None] = lambda: None
    waits: bool = False  # jobs wait until `begin`
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _callback: Callable[[], None] = lambda: None

    def observe(self) -> Sight:
        with self._reached():
            return Sight(nodes=tuple(self.nodes.values()), jobs=tuple(self.jobs.values()))

    def prepare(self, job: Job) -> Request:
        for part in job.nodes:
            if part.node not in self.nodes:
                raise Rejected(f"there is no node {part.node} here", field="nodes")
        return Request(job=job, text=f"{job.name} on {', '.join(part.node for part in job.nodes)}", body=job)

    def launch(self, request: Request, token: str) -> str:
        with self._reached():
            job = request.job
            if self.refusal:
                raise Rejected(self.refusal)
            if job.name not in self.jobs:
                status = JobStatus.WAITING if self.waits else JobStatus.RUNNING
                self.jobs[job.name] = SeenJob(name=job.name, id=f"fake-{len(self.launches) + 1}", status=status,
                                              nodes=tuple(part.node for part in job.nodes))
                self.tokens[job.name] = token
                self.launches.append(job.name)
            self.after()
            self._callback()
            return self.jobs[job.name].id

    def poll_many(self, names: Collection[str]) -> Mapping[str, SeenJob]:
        with self._reached():
            return {name: self.jobs[name] for name in names if name in self.jobs}

    def stop(self, name: str, grace_s: float) -> None:
        with self._reached():
            self.end(name, "stopped")

    def logs(self, name: str) -> str:
        return f"{name} was started" if name in self.jobs else ""

    def provision(self, nodes: Collection[NodeView]) -> None:
        with self._reached():
            for node in nodes:
                self.set_node(node.node, status=NodeStatus.READY)

    def release(self, nodes: Collection[NodeView]) -> None:
        with self._reached():
            for node in nodes:
                self.set_node(node.node, status=NodeStatus.ASLEEP)

    def drain(self, node: str, reason: str) -> None:
        if self.nodes[node].status is not NodeStatus.DRAINED:
            self.set_node(node, status=NodeStatus.DRAINED, text=f"{TAG}: {reason}")

    def resume(self, node: str) -> None:
        if self.nodes[node].text.startswith(TAG):
            self.set_node(node, status=NodeStatus.READY, text="")

    def reboot(self, node: str) -> None:
        raise Rejected("a fake node cannot be rebooted")

    def on_change(self, callback: Callable[[], None]) -> None:
        self._callback = callback

    def close(self) -> None:
        self._callback = lambda: None

    def begin(self, name: str) -> None:
        """A waiting job starts."""
        self._set_job(name, JobStatus.RUNNING, "")

    def end(self, name: str, text: str) -> None:
        """A job ends, if there is one of that name."""
        if name in self.jobs:
            self._set_job(name, JobStatus.ENDED, text)

    def set_node(self, name: str, **values: object) -> None:
        """A node is seen otherwise from now on."""
        with self._lock:
            self.nodes[name] = replace(self.nodes[name], **values)  # type: ignore[arg-type]
        self._callback()

    def _set_job(self, name: str, status: JobStatus, text: str) -> None:
        with self._lock:
            self.jobs[name] = replace(self.jobs[name], status=status, text=text)
        self._callback()

    def _reached(self) -> threading.RLock:
        fault, self.fault = self.fault, None
        if fault is not None:
            raise fault
        return self._lock
