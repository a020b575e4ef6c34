"""The nouns of a diagnosis: what a line tells, and what is concluded."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal


class State(StrEnum):
    """What is known of a rank's, or the whole gang's, way off the node."""

    PROVED = "proved"  # every channel off the node is RDMA from GPU memory
    NO_GDR = "rdma-no-gdr"  # RDMA, but some channels are staged through host memory
    FALLBACK = "fallback"  # TCP sockets
    MIXED = "mixed"  # several of these at once
    UNPROVED = "unproved"  # the logs do not say


class Retry(StrEnum):
    """Whether starting the gang again, as it is, can help."""

    NO = "no"
    ONCE = "once"
    YES = "yes"
    EXCLUDE = "after excluding the node blamed"


class Kind(StrEnum):
    """What a cause is to the failure."""

    FAULT = "fault"  # can be the first thing that went wrong
    ELSEWHERE = "elsewhere"  # so can this, and it is not the fabric
    ECHO = "echo"  # follows from a fault of some rank, never the first thing
    WHY = "why"  # no failure by itself: why RDMA or GPUDirect was not taken


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """One thing that goes wrong. `weight` orders causes whose times cannot be compared: the lowest is first."""

    code: str
    title: str
    remedy: str
    retry: Retry
    kind: Kind = Kind.FAULT
    weight: int = 50


@dataclass(frozen=True, slots=True)
class Channel:
    """A connection off the node. `gdr` None: the line was cut before it could say."""

    net: str
    index: int
    gdr: bool | None
    own: int
    peer: int


@dataclass(frozen=True, slots=True)
class OnNode:
    """A connection by NVLink, PCIe or shared memory, inside a node or an NVLink domain."""


@dataclass(frozen=True, slots=True)
class Network:
    """The transport that a communicator chose; what it then does is told by its channels."""

    name: str


@dataclass(frozen=True, slots=True)
class Setting:
    """An environment variable that NCCL says it took."""

    name: str
    value: str


@dataclass(frozen=True, slots=True)
class Comm:
    """A communicator's size and this process's rank in it."""

    rank: int
    size: int


@dataclass(frozen=True, slots=True)
class Shape:
    """Over how many nodes a communicator goes, and whether NVLink joins them."""

    nodes: int | None
    mnnvl: bool


@dataclass(frozen=True, slots=True)
class Devices:
    """The HCAs that the verbs transport lists; it also prints an empty list."""

    names: tuple[str, ...]
    address: str | None = None  # of the node, out of band


@dataclass(frozen=True, slots=True)
class Provider:
    """The libfabric provider that the plugin took."""

    name: str


@dataclass(frozen=True, slots=True)
class Counts:
    """The fewest and the most NICs that ranks have."""

    least: int
    most: int


@dataclass(frozen=True, slots=True)
class Version:
    """NCCL's version."""

    text: str


@dataclass(frozen=True, slots=True)
class Address:
    """An address of the node that printed the line."""

    text: str


@dataclass(frozen=True, slots=True)
class Failed:
    """A line that tells of a cause, and what it names."""

    code: str
    detail: str
    hca: str | None = None
    gid: str | None = None
    peer: str | None = None  # the address of the other end
    peer_gid: str | None = None


Told = (Channel | OnNode | Network | Setting | Comm | Shape | Devices | Provider | Counts | Version | Address
        | Failed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """What failed where. `at_s` is the line's own time, `seq` when it was fed, `source` the stream it came by."""

    told: Failed
    host: str | None
    at_s: float | None
    seq: int
    source: str
    line: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Blame:
    """Whom the first cause points at. Two nodes: the path between them, the logs cannot say which end."""

    nodes: tuple[str, ...] = ()
    rank: str | None = None
    hca: str | None = None
    gid: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RankVerdict:
    """What one rank's lines prove. `rank` is its number, or host:pid or the source where no line tells it."""

    rank: str
    state: State
    reason: str
    host: str | None
    networks: tuple[str, ...]
    channels: int
    gdr_channels: int
    nics: int
    hcas: tuple[str, ...]
    nccl: str | None
    on_node: bool  # it only talks inside its node, so it owes no proof
    stray: bool  # lines that name no rank, in a stream of many: nor does this
    why: tuple[Cause, ...] = ()
    failures: tuple[Failure, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GangVerdict:
    """The whole gang: its state, the first cause with whom it blames, and every rank.

    `order` says how the first cause was found: "time" by the lines' times, "arrival" by where they stand
    in one stream, "weight" because neither could be compared; None without a failure.
    """

    state: State
    reason: str
    cause: Cause | None
    evidence: Failure | None
    blame: Blame
    order: Literal["time", "arrival", "weight"] | None
    ranks: tuple[RankVerdict, ...]
    missing: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def failed(self) -> bool:
        """Whether something went wrong, besides the transport taken."""
        return self.evidence is not None

    @property
    def ok(self) -> bool:
        """Proved, and nothing failed."""
        return self.state is State.PROVED and not self.failed
