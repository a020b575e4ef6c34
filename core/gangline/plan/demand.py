"""What a gang asks for, in the terms a pass decides in."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice, product

from gangline.model.gpu import GpuAsk
from gangline.plan.snapshot import NodeState, PendingGang
from gangline.plan.topology import Level

# Ranked alternatives multiply over roles; the first ones are tried, so that a spec cannot stall a pass.
MAX_CHOICES = 256
_WITHIN = {"leaf": Level.LEAF, "spine": Level.SPINE, "fabric": Level.FABRIC}


@dataclass(frozen=True, slots=True)
class Need:
    """`size` nodes of `ask`. `upto` counts the nodes of all needs of this type that ask no less:
    so many must match this ask, else the needs cannot be met together."""

    ask: GpuAsk
    size: int
    upto: int

    def met_by(self, node: NodeState) -> bool:
        return node.gpu.type == self.ask.type and node.gpu.count >= self.ask.count


@dataclass(frozen=True, slots=True)
class Choice:
    """One alternative for every role, and the needs that follow: types by name, bigger asks first."""

    asks: tuple[GpuAsk, ...]
    needs: tuple[Need, ...]

    def enough(self, counts: Sequence[int]) -> bool:
        """Whether so many nodes matching each need can meet all of them together."""
        return all(count >= need.upto for count, need in zip(counts, self.needs, strict=True))

    def distinct(self, counts: Sequence[int]) -> int:
        """How many different nodes the counts stand for: those of a bigger ask match the smaller too."""
        last = {need.ask.type: count for count, need in zip(counts, self.needs, strict=True)}
        return sum(last.values())


@dataclass(frozen=True, slots=True)
class Demand:
    """A gang with its choices in rank order and the widest subtree it may span."""

    gang: PendingGang
    choices: tuple[Choice, ...]
    widest: Level
    eligible: Callable[[NodeState], bool]

    @property
    def single(self) -> bool:
        """Only a gang of one node may take part of a node."""
        return self.gang.nodes == 1


def demand_of(gang: PendingGang, types: Iterable[str], rdma_pools: Iterable[str]) -> Demand:
    """The demand of `gang` in a fleet of those GPU types; no choices when a role finds no type of its own."""
    known = frozenset(types)
    asks = [[ask for ask in dict.fromkeys(role.asks) if ask.type in known] for role in gang.roles]
    choices = tuple(_choice(gang, combo) for combo in islice(product(*asks), MAX_CHOICES))
    return Demand(gang, choices, widest_level(gang), _eligible(gang, frozenset(rdma_pools)))


def widest_level(gang: PendingGang) -> Level:
    """The widest subtree the gang may span: rdma keeps it on one fabric."""
    within = _WITHIN[gang.within] if gang.within else Level.ANY
    return min(within, Level.FABRIC) if gang.rdma else within


def _choice(gang: PendingGang, asks: tuple[GpuAsk, ...]) -> Choice:
    sizes: dict[GpuAsk, int] = {}
    for role, ask in zip(gang.roles, asks, strict=True):
        sizes[ask] = sizes.get(ask, 0) + role.size
    needs = []
    upto: dict[str, int] = {}
    for ask in sorted(sizes, key=lambda a: (a.type, -a.count)):
        upto[ask.type] = upto.get(ask.type, 0) + sizes[ask]
        needs.append(Need(ask, sizes[ask], upto[ask.type]))
    return Choice(asks, tuple(needs))


def _eligible(gang: PendingGang, rdma_pools: frozenset[str]) -> Callable[[NodeState], bool]:
    def eligible(node: NodeState) -> bool:
        return (not node.gone
                and (gang.zone is None or node.zone == gang.zone)
                and (gang.pool is None or node.pool == gang.pool)
                and node.name not in gang.exclude
                and (not gang.rdma or (node.fabric is not None and node.pool in rdma_pools)))
    return eligible
