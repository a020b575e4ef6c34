"""Which failure came first in the whole gang, and whom it blames. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Literal

from gangline.fabric.logs.causes import CAUSES
from gangline.fabric.logs.values import Blame, Failure, Kind, RankVerdict

Order = Literal["time", "arrival", "weight"]
SKEW_S = 2.0  # nodes' clocks under NTP or PTP agree far better; a cause and its echoes may be closer still

_AT_PEER = frozenset({"link", "rnr", "remote-access", "remote-fault", "efa-peer"})  # both ends are suspects


def first_failure(ranks: Sequence[RankVerdict], *, live: bool) -> tuple[Failure, Order] | None:
    """The failure that started it. Echoes count only where nothing else is told.

    Times decide if every candidate has one, within the clocks' skew the weights; without times, where the
    lines stand, if they came by one stream or as they were printed (`live`); else the weights.
    """
    firsts = [first for rank in ranks if (first := _first_of(rank)) is not None]
    faults = [one for one in firsts if CAUSES[one.told.code].kind is not Kind.ECHO]
    pool = faults or firsts
    if not pool:
        return None
    times = [one.at_s for one in pool if one.at_s is not None]
    if len(times) == len(pool):
        near = [one for one in pool if one.at_s is not None and one.at_s <= min(times) + SKEW_S]
        return min(near, key=lambda one: (_weight(one), one.at_s, one.seq)), "time"
    if live or len({one.source for one in pool}) == 1:
        return min(pool, key=lambda one: one.seq), "arrival"
    return min(pool, key=lambda one: (_weight(one), one.seq)), "weight"


def _first_of(rank: RankVerdict) -> Failure | None:
    """A rank's own first fault, else its first echo."""
    faults = [one for one in rank.failures if CAUSES[one.told.code].kind is not Kind.ECHO]
    return min(faults or rank.failures, key=lambda one: one.seq, default=None)


def _weight(failure: Failure) -> int:
    return CAUSES[failure.told.code].weight


def blame(first: Failure, ranks: Sequence[RankVerdict], hosts: Mapping[str, str]) -> Blame:
    """Whom the first failure points at; `hosts` names nodes by their addresses.

    A transfer that failed has two ends. The node that takes part in most failures of the kind is blamed; where
    two are alike, both are named, for the path between them.
    """
    rank = next((rank.rank for rank in ranks if first in rank.failures), None)
    own = first.host
    if first.told.code not in _AT_PEER:
        return Blame(nodes=(own,) if own else (), rank=rank, hca=first.told.hca, gid=first.told.gid)
    votes: Counter[str] = Counter()
    for one in ranks:
        for failure in one.failures:
            if failure.told.code == first.told.code:
                votes.update({end for end in (failure.host, _peer(failure, hosts)) if end})
    most = max(votes.values(), default=0)
    ends = [end for end in (own, _peer(first, hosts)) if end]
    worst = sorted(end for end, count in votes.items() if count == most)
    nodes = tuple(worst) if len(worst) == 1 else tuple(dict.fromkeys(ends))
    if own not in nodes:
        return Blame(nodes=nodes, gid=first.told.peer_gid)
    return Blame(nodes=nodes, rank=rank, hca=first.told.hca, gid=first.told.gid)


def _peer(failure: Failure, hosts: Mapping[str, str]) -> str | None:
    peer = failure.told.peer
    return None if peer is None else hosts.get(peer, peer)
