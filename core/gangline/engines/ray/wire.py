"""What the server and its envoy tell each other: JSON lines, one call at a time.

    in   {"call": NAME, "args": {…}}
    out  {"ok": …} | {"error": WIRE FORM OF THE ERROR}      the answer
         {"event": "changed"}                               at any time: a look may show something new
"""

from __future__ import annotations

from typing import Any, NotRequired, TypedDict


class NodeFacts(TypedDict):
    """A node as Ray's tables have it, with the name we know it by."""

    name: str
    id: str
    address: str
    alive: bool
    head: bool
    draining: bool
    death: str  # why it died, in Ray's words
    labels: dict[str, str]
    total: dict[str, float]
    foreign: dict[str, float]  # resources that others hold
    holders: list[str]  # who they are


class JobFacts(TypedDict):
    """A placement group of ours, or what is remembered of one."""

    name: str
    id: str
    state: str  # of the placement group
    nodes: list[str]
    text: str


class BundleAsk(TypedDict):
    """One node's part of a job: `counted` of its resource `unit`, or all it has, and `extra` of others."""

    node: str
    unit: str  # GPU or CPU
    counted: int
    whole: bool
    extra: dict[str, float]


class JobAsk(TypedDict):
    """What `launch` sends: everything but the token."""

    name: str
    argv: list[str]
    bundles: list[BundleAsk]


class Look(TypedDict):
    """Nodes and jobs as they are now."""

    nodes: list[NodeFacts]
    jobs: list[JobFacts]


class Reply(TypedDict):
    """A line of the envoy's."""

    ok: NotRequired[Any]
    error: NotRequired[dict[str, Any]]
    event: NotRequired[str]
