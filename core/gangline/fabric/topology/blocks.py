"""Slurm's blocks: each is an NVLink domain, and block sizes say which belong together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from gangline.fabric.topology.values import Finding, Place, Source


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One block with its nodes, and the line that says so."""

    name: str
    nodes: tuple[str, ...]
    line: int


def block_places(blocks: Sequence[Block], sizes: Sequence[int], source: Source,
                 sizes_line: int = 1) -> tuple[list[Place], list[Finding]]:
    """Every node with its block as domain and, as path, the larger blocks that the sizes make of it.

    A size of k times the first one joins k blocks that follow each other.

    Raises:
        Rejected: a block is described twice, or a size is not a power of two times the one before.
    """
    joins = _joins(sizes, source, sizes_line)
    findings: list[Finding] = []
    places: dict[str, Place] = {}
    lines: dict[str, int] = {}
    for number, block in enumerate(blocks):
        if block.name in lines:
            raise source.refuse(f"block {block.name} is described in line {lines[block.name]} too", line=block.line,
                                fix="put all its nodes into one line")
        lines[block.name] = block.line
        if sizes and len(block.nodes) < sizes[0]:
            findings.append(source.found(block.line, f"block {block.name} has {len(block.nodes)} nodes, "
                                         f"fewer than the base block size of {sizes[0]}"))
        path = tuple(f"blocks-{size}-{number // join + 1}" for size, join in reversed(joins))
        for node in block.nodes:
            place = Place(node=source.node_name(node, block.line), path=path, domain=block.name, grouped=True)
            first = places.setdefault(node, place)
            if first is not place:
                findings.append(source.found(block.line, f"node {node} is in block {first.domain} and in block "
                                             f"{block.name}; taken as in {first.domain} (list it once)"))
    return list(places.values()), findings


def _joins(sizes: Sequence[int], source: Source, line: int) -> list[tuple[int, int]]:
    """Per size above the first: the size, and how many blocks it joins."""
    for before, size in pairwise(sizes):
        times, rest = divmod(size, before)
        if rest or times < 2 or times & (times - 1):
            raise source.refuse(f"block size {size} is not 2, 4, 8, … times {before}", line=line,
                                fix="make each size a power of two times the one before, such as 18,36")
    return [(size, size // sizes[0]) for size in sizes[1:]]
