"""Which nodes to ask of pools so that a blocked gang can start: exactly those that are missing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gangline.plan.board import Board, Spot, node_price
from gangline.plan.demand import Choice, Demand, Need
from gangline.plan.place import gather
from gangline.plan.topology import Key, Level, subtree_name


@dataclass(frozen=True, slots=True)
class Growth:
    """A whole set for a gang: nodes free now, nodes on their way, and nodes to ask for."""

    choice: Choice
    free: tuple[Spot, ...]
    coming: tuple[Spot, ...]
    new: tuple[Spot, ...]
    ready_ms: int
    where: str

    @property
    def spots(self) -> tuple[Spot, ...]:
        return (*self.free, *self.coming, *self.new)


Option = tuple[tuple[object, ...], Growth]


def growth(board: Board, demand: Demand) -> Growth | None:
    """How nodes on their way, and new ones where the policy allows, complete the gang; None if they cannot.

    Alternatives in rank order; then sets that need nothing new, those asked for longest first, so that
    no gang leaves nodes that are on their way for it; then the soonest, the cheapest, by name.
    """
    potential = board.potential(demand) if board.policy.capacity else []
    for choice in demand.choices:
        options = (_parts if demand.single else _wholes)(board, demand, choice, potential)
        best = min(options, key=lambda option: option[0], default=None)
        if best is not None:
            return best[1]
    return None


def _parts(board: Board, demand: Demand, choice: Choice, potential: list[Spot]) -> Iterator[Option]:
    need = choice.needs[0]
    new = frozenset(s.node.name for s in potential)
    for spot in (*board.matching(demand, need), *(s for s in potential if need.met_by(s.node))):
        room = len(spot.soon) + len(spot.free)
        if spot.soon and spot.claim is None and room >= need.ask.count:
            asked = spot.node.name in new
            yield ((asked, _asked_ms(board, [spot]), spot.soon_ms, _price(board, [spot]), room, spot.order),
                   Growth(choice, (), () if asked else (spot,), (spot,) if asked else (), spot.soon_ms,
                          subtree_name(Level.ANY, ())))


def _wholes(board: Board, demand: Demand, choice: Choice, potential: list[Spot]) -> Iterator[Option]:
    level = demand.widest
    useful: list[dict[Key, list[Spot]]] = []
    moving: set[Key] = set()
    for need in choice.needs:
        groups: dict[Key, list[Spot]] = {}
        for spot in (*board.matching(demand, need), *(s for s in potential if need.met_by(s.node))):
            if spot.claim is None and (spot.whole or spot.whole_soon):
                groups.setdefault(spot.keys[level], []).append(spot)
                if spot.soon:
                    moving.add(spot.keys[level])
        useful.append(groups)
    new = frozenset(s.node.name for s in potential)
    for key in sorted(moving):
        spots = _fill(choice, [groups.get(key, []) for groups in useful], level, new)
        if spots is None:
            continue
        ready_ms = max((s.soon_ms for s in spots if s.soon), default=board.now_ms)
        found = Growth(choice, tuple(s for s in spots if not s.soon),
                       tuple(s for s in spots if s.soon and s.node.name not in new),
                       tuple(s for s in spots if s.node.name in new), ready_ms, subtree_name(level, key))
        moved = [*found.coming, *found.new]
        yield (bool(found.new), _asked_ms(board, moved), ready_ms, _price(board, moved), key), found


def _fill(choice: Choice, useful: list[list[Spot]], level: Level, new: frozenset[str]) -> list[Spot] | None:
    if not choice.enough([len(spots) for spots in useful]):
        return None
    chosen: list[Spot] = []
    taken: set[str] = set()
    for need, spots in zip(choice.needs, useful, strict=True):
        left = [s for s in spots if s.node.name not in taken]
        mine = _fill_need(need, left, level, new)
        chosen += mine
        taken.update(s.node.name for s in mine)
    return chosen


def _fill_need(need: Need, spots: list[Spot], level: Level, new: frozenset[str]) -> list[Spot]:
    free = [s for s in spots if not s.soon]
    chosen = gather(free, min(need.size, len(free)), level)
    coming = sorted((s for s in spots if s.soon and s.node.name not in new),
                    key=lambda s: (s.soon_ms, s.order))
    chosen += coming[:need.size - len(chosen)]
    missing = need.size - len(chosen)
    by_pool: dict[str, list[Spot]] = {}
    for spot in spots:
        if spot.node.name in new:
            by_pool.setdefault(spot.node.pool, []).append(spot)
    # Potential spots come best pool first: one pool that can give all of them, else several together.
    alone = next((group for group in by_pool.values() if len(group) >= missing), None)
    more = alone if alone is not None else [s for group in by_pool.values() for s in group]
    return chosen + more[:missing]


def _asked_ms(board: Board, spots: list[Spot]) -> int:
    """When the last of the spots was asked for, by when it is expected; no later than now."""
    asked = (s.soon_ms - board.pools[s.node.pool].boot_ms for s in spots if s.node.pool in board.pools)
    return max((min(at_ms, board.now_ms) for at_ms in asked), default=0)


def _price(board: Board, spots: list[Spot]) -> int:
    return sum(node_price(board.pools[s.node.pool]) for s in spots if s.node.pool in board.pools)
