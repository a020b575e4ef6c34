"""Who this process is in its gang, from the environment and one file; no call to anything.

Kept free of the wire models: importing those costs a quarter of a second, on every rank, before the
first line of user code.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from gangline.model.errors import Unavailable


@dataclass(frozen=True, slots=True, kw_only=True)
class MountInfo:
    """A volume of this gang: where its bytes live, and the version it resumes from.

    `resume_dir` is relative to `root`; the version was verified before the ranks started.
    """

    volume: str
    root: str
    resume: int | None = None
    resume_dir: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RdmaInfo:
    """What `rdma: true` got; `proved` is true only after a preflight."""

    requested: bool = False
    proved: bool = False
    emulated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterInfo:
    """This rank's place in its gang.

    `size` counts the nodes of this attempt; an elastic gang may have `least` to `most` of them, others
    have as many every time. `addresses` has one per node in node-rank order. Outside a gang it is a
    world of one: `gang` is None and `addresses` is ("127.0.0.1",).
    """

    gang: str | None = None
    name: str = "local"
    slot: str = ""
    attempt: int = 1
    rank: int = 0
    world_size: int = 1
    local_rank: int = 0
    local_world_size: int = 1
    node_rank: int = 0
    size: int = 1
    least: int = 1
    most: int = 1
    role: str = ""
    node: str = ""
    addresses: tuple[str, ...] = ("127.0.0.1",)
    fabric: str | None = None
    zone: str = ""
    emulated: bool = False
    rdma: RdmaInfo = RdmaInfo()
    volumes: Mapping[str, MountInfo] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """The right to speak for a rank of a gang, and to whom.

    Below a launcher of the user's (torchrun as the one rank of each node) RANK and WORLD_SIZE count
    its workers; `rank` and `world_size` are always the gang's.
    """

    token: str
    supervisor: str
    rank: int
    world_size: int
    below_launcher: bool
    ranks_here: int


def cluster_info() -> ClusterInfo:
    """This process's place in its gang; a world of one outside any. The same value on every call."""
    path = os.environ.get("GANGLINE_INFO")
    if not path:
        return _ALONE
    return _read_info(path, tuple(os.environ.get(name) for name in _RANK_NAMES))


def membership() -> Membership | None:
    """How to reach the supervisor of this rank; None outside a gang."""
    path = os.environ.get("GANGLINE_INFO")
    if not path:
        return None
    data, info = _load(path), cluster_info()
    here, below = data["ranks_by_node"][data["node_rank"]], info.world_size != data["world_size"]
    return Membership(token=data["token"], supervisor=os.environ.get("GANGLINE_SUPERVISOR", ""),
                      rank=here[0] if below else info.rank, world_size=data["world_size"],
                      below_launcher=below, ranks_here=len(here))


_ALONE = ClusterInfo()
_RANK_NAMES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")


# Keyed by what the answer depends on, so that a forked rank does not see its template's place.
@lru_cache(maxsize=8)
def _read_info(path: str, rank_values: tuple[str | None, ...]) -> ClusterInfo:
    data = _load(path)
    node_rank = int(data["node_rank"])
    here = data["ranks_by_node"][node_rank]
    fallbacks = (here[0], data["world_size"], 0, len(here))
    rank, world_size, local_rank, local_world_size = (
        int(value) if value else int(fallback)
        for value, fallback in zip(rank_values, fallbacks, strict=True))
    rdma = data.get("rdma") or {}
    return ClusterInfo(
        gang=data["gang"], name=data["name"], slot=data["slot"], attempt=data["attempt"],
        rank=rank, world_size=world_size, local_rank=local_rank, local_world_size=local_world_size,
        node_rank=node_rank, size=data["size"], least=data.get("least", data["size"]),
        most=data.get("most", data["size"]), role=data.get("role", ""), node=data.get("node", ""),
        addresses=tuple(share["address"] for share in data["nodes"]),
        fabric=data.get("fabric"), zone=data.get("zone", ""), emulated=data.get("emulated", False),
        rdma=RdmaInfo(**{name: bool(rdma.get(name)) for name in RdmaInfo.__slots__}),
        volumes={m["mount"]: MountInfo(volume=m["volume"], root=m["root"], resume=m.get("resume"),
                                       resume_dir=m.get("resume_dir")) for m in data.get("mounts", ())})


@lru_cache(maxsize=8)
def _load(path: str) -> Any:
    try:
        return json.loads(Path(path).read_text())
    except (OSError, ValueError) as exc:
        raise Unavailable(f"cannot read what this rank is: {exc}", field="GANGLINE_INFO",
                          fix="unset GANGLINE_INFO to run outside a gang") from None
