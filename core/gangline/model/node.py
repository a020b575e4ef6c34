"""Nodes as the inventory knows them, and what a server says of itself."""

from __future__ import annotations

from collections.abc import Sequence

from gangline.model.base import Wire
from gangline.model.states import Cause, NodeLifecycle


class DrainView(Wire):
    """Who took a node out of service and why; only its owner lifts it."""

    owner: str
    reason: str = ""


class Strike(Wire):
    """The end of an attempt that was blamed on a node."""

    gang: str
    attempt: int
    cause: Cause
    at_ms: int


MANY_STRIKES = 3


def suspicious(strikes: Sequence[Strike]) -> bool:
    """Several gangs at several times: a loss that hit many gangs at once counts once."""
    return min(len({strike.gang for strike in strikes}), len({strike.at_ms for strike in strikes})) >= MANY_STRIKES


class NodeView(Wire):
    """One node: what it is, where it is, and whether it takes work."""

    node: str
    pool: str
    engine: str
    gpu_type: str
    gpu_count: int
    zone: str
    fabric: str | None = None
    path: tuple[str, ...] = ()
    domain: str | None = None  # of NVLink
    address: str = ""
    emulated: bool = False
    lifecycle: NodeLifecycle
    drain: DrainView | None = None
    healthy: bool = True
    free_gpus: tuple[int, ...] = ()
    gangs: tuple[str, ...] = ()
    incarnation: str | None = None
    seen_ms: int | None = None
    price_nano_per_gpu_hour: int = 0
    currency: str = "USD"
    boot_done_ms: int | None = None  # with lifecycle booting: when it is expected
    strikes: tuple[Strike, ...] = ()  # within a day up to the last one

    @property
    def takes_work(self) -> bool:
        return self.lifecycle is NodeLifecycle.READY and self.drain is None and self.healthy


class RefusedPlan(Wire):
    """The last plan broke a rule and nothing of it was done: what is wrong with it, since when, and the pass."""

    number: int
    since_ms: int
    faults: tuple[str, ...]


class ServerStatus(Wire):
    """A server as `gangline status` shows it."""

    version: str
    schema_version: int = 1
    pid: int
    home: str | None = None
    url: str
    started_ms: int
    fleet: str | None = None
    active_gangs: int = 0
    queued_gangs: int = 0
    watchers: int = 0
    nodes: tuple[NodeView, ...] = ()
    refused_plan: RefusedPlan | None = None
