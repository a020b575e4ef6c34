"""Random trees written in every format read back as they were, and no text makes a reader fall over."""

from __future__ import annotations

import contextlib
import json
from itertools import pairwise
from typing import Any

import yaml
from hypothesis import given
from hypothesis import strategies as st

from gangline.fabric.topology import FORMATS, read_topology
from gangline.model.errors import Rejected

Paths = dict[str, tuple[str, ...]]


@st.composite
def trees(draw: st.DrawFn) -> Paths:
    """Nodes with their switches: any depth, any number of roots, switches named by where they are."""
    count = draw(st.integers(1, 12))
    depth = draw(st.integers(1, 5))
    made: Paths = {}
    for number in range(count):
        name = ""
        path = []
        for turn in draw(st.lists(st.integers(0, 2), min_size=depth, max_size=depth)):
            name = f"{name}x{turn}" if name else f"s{turn}"
            path.append(name)
        made[f"n{number:03d}"] = tuple(path)
    return made


def edges(paths: Paths) -> tuple[dict[str, set[str]], dict[str, list[str]]]:
    switches: dict[str, set[str]] = {}
    leaves: dict[str, list[str]] = {}
    for node, path in paths.items():
        for above, below in pairwise(path):
            switches.setdefault(above, set()).add(below)
        leaves.setdefault(path[-1], []).append(node)
    return switches, leaves


def as_conf(paths: Paths) -> str:
    switches, leaves = edges(paths)
    lines = [f"SwitchName={name} Switches={','.join(sorted(below))}" for name, below in switches.items()]
    lines += [f"SwitchName={name} Nodes=n[{','.join(node[1:] for node in nodes)}]" for name, nodes in leaves.items()]
    return "\n".join(lines)


def as_yaml(paths: Paths) -> str:
    switches, leaves = edges(paths)
    listed: list[dict[str, Any]] = [{"switch": name, "children": sorted(below)} for name, below in switches.items()]
    listed += [{"switch": name, "nodes": ",".join(nodes)} for name, nodes in leaves.items()]
    return yaml.safe_dump([{"topology": "t", "cluster_default": True, "tree": {"switches": listed}}])


def as_labels(paths: Paths, prefix: str) -> str:
    return json.dumps({"kind": "NodeList", "items": [
        {"metadata": {"name": node, "labels": {f"{prefix}{tier}": switch for tier, switch in
                                               enumerate(reversed(path))}}} for node, path in paths.items()]})


def as_layers(paths: Paths) -> str:
    return yaml.safe_dump({"kind": "List", "items": [
        {"kind": "Node", "metadata": {"name": node, "labels": {
            f"topology.k8s.aws/network-node-layer-{layer}": switch for layer, switch in enumerate(path, 1)}}}
        for node, path in paths.items()]})


def as_graph(paths: Paths) -> str:
    return json.dumps({"instances": [{"id": node, "network_layers": list(reversed(path))}
                                     for node, path in paths.items()]})


@given(trees())
def test_a_tree_reads_back_from_every_format(paths: Paths) -> None:
    written = [as_conf(paths), as_yaml(paths), as_labels(paths, "fabric.topograph.run/tier-"),
               as_labels(paths, "network.topology.nvidia.com/tier-"), as_layers(paths), as_graph(paths)]
    for text in written:
        assert {place.node: place.path for place in read_topology(text, "t").places} == paths


@given(st.dictionaries(st.sampled_from(["b1", "b2", "b3", "b4"]), st.integers(1, 4), min_size=1),
       st.integers(0, 2))
def test_blocks_read_back_alike_from_both_slurm_files(blocks: dict[str, int], joins: int) -> None:
    listed = {name: [f"{name}n{i}" for i in range(count)] for name, count in blocks.items()}
    sizes = [1 << i for i in range(joins + 1)]
    conf = "".join(f"BlockName={name} Nodes={','.join(nodes)}\n" for name, nodes in listed.items())
    conf += f"BlockSizes={','.join(map(str, sizes))}\n"
    tree = [{"topology": "t", "block": {"block_sizes": sizes, "blocks": [
        {"block": name, "nodes": nodes} for name, nodes in listed.items()]}}]
    first, second = read_topology(conf, "t"), read_topology(yaml.safe_dump(tree), "t")
    assert first.places == second.places
    assert {place.node: place.domain for place in first.places} == {
        node: name for name, nodes in listed.items() for node in nodes}
    assert all(len(place.path) == joins for place in first.places)


WORDS = st.sampled_from(["SwitchName=", "BlockName=", "BlockSizes=", "Switches=", "Nodes=", "a", "b", "n[1-3]", "n[",
                         ",", " ", "\n", "#", "\\\n", "- ", "topology: ", "tree: ", "{", "}", "[", "]", ": ", "kind: ",
                         "Node", '"', "items", "1", "switches", "block", "&x ", "*x", "<<: ", "---\n", "!!python/x "])


@given(st.lists(WORDS, max_size=25).map("".join) | st.text(max_size=40), st.sampled_from(FORMATS))
def test_any_text_is_read_or_refused(text: str, format: str) -> None:
    with contextlib.suppress(Rejected):
        assert read_topology(text, "t", format).places
