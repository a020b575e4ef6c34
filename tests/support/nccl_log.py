"""Logs as NCCL prints them, made line by line: two nodes `na` and `nb` with one rank each, unless said otherwise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gangline.fabric.logs import Diagnosis, GangVerdict

HOSTS = ("na", "nb", "nc", "nd")


@dataclass(frozen=True)
class Case:
    """Lines by rank (None: one stream of many ranks), and what must come of them."""

    name: str
    logs: Mapping[int | None, Sequence[str]]
    state: str
    cause: str | None = None
    nodes: tuple[str, ...] | None = None
    hca: str | None = None
    gid: str | None = None
    rank: str | None = None
    ranks: Mapping[str, str] = field(default_factory=dict)
    retry: str | None = None

    def verdict(self) -> GangVerdict:
        return diagnosed(self.logs)

    def check(self) -> None:
        found = self.verdict()
        assert found.state == self.state, found.reason
        assert (found.cause.code if found.cause else None) == self.cause, found.cause
        assert found.ok == (self.state == "proved" and self.cause is None)
        if self.nodes is not None:
            assert sorted(found.blame.nodes) == sorted(self.nodes), found.blame
        if self.hca is not None:
            assert found.blame.hca == self.hca
        if self.gid is not None:
            assert found.blame.gid == self.gid
        if self.rank is not None:
            assert found.blame.rank == self.rank
        if self.retry is not None:
            assert found.cause is not None
            assert found.cause.retry == self.retry
        states = {rank.rank: rank.state for rank in found.ranks}
        assert self.ranks.items() <= states.items(), states


def diagnosed(logs: Mapping[int | None, Sequence[str]], expected: str | None = None) -> GangVerdict:
    diagnosis = Diagnosis(expected=expected)
    for rank, lines in logs.items():
        source = "all.log" if rank is None else f"rank{rank}.log"
        diagnosis.feed(rank, "".join(f"{line}\n" for line in lines).encode(), source=source)
        diagnosis.end(rank, source=source)
    return diagnosis.verdict()


def info(rank: int, text: str) -> str:
    return f"{HOSTS[rank]}:{100 + rank}:{200 + rank} [0] NCCL INFO {text}"


def warn(rank: int, text: str, *, at: str = "", file: str = "transport/net_ib.cc:812") -> str:
    return f"{f'[{at}] ' if at else ''}{HOSTS[rank]}:{100 + rank}:{300 + rank} [0] {file} NCCL WARN {text}"


def start(rank: int, size: int = 2, net: str = "IB") -> list[str]:
    return [info(rank, f"Bootstrap : Using eth0:10.0.0.{rank + 1}<0>"), info(rank, f"Using network {net}"),
            info(rank, f"comm 0x55 rank {rank} nranks {size} cudaDev 0 nvmlDev 0 busId 1b000 commId 0x7 - Init "
                       "COMPLETE")]


def channel(rank: int, via: str = "IB/0/GDRDMA", peer: int | None = None, way: str = "send") -> str:
    other = 1 - rank if peer is None else peer
    a, b = (rank, other) if way == "send" else (other, rank)
    return info(rank, f"Channel 00/0 : {a}[0] -> {b}[0] [{way}] via NET/{via}")


def good(rank: int, size: int = 2, via: str = "IB/0/GDRDMA", net: str = "IB") -> list[str]:
    peer = (rank + 1) % size
    return [*start(rank, size, net), channel(rank, via, peer), channel(rank, via, (rank - 1) % size, "receive")]


def both(*more: str, via: str = "IB/0/GDRDMA", net: str = "IB") -> dict[int | None, Sequence[str]]:
    """Two ranks alike, each with these messages before its channels."""
    return {rank: [*start(rank, 2, net), *(info(rank, text) for text in more), channel(rank, via)] for rank in (0, 1)}
