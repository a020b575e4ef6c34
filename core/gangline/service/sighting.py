"""`Sighting`: what one transaction read of the gangs and nodes that a picture asks about."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from gangline.model.states import GangState
from gangline.service.durations import RUNS
from gangline.store import Attempt, Gang, Lease, Node, Success, Transaction


@dataclass(slots=True, kw_only=True)
class Sighting:
    """Rows as they are at one version. A gang that there is not (any more) is None."""

    version: int
    wanted: dict[str, int] = field(default_factory=dict)
    nodes: dict[str, Node] = field(default_factory=dict)
    gangs: dict[str, Gang | None] = field(default_factory=dict)
    attempts: dict[str, Attempt] = field(default_factory=dict)
    leases: dict[str, list[Lease]] = field(default_factory=dict)
    saved_ms: dict[tuple[str, int], int] = field(default_factory=dict)
    successes: tuple[Success, ...] = ()

    @staticmethod
    def of(tx: Transaction, gangs: Collection[str], nodes: Collection[str]) -> Sighting:
        """These gangs and nodes as they are now."""
        found = tx.gangs.some(gangs)
        tried = [gang.id for gang in found.values() if gang.attempt and not gang.state.final]
        return Sighting(
            version=tx.version(), wanted=tx.pools.wanted(), nodes=tx.nodes.some(nodes) if nodes else {},
            gangs={gang: found.get(gang) for gang in gangs}, attempts=tx.attempts.newest(tried),
            leases=tx.leases.open_of_some(tried), saved_ms=tx.versions.saved_ms(tried),
            successes=tuple(_success(gang) for gang in found.values() if gang.state is GangState.SUCCEEDED))

    @staticmethod
    def of_all(tx: Transaction) -> Sighting:
        """Every node and every gang that is not over, and how long the last ones ran that succeeded."""
        gangs: dict[str, Gang | None] = {}
        tried = []
        for gang in tx.gangs.unfinished():
            gangs[gang.id] = gang
            if gang.attempt:
                tried.append(gang.id)
        leases: dict[str, list[Lease]] = {}
        for lease in tx.leases.all_open():
            leases.setdefault(lease.gang, []).append(lease)
        return Sighting(
            version=tx.version(), wanted=tx.pools.wanted(), nodes={node.name: node for node in tx.nodes.all()},
            gangs=gangs, attempts=tx.attempts.newest(tried), leases=leases, saved_ms=tx.versions.saved_ms(tried),
            successes=tx.gangs.successes(RUNS))


def _success(gang: Gang) -> Success:
    return Success(tenant=gang.tenant, name=gang.name, ended_ms=gang.ended_ms or gang.changed_ms, seq=gang.seq,
                   ran_ms=gang.ran_ms)
