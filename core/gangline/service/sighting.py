"""`Sighting`: what was read of the gangs and nodes that a picture asks about."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from gangline.model.states import GangState
from gangline.service.durations import RUNS
from gangline.store import Attempt, Gang, Lease, Node, Success, Transaction


@dataclass(slots=True, kw_only=True)
class Sighting:
    """Rows as they are at one version. A gang that there is not (any more) is None."""

    version: int = -1
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
    def of_nodes(tx: Transaction) -> Sighting:
        """Every node, and how long the last gangs ran that succeeded."""
        return Sighting(version=tx.version(), wanted=tx.pools.wanted(),
                        nodes={node.name: node for node in tx.nodes.all()}, successes=tx.gangs.successes(RUNS))

    @staticmethod
    def page(tx: Transaction, after: int, most: int) -> Sighting:
        """The first `most` gangs that are not over, of those submitted after number `after`."""
        found = tx.gangs.unfinished_after(after, most)
        tried = [gang.id for gang in found if gang.attempt]
        return Sighting(
            version=tx.version(), wanted=tx.pools.wanted(), gangs={gang.id: gang for gang in found},
            attempts=tx.attempts.newest(tried), leases=tx.leases.open_of_some(tried),
            saved_ms=tx.versions.saved_ms(tried))

    def add(self, later: Sighting) -> None:
        """Puts what a later transaction read in place of what was read before."""
        self.version, self.wanted = later.version, later.wanted
        for gang in later.gangs:
            self.attempts.pop(gang, None)
            self.leases.pop(gang, None)
        self.nodes |= later.nodes
        self.gangs |= later.gangs
        self.attempts |= later.attempts
        self.leases |= later.leases
        self.saved_ms |= later.saved_ms
        self.successes += later.successes


def _success(gang: Gang) -> Success:
    return Success(tenant=gang.tenant, name=gang.name, ended_ms=gang.ended_ms or gang.changed_ms, seq=gang.seq,
                   ran_ms=gang.ran_ms)
