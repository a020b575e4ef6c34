"""What sinfo and squeue print, as rows.

Their free format is the same in every version since 20.11, which cannot be said of their JSON, and it
costs a tenth of it. Names and comments in it are whatever users of the cluster wrote, line breaks too, so
fields end in a word that is new for each call and that nobody can have guessed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gangline.engines.slurm.states import node_words
from gangline.fabric.topology.hostlist import expand

NODE_FIELDS = ("NodeList", "NodeAddr", "StateComplete", "Gres", "GresUsed", "CPUsState", "Memory", "Partition",
               "Reason")
JOB_FIELDS = ("%A", "%T", "%U", "%N", "%b", "%r", "%j")  # id, state, user's number, nodes, GRES a node, reason, name
_NOTHING = frozenset({"", "(null)", "n/a", "none", "unknown"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpus:
    """GPUs as a GRES text counts them: the type named first, and how many of all types."""

    type: str = ""
    count: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRow:
    """A node as sinfo shows it, its partitions joined."""

    name: str
    address: str
    state: str
    words: frozenset[str]
    gpus: Gpus
    gpus_used: int
    cpus: int
    cpus_used: int
    memory_mb: int
    partitions: frozenset[str]
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRow:
    """A job as squeue shows it, or sacct."""

    id: int
    state: str
    user_id: int
    nodes: tuple[str, ...]
    gpus_per_node: int
    reason: str
    name: str


def node_format(end: str) -> str:
    """For `sinfo -O`."""
    return ",".join(f"{field}:{end}" for field in NODE_FIELDS)


def job_format(end: str) -> str:
    """For `squeue -o`."""
    return "".join(f"{field}{end}" for field in JOB_FIELDS)


def node_rows(text: str, end: str) -> tuple[NodeRow, ...]:
    """The nodes in what sinfo printed; ValueError when it is not such a text."""
    rows: dict[str, NodeRow] = {}
    for name, address, state, gres, used, cpus, memory, partition, reason in _records(text, end, len(NODE_FIELDS)):
        if name in rows:
            partitions = rows[name].partitions
        else:
            partitions = frozenset()
        allocated, _, _, total = (_number(part) for part in (cpus.split("/") + ["0"] * 4)[:4])
        rows[name] = NodeRow(
            name=name, address=address, state=state, words=node_words(state), gpus=gpus_in(gres),
            gpus_used=gpus_in(used).count, cpus=total, cpus_used=allocated, memory_mb=_number(memory),
            partitions=partitions | {partition.rstrip("*")}, reason=_text(reason))
    return tuple(rows.values())


def job_rows(text: str, end: str) -> tuple[JobRow, ...]:
    """The jobs in what squeue printed; ValueError when it is not such a text."""
    return tuple(
        JobRow(id=int(number), state=state, user_id=int(user), nodes=hosts(nodes), gpus_per_node=gpus_in(gres).count,
               reason=_text(reason), name=name)
        for number, state, user, nodes, gres, reason, name in _records(text, end, len(JOB_FIELDS)))


_GPU = re.compile(r"(?:^|,)\s*(?:gres[:/])?gpu(?:[:/]([A-Za-z][A-Za-z0-9._-]*))?(?:[:=](\d+))?\s*(?=,|$)")


def gpus_in(text: str) -> Gpus:
    """The GPUs in "gpu:h100:8(S:0-1)", "gres/gpu:h100=2", "gpu:4,nvme:1" and their like; none in "(null)"."""
    found = [(match[1] or "", int(match[2] or 1)) for match in _GPU.finditer(re.sub(r"\([^)]*\)", "", text))]
    return Gpus(type=next((kind for kind, _ in found if kind), ""), count=sum(count for _, count in found))


def hosts(text: str) -> tuple[str, ...]:
    """The names in a host list, none of one that is empty or cannot be read."""
    try:
        return () if _text(text) == "" else expand(text)
    except ValueError:
        return ()


def _records(text: str, end: str, width: int) -> Iterator[Sequence[str]]:
    fields = text.split(end)
    if len(fields) % width != 1 or fields[-1].strip():
        raise ValueError(f"{len(fields) - 1} fields are no rows of {width}: {text[:200]!r}")
    for first in range(0, len(fields) - 1, width):
        yield [field.strip() for field in fields[first:first + width]]


def _text(value: str) -> str:
    return "" if value.strip().lower() in _NOTHING else value.strip()


def _number(value: str) -> int:
    return int(value) if value.isascii() and value.isdecimal() else 0
