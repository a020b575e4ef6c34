"""Which nodes a gang gets: all it needs now, in the smallest subtree that fits, or None."""

from __future__ import annotations

from gangline.plan.board import Board, Spot, assign_roles, counts_by_subtree
from gangline.plan.demand import Choice, Demand, Need
from gangline.plan.outcome import NodeChoice
from gangline.plan.snapshot import Held
from gangline.plan.topology import Key, Level

Members = tuple[NodeChoice, ...]


def place(board: Board, demand: Demand, *, heed_claims: bool = True) -> Members | None:
    """The members of a gang that holds nothing yet, in node-rank order; None when it does not fit now.

    Real nodes before emulated ones, alternatives in rank order, then the smallest subtree.
    `heed_claims=False` answers whether it would fit if nothing were reserved.
    """
    for emulated in board.kinds:
        for choice in demand.choices:
            candidates = [
                [s for s in board.matching(demand, need)
                 if s.node.emulated is emulated and s.free
                 and (not heed_claims or board.open_to(s, demand.gang))]
                for need in choice.needs]
            members = (_part(choice, demand, candidates[0]) if demand.single
                       else _whole(choice, demand, candidates))
            if members is not None:
                return members
    return None


def complete(board: Board, demand: Demand, keeps: list[Held]) -> Members | None:
    """The members of a gang in repair: all it keeps and what is missing beside it; None if none fits."""
    kept = [board.by_name[held.node] for held in keeps]
    if demand.single:
        return _same_part(demand, kept[0], keeps[0].gpus)
    for choice in demand.choices:
        for level in Level:
            keys = {spot.keys[level] for spot in kept}
            if level > demand.widest or len(keys) > 1:
                continue
            chosen = _beside(board, demand, choice, kept, level)
            if chosen is not None:
                return assign_roles(demand, choice, chosen)
    return None


def _part(choice: Choice, demand: Demand, spots: list[Spot]) -> Members | None:
    """Part of one node, the fullest that has room, so that whole nodes stay whole."""
    ask = choice.asks[0]
    leaf_free: dict[Key, int] = {}
    for spot in spots:
        if spot.whole:
            leaf_free[spot.keys[Level.LEAF]] = leaf_free.get(spot.keys[Level.LEAF], 0) + 1

    def rank(spot: Spot) -> tuple[object, ...]:
        return spot.whole, len(spot.free), leaf_free.get(spot.keys[Level.LEAF], 0), spot.order

    fits = [s for s in spots if len(s.free) >= ask.count]
    if not fits:
        return None
    best = min(fits, key=rank)
    return (NodeChoice(node=best.node.name, gpus=tuple(best.free[:ask.count]), ask=ask,
                       role=demand.gang.roles[0].name),)


def _same_part(demand: Demand, spot: Spot, gpus: tuple[int, ...]) -> Members | None:
    for choice in demand.choices:
        ask = choice.asks[0]
        if ask.type == spot.node.gpu.type and ask.count == len(gpus):
            return (NodeChoice(node=spot.node.name, gpus=tuple(sorted(gpus)), ask=ask,
                               role=demand.gang.roles[0].name),)
    return None


def _whole(choice: Choice, demand: Demand, candidates: list[list[Spot]]) -> Members | None:
    candidates = [[s for s in spots if s.whole] for spots in candidates]
    if not choice.enough([len(spots) for spots in candidates]):
        return None
    for level in Level:
        if level > demand.widest:
            break
        fits = [(choice.distinct(row), key) for key, row in counts_by_subtree(candidates, level).items()
                if choice.enough(row)]
        if fits:
            _, best = min(fits)
            inside = [[s for s in spots if s.keys[level] == best] for spots in candidates]
            return assign_roles(demand, choice, pick(choice, inside, level))
    return None


def pick(choice: Choice, candidates: list[list[Spot]], level: Level) -> dict[Need, list[Spot]]:
    """Spots for every need out of one subtree that has enough, on as few smaller subtrees as it can."""
    chosen: dict[Need, list[Spot]] = {}
    taken: set[str] = set()
    for need, spots in zip(choice.needs, candidates, strict=True):
        left = [s for s in spots if s.node.name not in taken]
        chosen[need] = gather(left, need.size, level)
        taken.update(s.node.name for s in chosen[need])
    return chosen


def gather(spots: list[Spot], size: int, level: Level) -> list[Spot]:
    """`size` of the spots: the tightest inner subtree that holds what is left, else the fullest whole."""
    if level is Level.LEAF:
        return sorted(spots, key=lambda s: (s.count, s.order))[:size]
    inner = Level(level - 1)
    groups: dict[Key, list[Spot]] = {}
    for spot in spots:
        groups.setdefault(spot.keys[inner], []).append(spot)
    by_size = sorted(groups.items(), key=lambda item: (-len(item[1]), item[0]))
    taken: list[Spot] = []
    for at, (_, group) in enumerate(by_size):
        left = size - len(taken)
        if len(group) < left:
            taken += group
            continue
        _, tightest = min((len(g), key) for key, g in by_size[at:] if len(g) >= left)
        return taken + gather(groups[tightest], left, inner)
    return taken


def _beside(board: Board, demand: Demand, choice: Choice, kept: list[Spot],
            level: Level) -> dict[Need, list[Spot]] | None:
    """Every kept spot and free ones nearest to them, all inside the kept spots' subtree of the level."""
    left = sorted(kept, key=lambda s: (-s.count, s.order))
    chosen: dict[Need, list[Spot]] = {}
    for need in choice.needs:
        chosen[need] = [s for s in left if need.met_by(s.node)][:need.size]
        left = [s for s in left if s not in chosen[need]]
    if left:
        return None
    taken = {s.node.name for s in kept}
    home = kept[0].keys[level]
    near = [frozenset(s.keys[lv] for s in kept) for lv in Level]

    def rank(spot: Spot) -> tuple[object, ...]:
        return next(lv for lv in Level if spot.keys[lv] in near[lv]), spot.count, spot.order

    for need in choice.needs:
        free = [s for s in board.matching(demand, need)
                if s.node.name not in taken and s.keys[level] == home and s.whole
                and board.open_to(s, demand.gang)]
        more = sorted(free, key=rank)[:need.size - len(chosen[need])]
        chosen[need] += more
        taken.update(s.node.name for s in more)
        if len(chosen[need]) < need.size:
            return None
    return chosen
