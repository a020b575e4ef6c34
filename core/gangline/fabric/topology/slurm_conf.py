"""Slurm's topology.conf, which Topograph writes too, and what `scontrol show topology` prints of it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from gangline.fabric.topology.blocks import Block, block_places
from gangline.fabric.topology.hostlist import expand
from gangline.fabric.topology.tree import Switch, tree_places
from gangline.fabric.topology.values import Source, Topology

FORMAT = "slurm-conf"

_PAIR = re.compile(r"\s*([A-Za-z][A-Za-z0-9_]*)\s*=\s*(\"[^\"]*\"|[^\s\"]+)")
_KINDS = {
    "switchname": {"switchname", "switches", "nodes", "linkspeed", "level"},
    "blockname": {"blockname", "nodes", "blockindex", "blocksize"},
    "aggregatedblock": {"aggregatedblock", "nodes", "blockindex", "blocksize"},
    "blocksizes": {"blocksizes"},
}


def read_slurm_conf(text: str, name: str) -> Topology:
    """The places a topology.conf tells of, called `name` in errors.

    Raises:
        Rejected: a line cannot be read, or what they say together is no tree; the line is named.
    """
    source = Source(name)
    read = _Read(source)
    for line, words in _lines(text):
        read.take(line, words)
    if read.switches and read.blocks:
        raise source.refuse("it has lines of SwitchName and of BlockName", line=read.blocks[0].line,
                            fix="Slurm takes one kind per file: put them into two files and give both")
    if not read.switches and not read.blocks:
        raise source.refuse("it describes no switch and no block", fix="give the topology.conf that Slurm reads")
    if read.switches:
        places, findings = tree_places(read.switches, source)
    else:
        places, findings = block_places(read.blocks, read.sizes, source, read.sizes_line)
    if not places:
        raise source.refuse("no node hangs anywhere in it", fix="give lines with Nodes=")
    return Topology(format=FORMAT, places=tuple(places), findings=tuple(findings))


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines without comments, those ended by a backslash joined; each with its first line's number."""
    begun, first = "", 0
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.split("#", 1)[0].rstrip()
        first = first or number
        if line.endswith("\\"):
            begun += line[:-1] + " "
            continue
        if (begun + line).strip():
            yield first, (begun + line).strip()
        begun, first = "", 0
    if begun.strip():
        yield first, begun.strip()


@dataclass(slots=True)
class _Read:
    """What the lines so far have said."""

    source: Source
    switches: list[Switch] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)
    sizes: tuple[int, ...] = ()
    sizes_line: int = 1

    def take(self, line: int, text: str) -> None:
        pairs = self._pairs(line, text)
        kind = next((kind for kind in _KINDS if kind in pairs), None)
        if kind is None:
            raise self.source.refuse(f"neither a switch nor a block: {text[:60]!r}", line=line,
                                     fix="begin the line with SwitchName=, BlockName= or BlockSizes=")
        for key in pairs:
            if key not in _KINDS[kind]:
                raise self.source.refuse(f"unknown parameter {key}", line=line, fix="remove it or check its spelling")
        match kind:
            case "switchname":
                below = self._names(pairs.get("switches"), line)
                # scontrol tells a level, and of a switch above others all nodes under those too.
                told = None if below and "level" in pairs else pairs.get("nodes")
                self.switches += [Switch(name=name, switches=below, nodes=self._names(told, line), line=line)
                                  for name in self._names(pairs[kind], line)]
            case "blockname":
                if "nodes" not in pairs:
                    raise self.source.refuse(f"block {pairs[kind]} has no Nodes", line=line, fix="add Nodes=")
                self.blocks.append(Block(name=pairs[kind], nodes=self._names(pairs["nodes"], line), line=line))
                self._size(pairs, line)
            case "aggregatedblock":
                self._size(pairs, line)
            case _:
                self.sizes, self.sizes_line = self._sizes(pairs[kind], line), line

    def _pairs(self, line: int, text: str) -> dict[str, str]:
        if text.split()[0].lower() == "include":
            raise self.source.refuse("included files are not followed", line=line,
                                     fix="put the lines of that file here")
        pairs: dict[str, str] = {}
        at = 0
        while at < len(text):
            match = _PAIR.match(text, at)
            if match is None:
                raise self.source.refuse(f"expected NAME=VALUE, not {text[at:].strip()[:60]!r}", line=line,
                                         fix="write lists without spaces, such as Nodes=n[1-4],n7")
            if match[1].lower() in pairs:
                raise self.source.refuse(f"{match[1]} is given twice", line=line, fix="give it once")
            pairs[match[1].lower()] = match[2].strip('"')
            at = match.end()
        return pairs

    def _names(self, text: str | None, line: int) -> tuple[str, ...]:
        if text is None:
            return ()
        try:
            return expand(text)
        except ValueError as exc:
            raise self.source.refuse(str(exc), line=line, fix="write a list such as n[001-018,020]") from None

    def _size(self, pairs: dict[str, str], line: int) -> None:
        """Takes the size that scontrol tells of each block in place of a list of all."""
        if "blocksize" in pairs:
            self.sizes = tuple(sorted({*self.sizes, *self._sizes(pairs["blocksize"], line)}))
            self.sizes_line = line

    def _sizes(self, text: str, line: int) -> tuple[int, ...]:
        words = text.split(",")
        if not all(word.isascii() and word.isdecimal() and int(word) > 0 for word in words):
            raise self.source.refuse(f"{text[:60]!r} is not a list of sizes", line=line, fix="write BlockSizes=18,36")
        return tuple(map(int, words))
