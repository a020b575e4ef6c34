"""What the store returns: frozen records, one field per column, never rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from gangline.model.gang import End, NodeShare, Progress, RdmaProof, Resume
from gangline.model.gpu import GpuAsk
from gangline.model.node import Strike
from gangline.model.spec import GangSpec
from gangline.model.states import Cause, GangState, NodeLifecycle, Phase
from gangline.model.volume import FileEntry


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A machine of the fleet. `origin` is "file" (declared), "made" (provisioned) or "seen" (its engine has it);
    "dropped" when the file names it no longer, "retired" when the file names it and its pool does without
    it: asked to, or because it did not come.

    `healthy` is false from the loss of its supervisor until the next one says hello. `idle_ms` is since
    when no lease holds any of it, as long as none does; 0 when that is not known. `strikes` are the ends
    of attempts blamed on it within a day up to the last one.

    Of a node of another system: `foreign_gpus` are those that its other users hold, by their `foreign_jobs`,
    and `engine_text` are its engine's own words on its state.
    """

    name: str
    ordinal: int
    pool: str
    engine: str
    host: str
    gpu_type: str
    gpu_count: int
    zone: str
    fabric: str | None
    path: tuple[str, ...]
    domain: str | None = None
    address: str
    emulated: bool
    origin: Literal["file", "made", "seen", "dropped", "retired"]
    lifecycle: NodeLifecycle
    drain_owner: str | None = None
    drain_reason: str = ""
    healthy: bool = True
    incarnation: str | None = None
    boot_done_ms: int | None = None
    idle_ms: int = 0
    strikes: tuple[Strike, ...] = ()
    foreign_gpus: int = 0
    foreign_jobs: tuple[str, ...] = ()
    engine_text: str = ""
    price_nano_per_gpu_hour: int
    currency: str

    @property
    def gpu(self) -> GpuAsk:
        return GpuAsk(self.gpu_type, self.gpu_count)

    @property
    def usable(self) -> bool:
        """It takes new work now."""
        return self.lifecycle is NodeLifecycle.READY and self.drain_owner is None and self.healthy


@dataclass(frozen=True, slots=True, kw_only=True)
class Gang:
    """A gang. `active` says it holds its slot: it is not final and nobody asked it to end.

    `ran_ms` is the time earlier attempts spent running. `pinned` maps a mount to the version its
    `from` meant at submission. `avoid` are nodes that failed it. `preempted_ms` is when it was last
    preempted, `resized_ms` when its size last changed; 0 for never.
    """

    id: str
    seq: int
    name: str
    slot: str
    epoch: int
    tenant: str
    state: GangState
    active: bool
    spec: GangSpec
    digest: str
    snapshot: str | None
    interpreter: str | None
    pinned: dict[str, int]
    submitted_ms: int
    changed_ms: int
    ended_ms: int | None = None
    previous: str | None = None
    owner: int = 1
    token_hash: str
    watched_ms: int
    orphan_after_ms: int | None = None
    timeout_ms: int | None = None
    ran_ms: int = 0
    generation: int = 0
    attempt: int = 0
    avoid: tuple[str, ...] = ()
    cancel_cause: Cause | None = None
    cancel_text: str | None = None
    end: End | None = None
    progress: Progress = field(default_factory=Progress)
    preempted_ms: int = 0
    resized_ms: int = 0

    @property
    def grace_ms(self) -> int:
        """How long its ranks may take to end when asked to."""
        return round(self.spec.grace * 1000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Success:
    """How long a gang ran that succeeded, all its attempts together."""

    tenant: str
    name: str
    ended_ms: int
    seq: int
    ran_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One run of a gang. `end` is decided first (`stopped_ms`); it is over when `ended_ms` is set.

    `issued_ms` is when its present orders were issued. `want` is the size an elastic gang is told to
    start again with, `give_up` the nodes it gives back when this attempt is down.

    `pool` is where it runs as a job of another system, and None elsewhere. `job` is that system's id of it
    since `launched_ms`; before, it may have been asked for or not. `job_text` are its words on the job.
    """

    gang: str
    number: int
    phase: Phase
    started_ms: int
    issued_ms: int
    running_ms: int | None = None
    stopped_ms: int | None = None
    ended_ms: int | None = None
    zone: str
    fabric: str | None
    master_addr: str
    master_port: int
    world_size: int
    resume: tuple[Resume, ...]
    rdma: RdmaProof
    emulated: bool
    grace_ms: int = 0
    end: End | None = None
    give_up: tuple[str, ...] = ()
    want: int | None = None
    pool: str | None = None
    job: str | None = None
    launched_ms: int | None = None
    job_text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One node's part in an attempt. `empty_ms` is set when no process of it can be left there."""

    gang: str
    attempt: int
    node_rank: int
    node: str
    role: str
    address: str
    gpus: tuple[int, ...]
    gpu_type: str
    incarnation: str | None = None
    ready_ms: int | None = None
    started_ms: int | None = None
    empty_ms: int | None = None
    lost: bool = False

    @property
    def share(self) -> NodeShare:
        return NodeShare(node=self.node, address=self.address, gpus=self.gpus, gpu_type=self.gpu_type,
                         role=self.role)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rank:
    """One user process of an attempt."""

    gang: str
    attempt: int
    rank: int
    node_rank: int
    local_rank: int
    role: str
    state: Literal["waiting", "running", "exited"] = "waiting"
    cause: Cause | None = None
    exit_code: int | None = None
    signal: str | None = None
    result: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """A gang's hold on GPUs of one node, with the price fixed when it opened."""

    id: int
    gang: str
    node: str
    gpus: tuple[int, ...]
    generation: int
    pool: str
    tenant: str
    slot: str
    opened_ms: int
    closed_ms: int | None = None
    price_nano_per_gpu_hour: int
    currency: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A half-open stretch of one lease's time, with its lease and the cause its attempt ended by."""

    lease: Lease
    attempt: int
    phase: Phase
    start_ms: int
    end_ms: int | None
    end: End | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Save:
    """A version being written. `whole`: every rank has reported and `manifest` is fixed."""

    id: int
    gang: str
    attempt: int
    generation: int
    mount: str
    key: str
    volume: str
    directory: str
    step: int | None
    state: Literal["open", "whole", "published", "failed"]
    manifest: str | None = None
    version: int | None = None
    error: str | None = None
    opened_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedRank:
    """What one rank wrote of a save."""

    save: int
    rank: int
    files: tuple[FileEntry, ...]
    format: str
    metrics: dict[str, float]
    extra: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """One pass that decided something or said something new. `plan` and `inputs` are compressed JSON.

    Counts: gangs that waited for it, gangs placed, nodes asked for, gangs that gave nodes back, gangs
    preempted and resized, nodes retired, placements refused when they were committed. With `faults` the
    checker refused the whole plan, and none of it was done.
    """

    id: int
    at_ms: int
    version: int
    duration_us: int
    trigger: str
    policy: str
    pending: int
    placed: int
    asked: int
    released: int
    preempted: int
    resized: int
    retired: int
    refused: int
    size_bytes: int
    plan: bytes
    inputs: bytes | None
    faults: tuple[str, ...] = ()
