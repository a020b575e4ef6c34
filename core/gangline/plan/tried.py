"""Where a gang was tried, and who is in its way there."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gangline.plan.fleet import Bools, Ints, Wanted
from gangline.plan.holders import Holders
from gangline.plan.leases import Leases
from gangline.plan.outcome import Reservation
from gangline.plan.snapshot import PendingGang, Snapshot

MOST_GROUPS = 16
MOST_HOLDERS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """A subtree: nodes the gang could have there now, nodes that would do, and nodes it needs."""

    where: str
    free: int
    could: int
    need: int


@dataclass(frozen=True, slots=True, kw_only=True)
class InTheWay:
    """A gang that leases nodes which would do, or (`reserved`) for which they are kept."""

    gang: str
    nodes: int
    ends_ms: int | None = None
    reserved: bool = False


def tried(snapshot: Snapshot, gang: PendingGang) -> tuple[Tried, ...]:
    """The subtrees a gang may be in that have nodes which would do; those that have most of them free first."""
    fleet_map = snapshot.fleet.map
    level = fleet_map.levels.within(gang.within, rdma=gang.rdma)
    could = _would_do(snapshot, gang) & ~fleet_map.virtual
    free = could & _free(snapshot, gang)
    ids, count = fleet_map.ids[level], len(fleet_map.starts[level]) - 1
    free_in: Ints = np.bincount(ids[free], minlength=count)
    could_in: Ints = np.bincount(ids[could], minlength=count)
    there = np.flatnonzero(could_in)
    first = there[np.lexsort((there, -could_in[there], -free_in[there]))][:MOST_GROUPS]
    return tuple(Tried(where=fleet_map.name_of(level, int(subtree)), free=int(free_in[subtree]),
                       could=int(could_in[subtree]), need=gang.nodes) for subtree in first)


def in_the_way(snapshot: Snapshot, gang: PendingGang, kept: tuple[Reservation, ...]) -> tuple[InTheWay, ...]:
    """The gangs that lease most of what would do, then those for which such nodes are kept."""
    would_do = _would_do(snapshot, gang)
    holders = Holders.of(snapshot, ())
    names, _ = holders.most_first(would_do, MOST_HOLDERS + 1)
    running = Leases.of(snapshot)
    found = [InTheWay(gang=name, nodes=holders.nodes_of(name, would_do),
                      ends_ms=None if (run := running.find(name)) is None else run.ends_by_ms)
             for name in names if name != gang.gang]
    rows = snapshot.fleet.map.row
    for reservation in kept:
        nodes = sum(bool(would_do[rows[node]]) for node in reservation.nodes if node in rows)
        if nodes and reservation.gang != gang.gang:
            found.append(InTheWay(gang=reservation.gang, nodes=nodes, ends_ms=reservation.at_ms, reserved=True))
    return tuple(found[:2 * MOST_HOLDERS])


def _would_do(snapshot: Snapshot, gang: PendingGang) -> Bools:
    """Rows that meet a need of the gang, busy or not."""
    found = np.zeros(snapshot.fleet.map.size, np.bool_)
    for role in gang.roles:
        for ask in role.asks:
            found |= snapshot.fleet.map.mask(Wanted(ask, gang.rdma, gang.zone, gang.pool, gang.exclude,
                                                    gang.domain_size is not None))
    return found


def _free(snapshot: Snapshot, gang: PendingGang) -> Bools:
    fleet = snapshot.fleet
    least = min(ask.count for role in gang.roles for ask in role.asks) if gang.single else fleet.map.count
    free: Bools = (fleet.base == 0) & (fleet.free >= least)
    for held in gang.held:
        row = fleet.map.row.get(held.node)
        if row is not None:
            free[row] = fleet.base[row] == 0
    return free
