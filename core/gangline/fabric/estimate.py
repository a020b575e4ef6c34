"""How long bytes take from where they are to where they are needed. Arithmetic, with what it assumes."""

from __future__ import annotations

import math

from pydantic import Field

from gangline.model.base import Wire

TCP_GBPS = 50.0  # one node's ordinary cloud network, the usual limit of a virtual machine
RDMA_GBPS = (400.0, 1600.0, 3200.0, 6400.0)
NVME_GBPS = 448.0  # 56 GB/s: eight PCIe 4 drives, read in parallel
NETWORK_EFFICIENCY = 0.9  # headers and pauses; a link that is tested gets 0.9 of the wire or fails
CHUNK_BYTES = 64 << 20  # what a node has in full before it passes it on


class Way(Wire):
    """One way for the bytes. `efficiency` is the share of the line rate that is assumed to be reached."""

    name: str
    gbps: float = Field(gt=0)
    efficiency: float = Field(gt=0, le=1)


class Estimate(Wire):
    """Seconds until every node has what it needs, by how the bytes are spread.

    line_rate_s: one whole copy for one node, at 100 %. The others at the assumed efficiency: from one
    source to all nodes in turn (`one_source_s`), passed on from node to node in chunks (`chain_s`), by
    doubling the holders (`tree_s`), with sources enough that each node gets its copy at its full rate
    (`sources_s`), and when every node needs 1/nodes of the bytes only (`sharded_s`). Of a disk, which no
    node shares, all copies come at once.
    """

    way: Way
    line_rate_s: float
    one_source_s: float
    chain_s: float
    tree_s: float
    sources_s: float
    sharded_s: float
    needed_efficiency: float | None = None  # to be within the time asked for; above 1: impossible


def ways(gbps: float | None = None, fabric: str | None = None, efficiency: float | None = None) -> tuple[Way, ...]:
    """The usual ways: TCP, RDMA and local disks. With a `fabric` its rate is the only RDMA; a rate alone stands alone.

    A disk's figure is a measured one, so all of it is reached.
    """
    net = NETWORK_EFFICIENCY if efficiency is None else efficiency
    if gbps is not None and fabric is None:
        return (Way(name="network", gbps=gbps, efficiency=net),)
    rates = [(f"rdma {fabric}", gbps)] if gbps is not None else [("rdma", rate) for rate in RDMA_GBPS]
    return (Way(name="tcp", gbps=TCP_GBPS, efficiency=net),
            *(Way(name=name, gbps=rate, efficiency=net) for name, rate in rates),
            Way(name="nvme", gbps=NVME_GBPS, efficiency=1.0 if efficiency is None else efficiency))


def estimate(size_bytes: float, way: Way, nodes: int = 1, within_s: float | None = None) -> Estimate:
    """How long `size_bytes` take to `nodes` nodes. Latency and the time to open connections are left out.

    Raises:
        ValueError: there are no bytes or no nodes.
    """
    if size_bytes <= 0 or nodes < 1:
        raise ValueError("bytes and nodes must be at least 1")
    line = size_bytes * 8 / (way.gbps * 1e9)
    whole = line / way.efficiency
    shared = 1 if way.name == "nvme" else nodes
    return Estimate(
        way=way, line_rate_s=line, one_source_s=whole * shared,
        chain_s=whole * (1 + (shared - 1) * min(1.0, CHUNK_BYTES / size_bytes)),
        tree_s=whole * math.ceil(math.log2(shared + 1)), sources_s=whole, sharded_s=whole / nodes,
        needed_efficiency=None if within_s is None else line / within_s)


def kv_cache_bytes(layers: int, kv_heads: int, head_dim: int, tokens: int, value_bytes: int = 2) -> int:
    """The size of a transformer's KV cache: a key and a value for each layer, head and token.

    Llama 3.1 70B in bf16 (80, 8, 128) has 327,680 bytes a token: 10.74 GB, exactly 10 GiB, for 32,768.
    """
    return 2 * layers * kv_heads * head_dim * value_bytes * tokens
