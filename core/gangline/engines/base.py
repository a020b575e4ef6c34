"""The protocol between the loop and whatever runs nodes and jobs. An internal seam, free to change.

Words. A *node* is a machine as the engine names it. A *job* is one attempt of one gang on one engine: one
supervisor on each of its nodes, all or none. Its name is made of the gang and the attempt alone, so that
whoever asks again, after a crash too, finds the one job there is. Nothing here decides anything.

Two kinds of engine. On this machine (`Engine` alone) a supervisor stands on every node before work comes and
serves all gangs there. Elsewhere (`JobEngine`: Slurm, Ray, Kubernetes) supervisors come and go with their job.

Errors. Every call that reaches an engine raises `Unavailable` when the engine does not answer now (asking
again is right, and harmless) and `Rejected` when it refuses what was asked, with its own words.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from gangline.model.node import NodeView

TAG = "gangline"  # what our jobs' names, and our reasons for drains, begin with


class NodeStatus(StrEnum):
    """What an engine says of a node, in our words. Each engine maps its own states by one literal table;
    a state that is not in it is UNKNOWN."""

    READY = "ready"  # it runs our jobs, now or when what holds it now has ended
    DRAINED = "drained"  # taken out of service there: what runs goes on, nothing new starts
    BOOTING = "booting"  # being powered up or added
    ASLEEP = "asleep"  # powered down; `provision` wakes it
    DOWN = "down"  # it does not answer
    UNKNOWN = "unknown"  # nothing is started there


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenNode:
    """A node as its engine sees it.

    `gpu_type` is as the engine writes it, "" when it does not say. `path` are its switches from the widest
    to the leaf. `foreign_gpus` are those that jobs of others hold, at least 1 while such a job runs there at
    all; `foreign` names the jobs. `text` are the engine's own words about its state. `empty` says of a node
    that is DOWN that no process of ours can be left on it.
    """

    name: str
    pool: str
    status: NodeStatus
    address: str = ""
    gpu_type: str = ""
    gpu_count: int = 0
    path: tuple[str, ...] = ()
    domain: str | None = None
    zone: str | None = None
    fabric: str | None = None
    foreign_gpus: int = 0
    foreign: tuple[str, ...] = ()
    text: str = ""
    empty: bool = False


class JobStatus(StrEnum):
    """What has become of a job, in our words."""

    WAITING = "waiting"  # the engine has it and has not started it
    RUNNING = "running"  # its supervisors are started, or being started or ended
    ENDED = "ended"  # no process of it is left on any node that answers
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenJob:
    """A job as its engine sees it. `id` is the engine's own; `text` its words on why it waits or how it ended."""

    name: str
    id: str
    status: JobStatus
    nodes: tuple[str, ...] = ()
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """All nodes of an engine's pools, and every job of ours that it has or remembers."""

    nodes: tuple[SeenNode, ...] = ()
    jobs: tuple[SeenJob, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class JobNode:
    """One node's part in a job: GPUs are counted here, for which ones it gets is the engine's to say.

    `whole` means that nobody else may run there meanwhile.
    """

    node: str
    gpus: int
    whole: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One attempt of a gang for an engine to start, on exactly these nodes of one pool."""

    name: str
    gang: str
    attempt: int
    pool: str
    slot: str
    tenant: str
    title: str  # the name its user gave it
    nodes: tuple[JobNode, ...]
    limit_s: float | None = None  # how long it may run in all; None: no limit


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What an engine would be asked for a job, printable: no secret is in it. `text` is for people;
    `body` is what `launch` sends, in the engine's own form."""

    job: Job
    text: str
    body: object


class Engine(Protocol):
    """Provides nodes. Every call may be repeated and then does nothing new."""

    name: str

    def observe(self) -> Sight:
        """Nodes and jobs as they are now, in as few calls of the engine as it takes whatever their number."""

    def provision(self, nodes: Collection[NodeView]) -> None:
        """Sees to it that these nodes come up: wakes them, or starts the supervisors that stand on them."""

    def release(self, nodes: Collection[NodeView]) -> None:
        """Gives these nodes back; where supervisors stand, they end with everything they run."""

    def on_change(self, callback: Callable[[], None]) -> None:
        """Call `callback` (from any thread) whenever `observe` may have something new, where the engine
        says so by itself; others are looked at every few seconds."""

    def close(self) -> None:
        """Stop watching. Jobs and supervisors go on."""


class JobEngine(Engine, Protocol):
    """Provides nodes of another system, and starts supervisors there, job by job."""

    def prepare(self, job: Job) -> Request:
        """What would be asked for the job; pure.

        Raises:
            Rejected: the engine could never be asked for that, whatever its state.
        """

    def launch(self, request: Request, token: str) -> str:
        """Asks for the whole job at once, unless the engine has one of that name already; its id.

        `token` lets its supervisors speak to the server; it travels in no argument and no log.
        """

    def poll_many(self, names: Collection[str]) -> Mapping[str, SeenJob]:
        """Those of the jobs that the engine has or remembers."""

    def stop(self, name: str, grace_s: float) -> None:
        """Ends the job: its supervisors are asked to leave, and after the grace nothing of it is left on any
        node that answers. Returns before that; a job that is over or unknown is no error."""

    def logs(self, name: str) -> str:
        """What the supervisors and their starter have said so far, the last 64 kB of it."""

    def drain(self, node: str, reason: str) -> None:
        """Takes the node out of the engine's service too, in our name. A drain that is not ours stays as it is."""

    def resume(self, node: str) -> None:
        """Lifts a drain of ours; one of others stays."""

    def reboot(self, node: str) -> None:
        """Has the engine reboot the node once it is idle; Rejected where it cannot."""


def job_name(fleet: str, gang: str, attempt: int) -> str:
    """The name of an attempt's job, safe for every engine: at most 63 of a-z, 0-9 and "-".

    `fleet` tells the servers apart that share an engine: 8 hex digits.
    """
    return f"{TAG}-{fleet}-{gang.removeprefix('g-')}-{attempt}"


_NAME = re.compile(rf"{TAG}-([0-9a-f]{{8}})-([a-z0-9]+)-(\d+)")


def parse_job_name(name: str) -> tuple[str, str, int] | None:
    """(fleet, gang, attempt) of a name that `job_name` made; None for every other."""
    match = _NAME.fullmatch(name)
    return None if match is None else (match[1], f"g-{match[2]}", int(match[3]))
