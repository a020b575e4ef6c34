"""Whether a gang could ever be placed, by what the fleet could at most be, and which field is to blame."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from gangline.plan.board import Board, Spot
from gangline.plan.demand import Choice, Demand
from gangline.plan.snapshot import PendingGang, Policy, Snapshot
from gangline.plan.topology import Key, Level, subtree_name
from gangline.plan.words import asks_text, constraint_text, need_text, role_field


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
    """`never_fits` with its parts apart."""
    board = Board(snapshot, Policy(), 0)
    best = _best(board, gang)
    if best is not None and best.covered == gang.nodes:
        return None
    wrong = _wrong_ask(gang, snapshot) or _wrong_name(gang, snapshot)
    if wrong is not None:
        return wrong
    if best is None or best.covered == 0:
        return _wrong_constraint(board, gang)
    return _too_big(board, gang, best)


@dataclass(frozen=True, slots=True)
class _Best:
    """The subtree that could hold most of a gang, by one choice: nodes there for each role."""

    covered: int
    per_role: tuple[int, ...]
    where: str


def _best(board: Board, gang: PendingGang) -> _Best | None:
    demand = board.demand(gang)
    potential = board.potential(demand)
    found: list[tuple[tuple[int, int, Key], _Best]] = []
    for rank, choice in enumerate(demand.choices):
        spots = {s.node.name: s for need in choice.needs for s in board.matching(demand, need)}
        spots |= {s.node.name: s for s in potential if any(n.met_by(s.node) for n in choice.needs)}
        level = Level.LEAF if demand.single else demand.widest
        groups: dict[Key, list[Spot]] = {}
        for spot in spots.values():
            groups.setdefault(spot.keys[level], []).append(spot)
        for key, group in groups.items():
            per_role = _cover(demand, choice, group)
            covered = sum(per_role)
            found.append(((-covered, rank, key), _Best(covered, per_role, subtree_name(level, key))))
    return min(found, key=lambda item: item[0])[1] if found else None


def _cover(demand: Demand, choice: Choice, spots: Iterable[Spot]) -> tuple[int, ...]:
    """How many nodes each role could have of these; bigger asks choose first."""
    left = list(spots)
    have: dict[object, int] = {}
    for need in choice.needs:
        mine = [s for s in left if need.met_by(s.node)][:need.size]
        names = {s.node.name for s in mine}
        left = [s for s in left if s.node.name not in names]
        have[need.ask] = len(mine)
    counts = []
    for role, ask in zip(demand.gang.roles, choice.asks, strict=True):
        counts.append(min(role.size, have[ask]))
        have[ask] -= counts[-1]
    return tuple(counts)


def _wrong_ask(gang: PendingGang, snapshot: Snapshot) -> Misfit | None:
    kinds = {n.gpu for n in snapshot.nodes if not n.gone} | {p.gpu for p in snapshot.pools}
    offered = ", ".join(str(kind) for kind in sorted(kinds)) or "no nodes"
    for role in gang.roles:
        field, asked = role_field(gang, role, "gpu"), asks_text(role)
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


def _wrong_name(gang: PendingGang, snapshot: Snapshot) -> Misfit | None:
    zones = {n.zone for n in snapshot.nodes if not n.gone} | {p.zone for p in snapshot.pools}
    pools = {n.pool for n in snapshot.nodes if not n.gone} | {p.name for p in snapshot.pools}
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
               ("placement.within", gang.within, replace(gang, within=None))]
    return [(field, other) for field, given, other in options if given]


def _wrong_constraint(board: Board, gang: PendingGang) -> Misfit:
    """Nothing serves at all although the type exists: the constraint without which something would."""
    fields = [field for field, other in _relaxed(gang) if _covered(board, other)]
    fields += [field for field, _ in _relaxed(gang)]
    field = fields[0] if fields else role_field(gang, gang.roles[0], "gpu")
    asked = " or ".join(dict.fromkeys(asks_text(role) for role in gang.roles))
    match field:
        case "rdma":
            text = f"no pool with {asked}{constraint_text(gang, network=False)} has an RDMA network"
        case "placement.exclude":
            text = f"every node with {asked} is excluded"
        case _:
            text = f"no node or pool with {asked} is{constraint_text(gang)}"
    return Misfit(field=field, text=text, fix="change it or leave it out", short=gang.nodes)


def _too_big(board: Board, gang: PendingGang, best: _Best) -> Misfit:
    role, have = next((r, n) for r, n in zip(gang.roles, best.per_role, strict=True) if n < r.size)
    drop = [field for field, other in _relaxed(gang) if _covered(board, other) == other.nodes]
    lower = f"lower it to {have}" if have else f"leave out role {role.name}"
    also = "".join(f", or leave out {field}" for field in drop[:1])
    where = "" if best.where == "the fleet" else f" ({best.where})"
    most = " + ".join(f"{n} x {asks_text(r)}" for r, n in zip(gang.roles, best.per_role, strict=True))
    return Misfit(field=role_field(gang, role, "size"),
                  text=f"needs {need_text(gang)}; there can be at most {most} together{where}",
                  fix=lower + also, short=gang.nodes - best.covered)


def _covered(board: Board, gang: PendingGang) -> int:
    best = _best(board, gang)
    return 0 if best is None else best.covered
