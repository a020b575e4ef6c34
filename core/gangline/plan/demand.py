"""What a gang asks for, in the terms a pass decides in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, product

from gangline.model.gpu import GpuAsk
from gangline.plan.fleet import Bools, FleetMap, Wanted
from gangline.plan.members import Members
from gangline.plan.outcome import NodeChoice
from gangline.plan.snapshot import PendingGang, RoleNeed

# Ranked alternatives multiply over roles; the first ones are tried, so that a spec cannot stall a pass.
MAX_CHOICES = 256
_KEPT = 4096
_MANY = 1 << 30


@dataclass(frozen=True, slots=True, eq=False)
class Need:
    """`size` nodes of `ask`. `upto` counts the nodes of all needs of this type that ask no less: so many
    must match this ask, else the needs cannot be met together. `last` says no smaller ask of the type follows.
    `mask` tells the rows that could ever meet it, `parts` those that could give any part of such a node."""

    ask: GpuAsk
    size: int
    upto: int
    last: bool
    mask: Bools
    parts: Bools


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """One alternative for every role, and the needs that follow: types by name, bigger asks first."""

    rank: int
    asks: tuple[GpuAsk, ...]
    needs: tuple[Need, ...]
    gpus: tuple[tuple[str, int], ...]  # so many GPUs of each type it takes at least
    members: tuple[Members, ...]  # whole rows as members of each role

    def ranked(self, roles: Sequence[RoleNeed], by_ask: Mapping[GpuAsk, list[int]]) -> tuple[NodeChoice, ...]:
        """Whole rows as members in node-rank order: roles in order, row order inside a role."""
        left = {ask: sorted(rows) for ask, rows in by_ask.items()}
        made: list[NodeChoice] = []
        for role, ask, members in zip(roles, self.asks, self.members, strict=True):
            mine, left[ask] = left[ask][:role.size], left[ask][role.size:]
            made += [members[row] for row in mine]
        return tuple(made)


@dataclass(frozen=True, slots=True, eq=False)
class Demand:
    """What gangs of one signature ask for: choices in rank order and the widest level they may span.

    No choices when a role finds no type of its own in the fleet.
    """

    roles: tuple[RoleNeed, ...]
    choices: tuple[Choice, ...]
    widest: int
    single: bool  # only a gang of one node may take part of a node
    block: int  # nodes come in blocks of so many of one NVLink domain; 0 for no matter


def demand_of(fleet_map: FleetMap, gang: PendingGang) -> Demand:
    """The demand of the gang in that fleet; kept with the map."""
    found = fleet_map.demands.get(gang.signature)
    if found is None:
        if len(fleet_map.demands) >= _KEPT:
            fleet_map.demands.clear()
        found = fleet_map.demands[gang.signature] = _demand(fleet_map, gang)
    return found


def _demand(fleet_map: FleetMap, gang: PendingGang) -> Demand:
    asks = [[ask for ask in dict.fromkeys(role.asks) if ask.type in fleet_map.types] for role in gang.roles]
    choices = tuple(_choice(fleet_map, gang, rank, combo)
                    for rank, combo in enumerate(islice(product(*asks), MAX_CHOICES)))
    return Demand(gang.roles, choices, fleet_map.levels.within(gang.within, rdma=gang.rdma), gang.single,
                  gang.domain_size or 0)


def _choice(fleet_map: FleetMap, gang: PendingGang, rank: int, asks: Sequence[GpuAsk]) -> Choice:
    sizes: dict[GpuAsk, int] = {}
    for role, ask in zip(gang.roles, asks, strict=True):
        sizes[ask] = sizes.get(ask, 0) + role.size
    ordered = sorted(sizes, key=lambda ask: (ask.type, -ask.count))
    needs = []
    upto: dict[str, int] = {}
    for index, ask in enumerate(ordered):
        upto[ask.type] = upto.get(ask.type, 0) + sizes[ask]
        wanted = Wanted(ask, gang.rdma, gang.zone, gang.pool, gang.exclude, gang.domain_size is not None)
        last = index + 1 == len(ordered) or ordered[index + 1].type != ask.type
        needs.append(Need(ask, sizes[ask], upto[ask.type], last, fleet_map.mask(wanted),
                          fleet_map.mask(replace(wanted, ask=GpuAsk(ask.type, 1)))))
    gpus: dict[str, int] = {}
    for need in needs:
        least = need.ask.count if gang.single else int(fleet_map.count[need.mask].min(initial=_MANY))
        gpus[need.ask.type] = gpus.get(need.ask.type, 0) + need.size * (need.ask.count if least == _MANY else least)
    members = tuple(fleet_map.members(ask, role.name) for role, ask in zip(gang.roles, asks, strict=True))
    return Choice(rank, tuple(asks), tuple(needs), tuple(sorted(gpus.items())), members)
