"""What a server tells a supervisor and what it reports back: level-triggered orders, repeatable reports.

Orders are derived from leases on every poll; a supervisor makes the world agree and acknowledges.
Every report carries (gang, attempt, generation) and may be delivered twice; older generations are
refused by either side.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import Field

from gangline.model.base import Wire
from gangline.model.gang import NodeShare, Progress, RdmaProof
from gangline.model.states import Cause
from gangline.model.volume import FileEntry


class OrderPhase(StrEnum):
    """What a node should be doing for an attempt now."""

    ASSEMBLE = "assemble"  # fetch code, verify versions, get ready; report Ready
    START = "start"  # every node is ready: start the ranks
    STOP = "stop"  # end the whole tree; report Empty


class RankOrder(Wire):
    """One user process to run on this node."""

    rank: int
    local_rank: int
    gpus: tuple[int, ...] = ()


class MountOrder(Wire):
    """A volume for this attempt: where its bytes live, and the version to resume from."""

    mount: str
    volume: str
    root: str
    resume: int | None = None
    resume_dir: str | None = None  # relative to root
    manifest_sha256: str | None = None


class Task(Wire):
    """All a supervisor needs to run its part of an attempt; the same value for the whole attempt."""

    name: str
    slot: str
    tenant: str
    role: str = ""
    command: tuple[str, ...] | None = None
    function: str | None = None
    args: dict[str, Any] = {}
    env: dict[str, str] = {}
    interpreter: str | None = None
    snapshot: str | None = None
    node_rank: int
    ranks: tuple[RankOrder, ...]
    world_size: int
    least: int = 0  # nodes the gang may have, of which `nodes` are those of this attempt
    most: int = 0
    nodes: tuple[NodeShare, ...]
    ranks_by_node: tuple[tuple[int, ...], ...] = ()  # of every node in order; empty: equal shares
    master_addr: str
    master_port: int
    mounts: tuple[MountOrder, ...] = ()
    fabric: str | None = None
    zone: str = ""
    rdma: RdmaProof = RdmaProof()
    emulated: bool = False


class Order(Wire):
    """The wanted phase of one (gang, attempt, generation) on one node."""

    gang: str
    attempt: int
    generation: int
    phase: OrderPhase
    grace_s: float = 0.0  # with STOP: between SIGTERM and SIGKILL
    task: Task | None = None  # with ASSEMBLE and START, once it is known where all nodes of a job are


class Hello(Wire):
    """A supervisor introduces itself after it has swept what an earlier one left behind."""

    node: str
    incarnation: str  # new for every supervisor process
    pid: int
    start_time: float  # of the process, as the kernel tells it
    boot_id: str
    address: str
    warm: bool = False
    gang: str | None = None  # of a supervisor that came with a job: whose attempt it serves
    attempt: int | None = None


class Welcome(Wire):
    """What a supervisor may do: how long to go on when cut off from the server."""

    lease_s: float
    poll_s: float


class Poll(Wire):
    """A long poll: answered at once when the orders differ from `seen`, else after `wait_s`."""

    incarnation: str
    seen: str = ""  # digest of the orders last received
    wait_s: float = Field(default=25.0, ge=0, le=60)


class Orders(Wire):
    """Every order of the node; what is not in it must not run there."""

    digest: str
    orders: tuple[Order, ...] = ()


class _About(Wire):
    gang: str
    attempt: int
    generation: int


class Ready(_About):
    """This node can start its ranks: code unpacked, interpreter found, mounts verified."""

    kind: Literal["ready"] = "ready"


class Damaged(_About):
    """The version to resume from failed verification; the server picks an older one."""

    kind: Literal["damaged"] = "damaged"
    volume: str
    version: int
    text: str


class Started(_About):
    """User code runs on every rank of this node."""

    kind: Literal["started"] = "started"


class RankExit(_About):
    """One rank ended. `result` is its JSON value when it ended well. `peer`: ranks of other nodes were gone, so
    its own node is not to blame."""

    kind: Literal["rank_exit"] = "rank_exit"
    rank: int
    exit_code: int | None = None
    signal: str | None = None
    cause: Cause
    text: str = ""
    peer: bool = False
    last_lines: tuple[str, ...] = ()
    result: Any = None


class Refused(_About):
    """This node cannot run its part: a port taken, code missing, no such interpreter."""

    kind: Literal["refused"] = "refused"
    cause: Cause
    text: str


class Empty(_About):
    """No process of this attempt is left on this node; its lease may close."""

    kind: Literal["empty"] = "empty"


class Advanced(_About):
    """Rank 0's progress."""

    kind: Literal["advanced"] = "advanced"
    progress: Progress


Report = Annotated[Ready | Damaged | Started | RankExit | Refused | Empty | Advanced,
                   Field(discriminator="kind")]


class Reports(Wire):
    """Reports in the order they happened; applied in that order, each at most once in effect."""

    incarnation: str
    reports: tuple[Report, ...]


class OpenSave(_About):
    """A rank begins to write a version; every rank of the attempt gets the same directory."""

    mount: str
    key: str  # names the save within the attempt, the same on all ranks: for example "step-200"
    step: int | None = None


class SaveDir(Wire):
    """The fresh directory of a save, relative to the volume's root."""

    save: int
    directory: str


class RankSaved(_About):
    """One rank's files are on disk and synced; the last report publishes the version."""

    save: int
    rank: int
    files: tuple[FileEntry, ...]
    format: str
    metrics: dict[str, float] = {}
    extra: dict[str, Any] = {}


class SaveState(Wire):
    """Whether a save is published yet, and as which version."""

    save: int
    published: int | None = None
    missing_ranks: tuple[int, ...] = ()
    error: str | None = None


class LogPiece(_About):
    """Bytes of one rank's log at an offset; a piece that is already stored is skipped."""

    rank: int
    offset: int = Field(ge=0)
    data_b64: str
