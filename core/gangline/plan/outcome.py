"""`Plan`: the outcome of one pass, detailed enough that acting on it leaves no choice."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from gangline.model.gpu import GpuAsk
from gangline.plan.snapshot import Promise


class WaitCode(StrEnum):
    """The rule that kept a gang from being placed."""

    BUSY = "busy"  # nodes that would do are held by other gangs
    RESERVED = "reserved"  # free nodes are kept for a gang before it
    CAPACITY = "capacity"  # nodes are being asked for or are booting
    UNAVAILABLE = "unavailable"  # nodes that would do are drained, unhealthy or gone
    QUOTA = "quota"  # its tenant may not have more
    ORDER = "order"  # the policy lets nobody pass a gang before it
    NEVER = "never"  # nothing the fleet can ever be would do


class NodeChoice(NamedTuple):
    """One member: node, the GPU indices leased there, and the role it plays."""

    node: str
    gpus: tuple[int, ...]
    ask: GpuAsk
    role: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """A whole gang on nodes, in node-rank order (roles in order, by topology inside a role)."""

    gang: str
    nodes: tuple[NodeChoice, ...]
    zone: str  # the nodes' zone; "" when they span several
    fabric: str | None  # the nodes' fabric; None when they span several or have none


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityRequest:
    """Nodes a pool should add, for the gangs named. In flight (booting) nodes are already deducted."""

    pool: str
    nodes: int
    gangs: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """Nodes a gang in repair gives back: all it held when it cannot be completed now, or those that no
    longer serve when it is placed without them. They are free from the next pass on."""

    gang: str
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """Nodes that only this gang may take, and when the plan expects the whole set.

    Until `at_ms` a gang that surely ends before it may use them; with None nobody may.
    """

    gang: str
    nodes: tuple[str, ...]
    at_ms: int | None

    @property
    def promise(self) -> Promise | None:
        """What the next pass keeps to; None when the instant is not known."""
        return Promise(node=self.nodes[0], at_ms=self.at_ms) if self.nodes and self.at_ms is not None else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Preemption:
    """A running gang to end whole, with its grace, so that others can start. It waits again afterwards."""

    gang: str
    gangs: tuple[str, ...]  # for whom
    reclaim: bool = False  # its tenant gives back what it borrowed


@dataclass(frozen=True, slots=True, kw_only=True)
class Resize:
    """A running elastic gang to checkpoint and start again on more or fewer nodes.

    `nodes` are those it gives up; without any it keeps all it has and is placed again, larger.
    """

    gang: str
    size: int
    nodes: tuple[str, ...] = ()
    gangs: tuple[str, ...] = ()  # for whom it shrinks


@dataclass(frozen=True, slots=True, kw_only=True)
class Retirement:
    """Idle nodes that a pool gives back."""

    pool: str
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """Why gangs that ask for the same were not placed: one reason for all of them, in queue order.

    `blocked_by` are gang ids, those that free most first. `short` is the number of nodes missing in the
    best group.
    """

    gangs: tuple[str, ...]
    code: WaitCode
    text: str
    short: int
    blocked_by: tuple[str, ...] = ()
    earliest_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What one pass decided at `now_ms`, over the snapshot of version `base`.

    `due_ms` is the next instant at which a pass over the same snapshot could decide otherwise: a pool's delay is over,
    a gang ages (to the minute), a node has idled for long enough, a gang may be preempted or grow.
    """

    base: int
    now_ms: int = 0
    placements: tuple[Placement, ...] = ()
    capacity: tuple[CapacityRequest, ...] = ()
    releases: tuple[Release, ...] = ()
    reservations: tuple[Reservation, ...] = ()
    preemptions: tuple[Preemption, ...] = ()
    resizes: tuple[Resize, ...] = ()
    retirements: tuple[Retirement, ...] = ()
    waiting: tuple[Waiting, ...] = ()
    due_ms: int | None = None

    def waits(self) -> dict[str, Waiting]:
        """The reason of each gang that waits."""
        return {gang: waiting for waiting in self.waiting for gang in waiting.gangs}
