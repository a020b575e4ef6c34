"""With which set a blocked gang could start earliest, and whether the set waits for nothing but boots."""

from __future__ import annotations

from dataclasses import dataclass

from gangline.plan.snapshot import UNKNOWN_MS, PendingGang
from reference.asking import Choice, Need, block_of, is_single, widest
from reference.world import Row, World


@dataclass(frozen=True)
class Set:
    """Rows with the instants at which they are ready."""

    choice: Choice
    rows: list[Row]
    times: list[int]
    rank: tuple[int, ...]

    @property
    def start_ms(self) -> int:
        return max(self.times)

    @property
    def moving(self) -> bool:
        coming = [at for row, at in zip(self.rows, self.times, strict=True) if row.coming_at(at)]
        return bool(coming) and self.start_ms == max(coming)


def forecast(world: World, gang: PendingGang, choices: list[Choice]) -> Set | None:
    """The best set; a promise keeps it in its subtree."""
    sets = [found for choice in choices for found in (_rows if is_single(gang) else _subtrees)(world, gang, choice)]
    best = min(sets, key=lambda found: found.rank, default=None)
    if best is None or is_single(gang) or gang.promise is None or gang.promise.node not in world.by_name:
        return best
    level = widest(world, gang)
    home = world.by_name[gang.promise.node].subtree[level]
    promised = min((found for found in sets if found.rows[0].subtree[level] == home),
                   key=lambda found: found.rank, default=None)
    if promised is None or _much_earlier(world, gang, best, promised):
        return best
    return promised


def _much_earlier(world: World, gang: PendingGang, best: Set, promised: Set) -> bool:
    if UNKNOWN_MS in (best.start_ms, promised.start_ms):
        return best.start_ms < promised.start_ms
    left_ms = max(0, gang.promise.at_ms - world.now_ms)
    margin_ms = max(world.policy.sticky_ms, int(world.policy.sticky_share * left_ms))
    return promised.start_ms - best.start_ms > margin_ms


def _rows(world: World, gang: PendingGang, choice: Choice) -> list[Set]:
    found = []
    ask = choice.asks[0]
    for row in world.rows:
        at = row.part_ready_ms(ask.count) if world.meets(gang, ask, row) else None
        if at is not None:
            price = world.price(row) if row.virtual else 0
            found.append(Set(choice, [row], [at], (at, row.virtual, price, choice.rank, row.index)))
    return found


def _subtrees(world: World, gang: PendingGang, choice: Choice) -> list[Set]:
    level = widest(world, gang)
    ready = {row: row.ready_ms for row in world.rows if row.ready_ms is not None}
    found = []
    for subtree in sorted({row.subtree[level] for row in ready}):
        inside = {row: at for row, at in ready.items() if row.subtree[level] == subtree}
        rows = _soonest(world, gang, choice, inside)
        if rows is not None:
            times = [ready[row] for row in rows]
            virtual = [row for row in rows if row.virtual]
            price = sum(map(world.price, virtual))
            rank = (max(times), times.count(UNKNOWN_MS), len(virtual), price, choice.rank, subtree)
            found.append(Set(choice, rows, times, rank))
    return found


def _soonest(world: World, gang: PendingGang, choice: Choice, ready: dict[Row, int]) -> list[Row] | None:
    """Need by need the rows that are ready first; None if there are not enough."""
    taken: list[Row] = []
    for need in choice.needs:
        left = [row for row in ready if row not in taken and world.meets(gang, need.ask, row)]
        left.sort(key=lambda row: (ready[row], row.virtual, world.price(row) if row.virtual else 0, row.index))
        mine = left[:need.size] if gang.domain_size is None else _blocks(need, left, ready, block_of(gang))
        if len(mine) < need.size:
            return None
        taken += mine
    return taken


def _blocks(need: Need, rows: list[Row], ready: dict[Row, int], block: int) -> list[Row]:
    blocks = []
    for domain in {row.subtree[0] for row in rows}:
        mine = [row for row in rows if row.subtree[0] == domain]
        blocks += [mine[at:at + block] for at in range(0, len(mine) - block + 1, block)]
    blocks.sort(key=lambda part: (max(ready[row] for row in part), min(row.index for row in part)))
    return [row for part in blocks[:need.size // block] for row in part]


def just_in_time(world: World, gang: PendingGang, found: Set) -> list[Row]:
    """The rows to keep: of those that are ready by the start, the last to be ready."""
    if is_single(gang) or gang.domain_size is not None or len(found.choice.needs) > 1 or found.start_ms == UNKNOWN_MS:
        return found.rows
    level, (need,) = widest(world, gang), found.choice.needs
    rows = [row for row in world.rows if row.subtree[level] == found.rows[0].subtree[level]
            and world.meets(gang, need.ask, row) and row.ready_ms is not None and row.ready_ms <= found.start_ms]
    return sorted(rows, key=lambda row: (-row.ready_ms, row.index))[:need.size]


def could_ever_be(world: World, gang: PendingGang, choices: list[Choice]) -> bool:
    """Whether the fleet could ever hold it: nodes in any state, and all that pools could add."""
    if is_single(gang):
        return any(world.meets(gang, choice.asks[0], row) for choice in choices for row in world.rows)
    level = widest(world, gang)
    subtrees = [{row: 0 for row in world.rows if row.subtree[level] == subtree}
                for subtree in {row.subtree[level] for row in world.rows}]
    return any(_soonest(world, gang, choice, rows) is not None for choice in choices for rows in subtrees)
