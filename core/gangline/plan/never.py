"""Whether a gang could ever be placed, by what the fleet could at most be, and which field is to blame."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from gangline.model.gpu import GpuAsk
from gangline.plan.demand import Choice, Need, demand_of
from gangline.plan.fleet import FleetMap, Ints
from gangline.plan.snapshot import PendingGang, Snapshot
from gangline.plan.topology import DOMAIN, LEAF
from gangline.plan.words import asks_text, constraint_text, need_text, role_field

_KEPT = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Misfit:
    """Why a gang can never be placed: the field of its spec to change, what is wrong, and how to mend it.

    `short` counts the nodes that would be missing even then.
    """

    field: str
    text: str
    fix: str
    short: int

    def __str__(self) -> str:
        return f"{self.field}: {self.text} ({self.fix})"


def never_fits(gang: PendingGang, snapshot: Snapshot) -> str | None:
    """One line that names the field to change when the fleet could never place the gang, else None.

    Nodes count in any state but gone, busy or not, and pools at the most they can grow to.
    """
    found = misfit(gang, snapshot)
    return None if found is None else str(found)


def misfit(gang: PendingGang, snapshot: Snapshot) -> Misfit | None:
    """`never_fits` with its parts apart. It depends on what the fleet is, not on its state: it is kept with the map."""
    kept = snapshot.fleet.map.misfits
    try:
        return kept[gang.signature]
    except KeyError:
        if len(kept) >= _KEPT:
            kept.clear()
        found = kept[gang.signature] = _misfit(gang, snapshot.fleet.map)
        return found


def _misfit(gang: PendingGang, fleet_map: FleetMap) -> Misfit | None:
    best = _best(fleet_map, gang)
    if best is not None and best.covered == gang.nodes:
        return None
    wrong = _wrong_ask(gang, fleet_map) or _wrong_name(gang, fleet_map)
    if wrong is not None:
        return wrong
    if best is None or best.covered == 0:
        return _wrong_constraint(fleet_map, gang)
    return _too_big(fleet_map, gang, best)


@dataclass(frozen=True, slots=True)
class _Best:
    """The subtree that could hold most of a gang, by one choice: nodes there for each role."""

    covered: int
    per_role: tuple[int, ...]
    where: str


def _best(fleet_map: FleetMap, gang: PendingGang) -> _Best | None:
    """Nodes count in any state, and those that pools could add."""
    demand = demand_of(fleet_map, gang)
    found: list[tuple[tuple[int, int, int], _Best]] = []
    level = LEAF if demand.single else demand.widest
    ids = fleet_map.ids[level]
    for choice in demand.choices:
        counts = [_counts(fleet_map, need, ids, len(fleet_map.keys[level]), demand.block) for need in choice.needs]
        have = _cover(choice, counts)
        covered = np.sum(list(have.values()), axis=0)
        if len(covered):
            at = int(covered.argmax())
            per_role = _per_role(gang, choice, {ask: int(count[at]) for ask, count in have.items()})
            best = _Best(sum(per_role), per_role, fleet_map.name_of(level, at))
            found.append(((-best.covered, choice.rank, at), best))
    return min(found, key=lambda item: item[0])[1] if found else None


def _counts(fleet_map: FleetMap, need: Need, ids: Ints, subtrees: int, block: int) -> Ints:
    """How many rows of each subtree meet the need, in whole blocks."""
    rows = np.flatnonzero(need.mask)
    if not block:
        return np.bincount(ids[rows], minlength=subtrees)
    domains = np.bincount(fleet_map.ids[DOMAIN][rows], minlength=len(fleet_map.keys[DOMAIN])) // block * block
    owner = ids[fleet_map.starts[DOMAIN][:-1]]
    return np.bincount(owner, weights=domains, minlength=subtrees).astype(np.int64)


def _cover(choice: Choice, counts: list[Ints]) -> dict[GpuAsk, Ints]:
    """How many nodes each ask could have in each subtree; bigger asks choose first."""
    have: dict[GpuAsk, Ints] = {}
    taken: dict[str, Ints] = {}
    for need, count in zip(choice.needs, counts, strict=True):
        before = taken.get(need.ask.type, np.zeros_like(count))
        have[need.ask] = np.clip(count - before, 0, need.size)
        taken[need.ask.type] = before + have[need.ask]
    return have


def _per_role(gang: PendingGang, choice: Choice, have: dict[GpuAsk, int]) -> tuple[int, ...]:
    counts = []
    for role, ask in zip(gang.roles, choice.asks, strict=True):
        counts.append(min(role.size, have[ask]))
        have[ask] -= counts[-1]
    return tuple(counts)


def _wrong_ask(gang: PendingGang, fleet_map: FleetMap) -> Misfit | None:
    kinds = {n.gpu for n in fleet_map.values} | {p.gpu for p in fleet_map.pools}
    offered = ", ".join(str(kind) for kind in sorted(kinds)) or "no nodes"
    for role in gang.roles:
        field, asked = role_field(role, "gpu"), asks_text(role)
        types = {ask.type for ask in role.asks}
        near = [kind for kind in kinds if kind.type in types]
        if not near:
            return Misfit(field=field, text=f"no node and no pool has {asked}; the fleet has {offered}",
                          fix="ask for one of those or add a pool", short=gang.nodes)
        if not any(k.type == a.type and k.count >= a.count for k in near for a in role.asks):
            most = max(near, key=lambda kind: (kind.count, kind.type))
            return Misfit(field=field, text=f"no node has {asked}; the largest is {most}",
                          fix=f"ask for at most {most} per node", short=gang.nodes)
    return None


def _wrong_name(gang: PendingGang, fleet_map: FleetMap) -> Misfit | None:
    zones = {n.zone for n in fleet_map.values} | {p.zone for p in fleet_map.pools}
    pools = {n.pool for n in fleet_map.values} | {p.name for p in fleet_map.pools}
    for what, asked, known in (("zone", gang.zone, zones), ("pool", gang.pool, pools)):
        if asked is not None and asked not in known:
            return Misfit(field=f"placement.{what}", text=f"there is no {what} {asked}",
                          fix=f"use one of {', '.join(sorted(known))}, or leave it out", short=gang.nodes)
    return None


def _relaxed(gang: PendingGang) -> list[tuple[str, PendingGang]]:
    """The gang without one constraint at a time, for the constraints it has."""
    options = [("rdma", gang.rdma, replace(gang, rdma=False)),
               ("placement.pool", gang.pool, replace(gang, pool=None)),
               ("placement.zone", gang.zone, replace(gang, zone=None)),
               ("placement.exclude", gang.exclude, replace(gang, exclude=frozenset())),
               ("placement.within", gang.within, replace(gang, within=None)),
               ("domain_size", gang.domain_size, replace(gang, domain_size=None))]
    return [(field, other) for field, given, other in options if given]


def _wrong_constraint(fleet_map: FleetMap, gang: PendingGang) -> Misfit:
    """Nothing serves at all although the type exists: the constraint without which something would."""
    fields = [field for field, other in _relaxed(gang) if _covered(fleet_map, other)]
    fields += [field for field, _ in _relaxed(gang)]
    field = fields[0] if fields else role_field(gang.roles[0], "gpu")
    asked = " or ".join(dict.fromkeys(asks_text(role) for role in gang.roles))
    match field:
        case "rdma":
            text = f"no pool with {asked}{constraint_text(gang, network=False)} has an RDMA network"
        case "placement.exclude":
            text = f"every node with {asked} is excluded"
        case "domain_size":
            text = f"no NVLink domain has {gang.domain_size} nodes with {asked}"
        case _:
            text = f"no node or pool with {asked} is{constraint_text(gang)}"
    return Misfit(field=field, text=text, fix="change it or leave it out", short=gang.nodes)


def _too_big(fleet_map: FleetMap, gang: PendingGang, best: _Best) -> Misfit:
    role, have = next((r, n) for r, n in zip(gang.roles, best.per_role, strict=True) if n < r.size)
    drop = [field for field, other in _relaxed(gang) if _covered(fleet_map, other) == other.nodes]
    lower = f"lower it to {have}" if have else f"leave out role {role.name}"
    also = "".join(f", or leave out {field}" for field in drop[:1])
    where = "" if best.where == "the fleet" else f" ({best.where})"
    most = " + ".join(f"{n} x {asks_text(r)}" for r, n in zip(gang.roles, best.per_role, strict=True))
    return Misfit(field=role_field(role, "size"),
                  text=f"needs {need_text(gang)}; there can be at most {most} together{where}",
                  fix=lower + also, short=gang.nodes - best.covered)


def _covered(fleet_map: FleetMap, gang: PendingGang) -> int:
    best = _best(fleet_map, gang)
    return 0 if best is None else best.covered
