"""Switches as a file lists them, made into one path per node."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gangline.fabric.topology.values import Finding, Place, Source


@dataclass(frozen=True, slots=True, kw_only=True)
class Switch:
    """One switch with what hangs on it directly, and the line that says so."""

    name: str
    switches: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    line: int


def tree_places(switches: Sequence[Switch], source: Source) -> tuple[list[Place], list[Finding]]:
    """The place of every node, and what was odd: a node or a switch hangs where it is listed first.

    Raises:
        Rejected: a switch is described twice, is named but never described, or hangs on itself.
    """
    findings: list[Finding] = []
    known = _by_name(switches, source)
    parents = _parents(switches, known, source, findings)
    paths = _paths(known, parents, source)
    leaf_of: dict[str, str] = {}
    for switch in switches:
        if not switch.nodes and not switch.switches:
            findings.append(source.found(switch.line, f"switch {switch.name} has nothing below it; left out"))
        for node in switch.nodes:
            first = leaf_of.setdefault(source.node_name(node, switch.line), switch.name)
            if first != switch.name:
                findings.append(source.found(switch.line, f"node {node} hangs on {first} and on {switch.name}; "
                                             f"taken as hanging on {first} (list it once)"))
    return [Place(node=node, path=paths[leaf]) for node, leaf in leaf_of.items()], findings


def _by_name(switches: Sequence[Switch], source: Source) -> dict[str, Switch]:
    known: dict[str, Switch] = {}
    for switch in switches:
        first = known.setdefault(switch.name, switch)
        if first is not switch:
            raise source.refuse(f"switch {switch.name} is described in line {first.line} too", line=switch.line,
                                fix="put all that hangs on it into one line")
        repeated = len(switch.nodes) - len(set(switch.nodes))
        if repeated:
            raise source.refuse(f"switch {switch.name} lists {repeated} of its nodes twice", line=switch.line,
                                fix="list every node once")
    return known


def _parents(switches: Sequence[Switch], known: dict[str, Switch], source: Source,
             findings: list[Finding]) -> dict[str, str]:
    parents: dict[str, str] = {}
    for switch in switches:
        for child in switch.switches:
            if child not in known:
                raise source.refuse(f"switch {switch.name} names switch {child}, which is not described",
                                    line=switch.line, fix=f"describe {child}, or take it out of this line")
            first = parents.setdefault(child, switch.name)
            if first != switch.name:
                findings.append(source.found(
                    switch.line, f"switch {child} hangs on {first} and on {switch.name}; "
                    f"taken as hanging on {first}"))
    return parents


def _paths(known: dict[str, Switch], parents: dict[str, str], source: Source) -> dict[str, tuple[str, ...]]:
    """Each switch with all above it, from the widest. Walks up, so depth costs no stack."""
    paths: dict[str, tuple[str, ...]] = {}
    for name in known:
        climbed: list[str] = []
        seen: set[str] = set()
        at: str | None = name
        while at is not None and at not in paths:
            if at in seen:
                ring = [*climbed[climbed.index(at):], at]
                raise source.refuse(
                    f"switch {at} hangs on itself: {' on '.join(ring[:6])}{' …' if len(ring) > 6 else ''}",
                    line=known[at].line, fix="switches must form a tree: list each below one switch only")
            seen.add(at)
            climbed.append(at)
            at = parents.get(at)
        path = () if at is None else paths[at]
        for step in reversed(climbed):
            path = (*path, step)
            paths[step] = path
    return paths
