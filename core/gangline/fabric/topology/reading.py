"""Finding out what a file is, reading it, and joining what several files tell of the same nodes."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Literal, get_args

from gangline.fabric.topology import labels, slurm_conf, slurm_yaml, topograph
from gangline.fabric.topology.marked import load_documents
from gangline.fabric.topology.values import Finding, Place, Source, Topology

Format = Literal["auto", "slurm-conf", "slurm-yaml", "topograph", "k8s"]
FORMATS: tuple[str, ...] = get_args(Format)

_CONF_LINE = re.compile(r"^\s*(SwitchName|BlockName|BlockSizes|AggregatedBlock)\s*=", re.IGNORECASE | re.MULTILINE)


def read_topology(text: str, name: str, format: str = "auto") -> Topology:
    """What one file tells of where nodes hang; `name` is its name in errors.

    Raises:
        Rejected: it is empty, not of that format, or wrong; the line and what to do are named.
    """
    source = Source(name)
    if not text.strip():
        raise source.refuse("the file is empty", fix="give a topology.conf, topology.yaml or kubectl's nodes")
    match format:
        case "slurm-conf":
            return slurm_conf.read_slurm_conf(text, name)
        case "slurm-yaml":
            return combine(slurm_yaml.read_slurm_yaml(text, name))
        case "k8s":
            return labels.read_nodes(load_documents(text, source), name)
        case _:
            return _found_out(text, source)


def combine(topologies: Iterable[Topology]) -> Topology:
    """What several sources tell together. Of each node the first thing told counts; a path along
    switches counts before one that only block sizes make.
    """
    places: dict[str, Place] = {}
    findings: list[Finding] = []
    formats: list[str] = []
    for topology in topologies:
        findings += topology.findings
        formats += [topology.format] if topology.format not in formats else []
        for place in topology.places:
            places[place.node] = _joined(places.get(place.node), place, topology.format, findings)
    return Topology(format="+".join(formats), places=tuple(places.values()), findings=tuple(findings))


def _joined(first: Place | None, then: Place, format: str, findings: list[Finding]) -> Place:
    if first is None:
        return then
    path, grouped = first.path, first.grouped
    if not path or (grouped and then.path and not then.grouped):
        path, grouped = then.path, then.grouped
    elif then.path and not then.grouped and then.path != path:
        findings.append(Finding(where=format, text=f"node {then.node} is told to hang at {'/'.join(then.path)} too; "
                                f"taken as at {'/'.join(path)}"))
    return replace(first, path=path, grouped=grouped, domain=first.domain or then.domain,
                   zone=first.zone or then.zone, gpu=first.gpu or then.gpu)


def _found_out(text: str, source: Source) -> Topology:
    if _CONF_LINE.search(text) and not text.lstrip().startswith(("{", "apiVersion", "kind", "---")):
        return slurm_conf.read_slurm_conf(text, source.name)
    documents = load_documents(text, source)
    first = documents[0] if documents else None
    if isinstance(first, list):
        return combine(slurm_yaml.read_slurm_yaml(text, source.name))
    if isinstance(first, dict) and first.get("kind") == "ConfigMap":
        inner = topograph.config_text(first, source)
        return read_topology(inner, f"{source.name} (inside)")
    if isinstance(first, dict) and isinstance(first.get("instances"), list):
        return topograph.read_graph(first, source.name)
    if isinstance(first, dict) and first.get("kind") in ("List", "NodeList", "Node"):
        return labels.read_nodes(documents, source.name)
    raise source.refuse("it is not a topology that can be read",
                        fix="give topology.conf, topology.yaml, Topograph's output or: kubectl get nodes -o json")
