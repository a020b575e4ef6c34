"""What Topograph writes: topology.conf or topology.yaml, alone or in a ConfigMap, node labels, or a graph."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gangline.fabric.products import gpu_type
from gangline.fabric.topology.labels import domain_of
from gangline.fabric.topology.marked import line_of
from gangline.fabric.topology.values import Finding, Place, Source, Topology

FORMAT = "topograph"


def config_text(document: Mapping[str, Any], source: Source) -> str:
    """The topology file inside the ConfigMap of Topograph's Slinky engine.

    Raises:
        Rejected: it holds none.
    """
    data = document.get("data")
    for key in ("topology.yaml", "topology.conf"):  # Slurm's own precedence
        text = data.get(key) if isinstance(data, dict) else None
        if isinstance(text, str) and text.strip():
            return text
    raise source.refuse("the ConfigMap holds no topology.conf and no topology.yaml", line=line_of(document),
                        fix="give the one that Topograph's Slinky engine writes")


def read_graph(document: Mapping[str, Any], name: str) -> Topology:
    """The places in the JSON of Topograph's graph engine: instances with their layers, the leaf first.

    Raises:
        Rejected: an instance has no id, or its layers are no list of names.
    """
    source = Source(name)
    places: dict[str, Place] = {}
    findings: list[Finding] = []
    for number, instance in enumerate(document["instances"] or ()):
        layers = instance.get("network_layers") or [] if isinstance(instance, dict) else None
        if not isinstance(layers, list) or not all(isinstance(layer, str) for layer in layers):
            raise source.refuse(f"instances[{number}] has no list of network_layers", line=line_of(instance))
        node = source.node_name(str(instance.get("id") or ""), line_of(instance))
        if node in places:
            findings.append(source.found(line_of(instance), f"instance {node} is there twice; the first one counts"))
            continue
        labels = instance.get("labels")
        labels = labels if isinstance(labels, dict) else {}
        places[node] = Place(node=node, path=tuple(layer for layer in reversed(layers) if layer),
                             domain=domain_of(labels), gpu=_gpu(labels))
    if not places:
        raise source.refuse("it holds no instances", fix="give the reply of Topograph's graph engine")
    return Topology(format=FORMAT, places=tuple(places.values()), findings=tuple(findings))


def _gpu(labels: Mapping[str, Any]) -> str | None:
    product, count = labels.get("nvidia.com/gpu.product"), str(labels.get("nvidia.com/gpu.count", ""))
    if not isinstance(product, str) or not count.isdecimal() or int(count) == 0:
        return None
    return f"{gpu_type(product)}:{int(count)}"
