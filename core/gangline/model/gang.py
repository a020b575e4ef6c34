"""What clients ask of a server and what it tells them back: requests, replies and views of a gang."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from gangline.model.base import Wire
from gangline.model.spec import GangSpec
from gangline.model.states import Cause, GangState


class Submission(Wire):
    """One gang to ensure in a slot.

    A slot names one pipeline step of one run in one named deployment; `epoch` says how often it was
    deliberately started anew. `snapshot` is the SHA-256 of the uploaded code archive, if any.
    `interpreter` is the submitter's Python, used unless the spec names one.
    """

    slot: str = Field(min_length=1, max_length=512)
    epoch: int = Field(default=0, ge=0)
    spec: GangSpec
    snapshot: str | None = Field(default=None, pattern=r"^[0-9a-f]{64}$")
    interpreter: str | None = None

    def digest(self) -> str:
        return self.spec.digest(self.snapshot)


class Ensured(Wire):
    """The slot's gang, the right to act for it, and whether this call made it."""

    gang: str
    token: str
    created: bool
    state: GangState


class Holder(Wire):
    """A gang that holds what another one waits for."""

    gang: str
    name: str
    slot: str
    tenant: str


class Wait(Wire):
    """Why a gang is not placed, as the last plan saw it.

    `code` is a plan's `WaitCode` (busy, reserved, capacity, unavailable, never), or "order" while the
    gang it replaces still holds its nodes. `short` is the number of nodes missing in the best group;
    `earliest_ms` is when the plan expects to start it, if it knows.
    """

    code: str
    text: str
    short: int = 0
    blocked_by: tuple[Holder, ...] = ()
    earliest_ms: int | None = None


class End(Wire):
    """How an attempt or a gang ended, with the evidence a person needs first."""

    cause: Cause
    text: str
    rank: int | None = None
    node: str | None = None
    exit_code: int | None = None
    signal: str | None = None
    last_lines: tuple[str, ...] = ()


class RankView(Wire):
    """One user process of the current or last attempt."""

    rank: int
    role: str = ""
    node: str
    local_rank: int
    state: Literal["waiting", "running", "exited"]
    exit_code: int | None = None
    signal: str | None = None
    result: Any = None


class NodeShare(Wire):
    """One node of an attempt in node-rank order: its address and the GPUs leased there."""

    node: str
    address: str
    gpus: tuple[int, ...]
    gpu_type: str
    role: str = ""


class RdmaProof(Wire):
    """What `rdma: true` got. Unknown is not healthy: `proved` is true only after a preflight."""

    requested: bool = False
    proved: bool = False
    emulated: bool = False


class Resume(Wire):
    """The version a mount resumes from."""

    mount: str
    volume: str
    version: int


class AttemptView(Wire):
    """One run of a gang on a set of leases."""

    number: int
    nodes: tuple[NodeShare, ...]
    zone: str = ""
    fabric: str | None = None
    started_ms: int
    running_ms: int | None = None
    ended_ms: int | None = None
    resume: tuple[Resume, ...] = ()
    rdma: RdmaProof = RdmaProof()
    emulated: bool = False
    end: End | None = None


class Progress(Wire):
    """What rank 0 last reported of itself."""

    step: int | None = None
    total: int | None = None
    metrics: dict[str, float] = {}
    at_ms: int = 0


class VersionRef(Wire):
    """A committed version as it is named everywhere: volume@number."""

    volume: str
    version: int
    step: int | None = None
    metrics: dict[str, float] = {}
    manifest_sha256: str = ""

    @property
    def uri(self) -> str:
        return f"{self.volume}@{self.version}"


class GangView(Wire):
    """A gang as anyone may observe it."""

    gang: str
    name: str
    slot: str
    epoch: int
    tenant: str
    state: GangState
    spec: GangSpec
    digest: str
    submitted_ms: int
    changed_ms: int
    ended_ms: int | None = None
    previous: str | None = None  # the gang that ended before this one in the same slot
    wait: Wait | None = None
    attempts: tuple[AttemptView, ...] = ()
    ranks: tuple[RankView, ...] = ()
    progress: Progress = Progress()
    versions: tuple[VersionRef, ...] = ()  # committed by this gang, oldest first
    end: End | None = None
    cancel_requested: str | None = None  # who asked and why
    cost_nano: int = 0
    currency: str = "USD"

    @property
    def result(self) -> Any:
        """Rank 0's value; None until it has ended well."""
        return next((r.result for r in self.ranks if r.rank == 0), None)


class Event(Wire):
    """One thing that happened, numbered over the whole store without gaps in order."""

    seq: int
    at_ms: int
    kind: str
    gang: str | None = None
    data: dict[str, Any] = {}


class Watched(Wire):
    """News for an owner: the gang now, and the events after the cursor it gave."""

    view: GangView
    events: tuple[Event, ...] = ()
    cursor: int = 0


class LogChunk(Wire):
    """Text of one rank's log of one attempt from a byte offset; `next` is where to go on."""

    attempt: int
    rank: int
    text: str
    offset: int
    next: int


class UsageRow(Wire):
    """Seconds and money of one group of intervals. `cost_nano` parts sum to the whole exactly."""

    by: dict[str, str]
    gpu_ms: int
    node_ms: int
    cost_nano: int
    currency: str
