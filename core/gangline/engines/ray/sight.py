"""What Ray's tables mean in our words; pure."""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil

from gangline.engines.base import JobStatus, NodeStatus, SeenJob, SeenNode
from gangline.engines.ray.wire import JobFacts, NodeFacts
from gangline.model.fleet import Pool
from gangline.model.gpu import CPU

# A placement group's states. RESCHEDULING is a lost bundle: what is left of the job is being ended.
GROUP_STATES = {
    "PENDING": JobStatus.WAITING,
    "PREPARED": JobStatus.WAITING,
    "CREATED": JobStatus.RUNNING,
    "RESCHEDULING": JobStatus.RUNNING,
    "REMOVED": JobStatus.ENDED,
}
TIER_LABELS = ("gangline/core", "gangline/spine", "gangline/leaf")  # from the widest to the leaf
ZONE_LABELS = ("gangline/zone", "ray.io/availability-zone")
FABRIC_LABELS = ("gangline/fabric",)
DOMAIN_LABELS = ("gangline/domain", "ray.io/gpu-domain")
TYPE_LABELS = ("gangline/gpu", "ray.io/accelerator-type")


def seen_job(facts: JobFacts) -> SeenJob:
    """A job of ours as the loop knows it."""
    return SeenJob(name=facts["name"], id=facts["id"], status=GROUP_STATES.get(facts["state"], JobStatus.UNKNOWN),
                   nodes=tuple(facts["nodes"]), text=facts["text"])


def seen_node(facts: NodeFacts, pools: Iterable[Pool]) -> SeenNode | None:
    """A node as the loop knows it, in the first pool whose labels it carries; None when it is in none.

    A head without GPUs runs Ray itself and is no node of a pool with GPUs.
    """
    pool = next((pool for pool in pools if _carries(facts, pool)), None)
    if pool is None:
        return None
    unit = unit_of(pool)
    foreign = sum(facts["foreign"].values()) and max(1, ceil(facts["foreign"].get(unit, 0.0)))
    return SeenNode(
        name=facts["name"], pool=pool.name, status=_status(facts), address=facts["address"],
        gpu_type=CPU if unit == "CPU" else _label(facts, TYPE_LABELS) or "",
        gpu_count=int(facts["total"].get(unit, 0)), domain=_label(facts, DOMAIN_LABELS),
        path=tuple(value for tier in TIER_LABELS if (value := facts["labels"].get(tier))),
        zone=_label(facts, ZONE_LABELS), fabric=_label(facts, FABRIC_LABELS),
        foreign_gpus=int(foreign), foreign=tuple(facts["holders"]), text=_text(facts))


def unit_of(pool: Pool) -> str:
    """Ray's resource that a pool's nodes are counted in."""
    return "CPU" if pool.ask.type == CPU else "GPU"


def _carries(facts: NodeFacts, pool: Pool) -> bool:
    assert pool.ray is not None
    if facts["head"] and not facts["total"].get(unit_of(pool)):
        return False
    return all(facts["labels"].get(key) == value for key, value in pool.ray.labels.items())


def _status(facts: NodeFacts) -> NodeStatus:
    if not facts["alive"]:
        return NodeStatus.DOWN
    return NodeStatus.DRAINED if facts["draining"] else NodeStatus.READY


def _text(facts: NodeFacts) -> str:
    if not facts["alive"]:
        return facts["death"]
    return "being drained by Ray" if facts["draining"] else ""


def _label(facts: NodeFacts, keys: Iterable[str]) -> str | None:
    return next((facts["labels"][key] for key in keys if key in facts["labels"]), None)
