"""Slurm's topology.yaml: several named topologies, each a tree, blocks, or flat."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gangline.fabric.topology.blocks import Block, block_places
from gangline.fabric.topology.hostlist import expand
from gangline.fabric.topology.marked import line_of, load_documents
from gangline.fabric.topology.tree import Switch, tree_places
from gangline.fabric.topology.values import Finding, Place, Source, Topology

FORMAT = "slurm-yaml"

_NO_PLACES = {"flat": "puts all nodes on one level", "ring": "is a ring", "torus3d": "is a torus"}


def read_slurm_yaml(text: str, name: str) -> tuple[Topology, ...]:
    """The topologies a topology.yaml defines, the cluster's default first; `name` is its name in errors.

    Those that are neither a tree nor blocks have no places and one finding.

    Raises:
        Rejected: it is no such file, or a topology in it is wrong; the line is named.
    """
    source = Source(name)
    documents = load_documents(text, source)
    if len(documents) != 1 or not isinstance(documents[0], list) or not documents[0]:
        raise source.refuse("expected a list of topologies",
                            fix="write it as in Slurm's topology.yaml: - topology: NAME")
    entries = [_mapping(entry, "a topology", source, 0) for entry in documents[0]]
    names: set[str] = set()
    for entry in entries:
        title = _text(entry, "topology", source)
        if title in names:
            raise source.refuse(f"topology {title} is defined twice", line=line_of(entry),
                                fix="give each a name of its own")
        names.add(title)
    entries.sort(key=lambda entry: entry.get("cluster_default") is not True)
    read = tuple(_topology(entry, source) for entry in entries)
    if not any(topology.places for topology in read):
        raise source.refuse("no node hangs anywhere in it", fix="define a tree or blocks with nodes")
    return read


def _topology(entry: Mapping[str, Any], source: Source) -> Topology:
    title, line = _text(entry, "topology", source), line_of(entry)
    kinds = [key for key in entry if key not in ("topology", "cluster_default")]
    if len(kinds) != 1:
        raise source.refuse(f"topology {title} needs exactly one of tree, block and flat", line=line,
                            fix=f"it has {', '.join(map(str, kinds)) or 'none'}")
    kind, places, findings = str(kinds[0]), list[Place](), list[Finding]()
    if kind == "tree":
        places, findings = _tree(_mapping(entry["tree"], "tree", source, line), source)
    elif kind == "block":
        places, findings = _blocks(_mapping(entry["block"], "block", source, line), source)
    elif kind in _NO_PLACES:
        findings = [source.found(line, f"topology {title} {_NO_PLACES[kind]}; left out")]
    else:
        raise source.refuse(f"topology {title} has the unknown field {kind}", line=line,
                            fix="remove it or check its spelling")
    return Topology(format=FORMAT, places=tuple(places), findings=tuple(findings))


def _tree(tree: Mapping[str, Any], source: Source) -> tuple[list[Place], list[Finding]]:
    _only(tree, {"switches"}, source)
    switches = []
    for entry in _list(tree, "switches", source):
        switch = _mapping(entry, "a switch", source, line_of(tree))
        _only(switch, {"switch", "children", "nodes"}, source)
        switches += [Switch(name=name, switches=_names(switch, "children", source),
                            nodes=_names(switch, "nodes", source), line=line_of(switch))
                     for name in _names(switch, "switch", source)]
    return tree_places(switches, source)


def _blocks(block: Mapping[str, Any], source: Source) -> tuple[list[Place], list[Finding]]:
    _only(block, {"block_sizes", "blocks"}, source)
    sizes = _list(block, "block_sizes", source) if "block_sizes" in block else []
    if not all(isinstance(size, int) and not isinstance(size, bool) and size > 0 for size in sizes):
        raise source.refuse("block_sizes are not all whole numbers above 0", line=line_of(block),
                            fix="write them as [18, 36]")
    blocks = []
    for entry in _list(block, "blocks", source):
        one = _mapping(entry, "a block", source, line_of(block))
        _only(one, {"block", "nodes"}, source)
        blocks.append(Block(name=_text(one, "block", source), nodes=_names(one, "nodes", source), line=line_of(one)))
    return block_places(blocks, sizes, source, line_of(block))


def _mapping(value: object, what: str, source: Source, line: int) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise source.refuse(f"expected {what} as fields, not {value!r:.60}", line=line, fix="write NAME: VALUE")
    return value


def _only(value: Mapping[str, Any], known: set[str], source: Source) -> None:
    unknown = next((key for key in value if key not in known), None)
    if unknown is not None:
        raise source.refuse(f"unknown field {unknown}", line=line_of(value), fix="remove it or check its spelling")


def _list(value: Mapping[str, Any], key: str, source: Source) -> list[Any]:
    found = value.get(key)
    if not isinstance(found, list) or not found:
        raise source.refuse(f"expected a list of {key}", line=line_of(value), fix=f"add {key}:")
    return found


def _text(value: Mapping[str, Any], key: str, source: Source) -> str:
    found = value.get(key)
    if not isinstance(found, str) or not found:
        raise source.refuse(f"{key} needs a name, not {found!r:.60}", line=line_of(value), fix=f"write {key}: NAME")
    return found


def _names(value: Mapping[str, Any], key: str, source: Source) -> tuple[str, ...]:
    found = value.get(key)
    if found is None and key != "switch":
        return ()
    parts = [part for part in (found if isinstance(found, list) else [found]) if isinstance(part, str)]
    try:
        if not parts or (isinstance(found, list) and len(parts) < len(found)):
            raise ValueError(f"{key}: {found!r:.60} is not a list of names")
        return tuple(name for part in parts for name in expand(part))
    except ValueError as exc:
        raise source.refuse(str(exc), line=line_of(value), fix="write a list such as n[001-018,020]") from None
