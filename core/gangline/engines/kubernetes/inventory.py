"""Nodes as the engine protocol tells of them: which pool, what state, where, and what others hold there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from gangline.engines.base import TAG, NodeStatus, SeenNode
from gangline.engines.kubernetes.pod import tolerations
from gangline.engines.kubernetes.seen import Node, Pod, Taint
from gangline.fabric.products import gpu_type
from gangline.fabric.topology.labels import domain_of, path_of, zone_of
from gangline.model.engine import Kubernetes
from gangline.model.fleet import Pool
from gangline.model.gpu import CPU

# A node's Ready condition; a node without one is being added.
READY = {"True": NodeStatus.READY, "False": NodeStatus.DOWN, "Unknown": NodeStatus.DOWN, "": NodeStatus.BOOTING}
# Taints that say what state a node is in. Any other one that pods of ours do not tolerate takes it out of service.
TAINTS = {
    "node.cloudprovider.kubernetes.io/uninitialized": NodeStatus.BOOTING,
    "node.kubernetes.io/network-unavailable": NodeStatus.BOOTING,
    "node.kubernetes.io/not-ready": NodeStatus.DOWN,
    "node.kubernetes.io/unreachable": NodeStatus.DOWN,
    "node.kubernetes.io/out-of-service": NodeStatus.DOWN,
}
_OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
_CORDON = "node.kubernetes.io/unschedulable"  # beside spec.unschedulable, which says the same
_WORST = (NodeStatus.DOWN, NodeStatus.UNKNOWN, NodeStatus.BOOTING, NodeStatus.DRAINED, NodeStatus.READY)
_PRODUCTS = ("nvidia.com/gpu.product", "amd.com/gpu.product-name", "cloud.google.com/gke-accelerator")


def seen_nodes(pools: Sequence[Pool], nodes: Iterable[Node], foreign: Iterable[Pod],
               fleet: str) -> tuple[SeenNode, ...]:
    """Every node that belongs to one of the pools, to the first one whose labels it carries."""
    held: dict[str, list[Pod]] = {}
    for pod in foreign:
        held.setdefault(pod.node, []).append(pod)
    seen = []
    for node in sorted(nodes, key=lambda node: node.name):
        pool = next((pool for pool in pools if _belongs(node, pool)), None)
        if pool is not None:
            seen.append(_seen(node, pool, held.get(node.name, []), fleet))
    return tuple(seen)


def _belongs(node: Node, pool: Pool) -> bool:
    settings = kubernetes(pool)
    if any(node.labels.get(key) != value for key, value in settings.labels.items()):
        return False
    return pool.ask.type == CPU or settings.gpu_resource in node.capacity.keys() | node.allocatable.keys()


def _seen(node: Node, pool: Pool, foreign: list[Pod], fleet: str) -> SeenNode:
    resource = kubernetes(pool).gpu_resource
    status, text = _state(node, pool, fleet)
    holding = {f"{pod.namespace}/{pod.name}": pod.resources[resource] for pod in foreign if resource in pod.resources}
    return SeenNode(
        name=node.name, pool=pool.name, status=status, address=node.address, text=text, gpu_type=_type(node, pool),
        gpu_count=_count(node, pool), path=path_of(node.labels), domain=domain_of(node.labels),
        zone=zone_of(node.labels), foreign_gpus=sum(holding.values()), foreign=tuple(sorted(holding)),
        empty=any(taint.key == _OUT_OF_SERVICE for taint in node.taints))


def _count(node: Node, pool: Pool) -> int:
    return pool.ask.count if pool.ask.type == CPU else node.allocatable.get(kubernetes(pool).gpu_resource, 0)


def _type(node: Node, pool: Pool) -> str:
    if pool.ask.type == CPU:
        return CPU
    product = next((node.labels[key] for key in _PRODUCTS if node.labels.get(key)), None)
    return "" if product is None else gpu_type(product.upper().replace("_", "-"))


def _state(node: Node, pool: Pool, fleet: str) -> tuple[NodeStatus, str]:
    """The worst of what is said about the node, and all that is said."""
    said = [(READY.get(node.ready, NodeStatus.UNKNOWN), "" if node.ready == "True" else _ready_words(node))]
    if node.unschedulable:
        said.append((NodeStatus.DRAINED, _cordon_words(node, fleet)))
    said += [(TAINTS.get(taint.key, NodeStatus.DRAINED), f"taint {taint}") for taint in node.taints
             if taint.key != _CORDON and taint.effect in ("NoSchedule", "NoExecute") and not tolerated(taint, pool)]
    resource = kubernetes(pool).gpu_resource
    lacking = node.capacity.get(resource, 0) - node.allocatable.get(resource, 0)
    words = [text for _, text in said if text] + ([f"{lacking} of {resource} not allocatable"] if lacking > 0 else [])
    return min((status for status, _ in said), key=_WORST.index), "; ".join((*words, *node.problems))


def _ready_words(node: Node) -> str:
    return f"Ready is {node.ready or 'not told'}{f' ({node.ready_text})' if node.ready_text else ''}"


def _cordon_words(node: Node, fleet: str) -> str:
    match node.drained_by:
        case None:
            return "SchedulingDisabled"
        case by if by == fleet:
            return f"{TAG}: {node.drain_reason}"  # by which the server knows its own
        case by:
            return f"drained by fleet {by}: {node.drain_reason}"


def tolerated(taint: Taint, pool: Pool) -> bool:
    """Whether pods of the pool may be started in spite of the taint, by the rules of the scheduler."""
    return any(_matches(toleration, taint) for toleration in tolerations(kubernetes(pool))
               if "tolerationSeconds" not in toleration)


def _matches(toleration: Mapping[str, object], taint: Taint) -> bool:
    if toleration.get("effect") not in (None, "", taint.effect):
        return False
    if toleration.get("operator") == "Exists":
        return toleration.get("key") in (None, "", taint.key)
    return toleration.get("key") == taint.key and (toleration.get("value") or "") == taint.value


def kubernetes(pool: Pool) -> Kubernetes:
    """The settings of a pool of ours."""
    assert pool.kubernetes is not None
    return pool.kubernetes
