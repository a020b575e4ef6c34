"""Which nodes to ask of pools so that a blocked gang can start: exactly those that are missing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gangline.plan.board import UNKNOWN_MS, Board, Spot, node_price
from gangline.plan.demand import Choice, Demand, Need
from gangline.plan.forecast import whole_at_ms
from gangline.plan.place import gather
from gangline.plan.topology import Key, Level, subtree_name

# A pool may be asked some seconds after the plan that started other gangs: both count as one moment.
ACTING_MS = 10_000


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
_Timed = tuple[int, Spot]  # when the spot is whole, and the spot


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
    level, gang = demand.widest, demand.gang.gang
    groups: list[dict[Key, list[_Timed]]] = []
    moving: set[Key] = set()
    new = frozenset(s.node.name for s in potential)
    for need in choice.needs:
        by_key: dict[Key, list[_Timed]] = {}
        for spot in (*board.matching(demand, need), *(s for s in potential if need.met_by(s.node))):
            at_ms = whole_at_ms(board, spot, gang) if spot.claim is None else None
            if at_ms is not None and at_ms != UNKNOWN_MS:
                by_key.setdefault(spot.keys[level], []).append((at_ms, spot))
                if spot.whole_soon:
                    moving.add(spot.keys[level])
        groups.append(by_key)
    for key in sorted(moving):
        timed = _fill(board, choice, [by_key.get(key, []) for by_key in groups], level, new)
        if timed is None:
            continue
        ready_ms = max(at_ms for at_ms, _ in timed)
        spots = [s for _, s in timed]
        asked = tuple(s for s in spots if s.node.name in new)
        coming = tuple(s for s in spots if not s.whole and s.node.name not in new)
        moved = [s for s in spots if s.soon]
        yield ((bool(asked), _asked_ms(board, moved), ready_ms, _price(board, moved), key),
               Growth(choice, tuple(s for s in spots if s.whole), coming, asked, ready_ms,
                      subtree_name(level, key)))


def _fill(board: Board, choice: Choice, groups: list[list[_Timed]], level: Level,
          new: frozenset[str]) -> list[_Timed] | None:
    chosen: list[_Timed] = []
    taken: set[str] = set()
    for need, timed in zip(choice.needs, groups, strict=True):
        mine = _fill_need(board, need, [t for t in timed if t[1].node.name not in taken], level, new)
        if len(mine) < need.size:
            return None
        chosen += mine
        taken.update(s.node.name for _, s in mine)
    return chosen


def _fill_need(board: Board, need: Need, timed: list[_Timed], level: Level,
               new: frozenset[str]) -> list[_Timed]:
    """Free nodes, then those in flight, then those lent meanwhile, then new ones."""
    at_ms = {s.node.name: t for t, s in timed}
    free = [s for _, s in timed if s.whole]
    chosen = gather(free, min(need.size, len(free)), level)
    flying = sorted((s for _, s in timed if s.whole_soon and s.node.name not in new),
                    key=lambda s: (s.soon_ms, s.order))[:need.size - len(chosen)]
    chosen += flying
    chosen += _lent(board, timed, flying)[:need.size - len(chosen)]
    missing = need.size - len(chosen)
    by_pool: dict[str, list[Spot]] = {}
    for _, spot in timed:
        if spot.node.name in new:
            by_pool.setdefault(spot.node.pool, []).append(spot)
    # Potential spots come best pool first: one pool that can give all of them, else several together.
    alone = next((group for group in by_pool.values() if len(group) >= missing), None)
    more = alone if alone is not None else [s for group in by_pool.values() for s in group]
    return [(at_ms[s.node.name], s) for s in (*chosen, *more[:missing])]


def _lent(board: Board, timed: list[_Timed], flying: list[Spot]) -> list[Spot]:
    """Nodes that gangs took while those in flight boot and give back before they are there.

    They were free and kept for this gang when it asked; letting others in for just that time must not
    make it ask once more.
    """
    if not flying:
        return []
    asked_ms = min(_asked_ms(board, [spot]) for spot in flying) - ACTING_MS
    last_ms = max(spot.soon_ms for spot in flying)
    lent = [(at_ms, s.order, s) for at_ms, s in timed
            if not s.whole and not s.soon and at_ms <= last_ms
            and all(hold.since_ms >= asked_ms for hold in s.holds)]
    return [spot for _, _, spot in sorted(lent, key=lambda item: item[:2])]


def _asked_ms(board: Board, spots: list[Spot]) -> int:
    """When the last of the spots was asked for, by when it is expected; no later than now."""
    asked = (s.soon_ms - board.pools[s.node.pool].boot_ms for s in spots if s.node.pool in board.pools)
    return max((min(at_ms, board.now_ms) for at_ms in asked), default=0)


def _price(board: Board, spots: list[Spot]) -> int:
    return sum(node_price(board.pools[s.node.pool]) for s in spots if s.node.pool in board.pools)
