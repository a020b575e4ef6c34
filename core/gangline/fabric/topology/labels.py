"""Labels of Kubernetes nodes: Topograph's, its older families, and those of the clouds."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from gangline.fabric.products import gpu_type
from gangline.fabric.topology.marked import line_of
from gangline.fabric.topology.values import Finding, Place, Source, Topology
from gangline.model.gpu import CPU
from gangline.model.spec import check_name

FORMAT = "k8s"

Labels = Mapping[str, str]

_OLD = "network.topology.nvidia.com/"
_OCI = "oci.oraclecloud.com/rdma."
# Families by precedence. Numbered keys count outwards from the node, or inwards from the root.
_OUTWARDS = (re.compile(r"fabric\.topograph\.run/tier-(\d+)"), re.compile(re.escape(_OLD) + r"tier-(\d+)"))
_NAMED = (
    ((f"{_OLD}core", f"{_OLD}datacenter"), (f"{_OLD}spine",), (f"{_OLD}leaf", f"{_OLD}block")),
    (("cloud.google.com/gce-topology-block",), ("cloud.google.com/gce-topology-subblock",)),
    ((f"{_OCI}hpc_island_id",), (f"{_OCI}network_block_id",), (f"{_OCI}local_block_id",)),
)
_INWARDS = re.compile(r"topology\.k8s\.aws/network-node-layer-(\d+)")
_DOMAINS = ("accelerator.topograph.run/domain", f"{_OLD}accelerator", "nvidia.com/gpu.clique",
            "topology.k8s.aws/ultraserver-id")
_ZONES = ("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone")


def read_nodes(documents: Iterable[object], name: str) -> Topology:
    """The places of the nodes in `kubectl get nodes -o json` (or yaml), called `name` in errors.

    A node without labels of any family has no path. GPUs are counted by its capacity, else by its label.

    Raises:
        Rejected: there are no nodes in it, or one of them cannot be understood.
    """
    source = Source(name)
    read = _Read(source)
    for document in documents:
        for item in _items(document, source):
            read.take(item)
    if not read.places:
        raise source.refuse("it holds no nodes", fix="make it with: kubectl get nodes -o json")
    if read.subdomains:
        read.findings.append(source.found(0, f"{read.subdomains} nodes have an accelerator sub-domain, which is not "
                                          "used; their domain is"))
    return Topology(format=FORMAT, places=tuple(read.places.values()), findings=tuple(read.findings))


def path_of(labels: Labels) -> tuple[str, ...]:
    """The switches a node's labels tell of, from the widest to the leaf; none when they tell nothing."""
    for pattern in _OUTWARDS:
        tiers = _numbered(pattern, labels)
        if tiers:
            return tuple(reversed(tiers))
    for levels in _NAMED[:1]:
        if path := _named(levels, labels):
            return path
    if layers := _numbered(_INWARDS, labels):
        return layers
    return next((path for levels in _NAMED[1:] if (path := _named(levels, labels))), ())


def domain_of(labels: Labels) -> str | None:
    """The NVLink domain a node's labels tell of.

    A GB200 or GB300 subblock of Google is one domain: its A4X machines are sold by the NVL72.
    """
    found = next((labels[key] for key in _DOMAINS if labels.get(key)), None)
    if found is None and labels.get("node.kubernetes.io/instance-type", "").startswith("a4x"):
        return labels.get("cloud.google.com/gce-topology-subblock") or None
    return found


def zone_of(labels: Labels) -> str | None:
    """The zone a node's labels tell of."""
    return next((labels[key] for key in _ZONES if labels.get(key)), None)


def _numbered(pattern: re.Pattern[str], labels: Labels) -> tuple[str, ...]:
    found = sorted((int(match[1]), value) for key, value in labels.items()
                   if value and (match := pattern.fullmatch(key)))
    return tuple(value for _, value in found)


def _named(levels: tuple[tuple[str, ...], ...], labels: Labels) -> tuple[str, ...]:
    values = (next((labels[key] for key in keys if labels.get(key)), None) for keys in levels)
    return tuple(value for value in values if value is not None)


def _items(document: object, source: Source) -> list[Any]:
    kind = document.get("kind") if isinstance(document, dict) else None
    if isinstance(document, dict) and kind == "Node":
        return [document]
    items = document.get("items") if isinstance(document, dict) else None
    if kind not in ("List", "NodeList") or not isinstance(items, list):
        raise source.refuse(f"expected nodes, not {kind or type(document).__name__}", line=line_of(document),
                            fix="make it with: kubectl get nodes -o json")
    return items


@dataclass(slots=True)
class _Read:
    source: Source
    places: dict[str, Place] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    subdomains: int = 0

    def take(self, item: object) -> None:
        if not isinstance(item, dict) or item.get("kind", "Node") != "Node":
            kind = item.get("kind") if isinstance(item, dict) else type(item).__name__
            self.findings.append(self.source.found(line_of(item), f"a {kind} among the nodes; left out"))
            return
        metadata, status = _part(item, "metadata"), _part(item, "status")
        try:
            name = check_name(str(metadata.get("name") or ""))
        except ValueError as exc:
            self.findings.append(self.source.found(line_of(item), f"a node is left out: {exc}"))
            return
        if name in self.places:
            self.findings.append(self.source.found(line_of(item), f"node {name} is there twice; the first one counts"))
            return
        labels = {str(key): value for key, value in _part(metadata, "labels").items() if isinstance(value, str)}
        self.subdomains += any(labels.get(key) for key in ("accelerator.topograph.run/sub-domain", f"{_OLD}sub-domain"))
        self.places[name] = Place(node=name, path=path_of(labels), domain=domain_of(labels), zone=zone_of(labels),
                                  gpu=self._gpu(name, labels, _part(status, "capacity"), line_of(item)))

    def _gpu(self, name: str, labels: Labels, capacity: Mapping[str, Any], line: int) -> str:
        told = capacity.get("nvidia.com/gpu", labels.get("nvidia.com/gpu.count", "0"))
        product = labels.get("nvidia.com/gpu.product", "")
        if not str(told).isascii() or not str(told).isdecimal() or int(told) == 0:
            if product:
                self.findings.append(self.source.found(line, f"node {name} has a {product} and tells no number of "
                                                       "GPUs; taken as having none"))
            return CPU
        if not product:
            self.findings.append(self.source.found(line, f"node {name} has {told} GPUs and tells no model; named GPU "
                                                   "(label it nvidia.com/gpu.product)"))
        return f"{gpu_type(product)}:{int(told)}"


def _part(value: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    part = value.get(key)
    return part if isinstance(part, dict) else {}
