"""Where a gang goes now: Place and Repair."""

from __future__ import annotations

from dataclasses import dataclass

from gangline.plan.outcome import NodeChoice
from gangline.plan.snapshot import Held, PendingGang
from gangline.plan.topology import LEAF
from reference.asking import (
    Choice,
    Need,
    Offers,
    Use,
    block_of,
    choices_of,
    counted,
    enough,
    is_single,
    meeting,
    widest,
)
from reference.world import Row, World

Members = tuple[NodeChoice, ...]


@dataclass(frozen=True)
class Spot:
    """A whole gang on rows."""

    choice: Choice
    members: Members


def place(world: World, use: Use, gang: PendingGang, offers: Offers, *, heed_claims: bool = True) -> Spot | None:
    """Real rows before emulated ones, then choices in rank order."""
    for emulated in (False, True):
        rows = [row for row in world.rows if row.node.emulated is emulated
                and (not heed_claims or world.open_to(row, gang))]
        for choice in list(offers.choices):
            members = (_single if is_single(gang) else _several)(world, gang, choice, rows)
            if members is None:
                continue
            if use.allows(gang.tenant, gpus_of(world, members)):
                return Spot(choice, members)
            offers.refuse(choice)
    return None


def gpus_of(world: World, members: Members) -> list[tuple[str, int]]:
    return [(world.by_name[member.node].node.gpu.type, len(member.gpus)) for member in members]


def _several(world: World, gang: PendingGang, choice: Choice, rows: list[Row]) -> Members | None:
    """The smallest level with a subtree that has enough whole rows; of those the one with the fewest."""
    block = block_of(gang)
    by_need = meeting(world, gang, choice, [row for row in rows if row.whole])
    for level in range(widest(world, gang) + 1):
        fits = []
        for subtree in {row.subtree[level] for mine in by_need for row in mine}:
            inside = [[row for row in mine if row.subtree[level] == subtree] for mine in by_need]
            if enough(choice, inside, block):
                size = sum(counted(mine, block) for need, mine in zip(choice.needs, inside, strict=True) if need.last)
                fits.append((size, subtree, inside))
        if fits:
            _, _, inside = min(fits, key=lambda fit: fit[:2])
            return hand_out(gang, choice, _pick(choice, inside, level, block))
    return None


def _pick(choice: Choice, by_need: list[list[Row]], level: int, block: int) -> dict[Need, list[Row]]:
    chosen: dict[Need, list[Row]] = {}
    for need, rows in zip(choice.needs, by_need, strict=True):
        taken = {row for mine in chosen.values() for row in mine}
        chosen[need] = gather([row for row in rows if row not in taken], need.size, level, block)
    return chosen


def gather(rows: list[Row], size: int, level: int, block: int) -> list[Row]:
    """`size` of the rows of one subtree, on as few smaller subtrees as can be."""
    if level == 0:
        return sorted(rows, key=lambda row: (row.count, row.index))[:size]
    groups: dict[int, list[Row]] = {}
    for row in rows:
        groups.setdefault(row.subtree[level - 1], []).append(row)
    order = sorted(groups, key=lambda subtree: (-counted(groups[subtree], block), subtree))
    taken: list[Row] = []
    for at, subtree in enumerate(order):
        left = size - len(taken)
        count = counted(groups[subtree], block)
        if count < left:
            taken += gather(groups[subtree], count, level - 1, block)
            continue
        _, tightest = min((counted(groups[other], block), other) for other in order[at:]
                          if counted(groups[other], block) >= left)
        return taken + gather(groups[tightest], left, level - 1, block)
    return taken


def hand_out(gang: PendingGang, choice: Choice, chosen: dict[Need, list[Row]]) -> Members:
    """Members in role order, in row order inside a role; whole rows."""
    left = {need.ask: sorted(rows, key=lambda row: row.index) for need, rows in chosen.items()}
    members: list[NodeChoice] = []
    for role, ask in zip(gang.roles, choice.asks, strict=True):
        mine, left[ask] = left[ask][:role.size], left[ask][role.size:]
        members += [NodeChoice(row.node.name, tuple(range(row.count)), ask, role.name) for row in mine]
    return tuple(members)


def _single(world: World, gang: PendingGang, choice: Choice, rows: list[Row]) -> Members | None:
    """The row that spoils least."""
    ask = choice.asks[0]
    mix = _mix(world, ask.type)

    def useless(free: int) -> int:
        return sum(free for count in mix if free < count)

    def rank(row: Row) -> tuple[object, ...]:
        free = len(row.free)
        growth = useless(free - ask.count) - useless(free)
        return row.whole, growth, free, world.leaf_whole[row.subtree[LEAF]], row.index

    fits = [row for row in rows if row.in_service and len(row.free) >= ask.count and world.meets(gang, ask, row)]
    if not fits:
        return None
    best = min(fits, key=rank)
    return (NodeChoice(best.node.name, tuple(best.free[:ask.count]), ask, gang.roles[0].name),)


def _mix(world: World, kind: str) -> list[int]:
    """The GPUs of the type that each one-node gang asks for or has."""
    asks = [gang.roles[0].asks[0] for gang in world.snapshot.pending if is_single(gang)]
    mix = [ask.count for ask in asks if ask.type == kind]
    for run in world.snapshot.running:
        if len(run.holds) == 1:
            mix += [len(gpus) for row, gpus in world.held_rows(run.holds) if row.node.gpu.type == kind]
    return mix


# Repair.

def kept(world: World, gang: PendingGang) -> list[Held]:
    """What it holds that still serves."""
    every = choices_of(world, gang)
    serving = []
    for held in gang.held:
        row = world.by_name.get(held.node)
        if row is None or not row.in_service:
            continue
        needs = [need for choice in every for need in choice.needs if world.meets(gang, need.ask, row)]
        if is_single(gang):
            serves = any(need.ask.count == len(held.gpus) for need in needs)
        else:
            serves = bool(needs) and {*held.gpus, *row.free} == set(range(row.count))
        if serves:
            serving.append(held)
    return serving[:1] if is_single(gang) else serving


def complete(world: World, use: Use, gang: PendingGang, keeps: list[Held], offers: Offers) -> Spot | None:
    """All it keeps and what is missing beside it."""
    rows = [world.by_name[held.node] for held in keeps]
    for choice in list(offers.choices):
        if is_single(gang):
            members = _again(world, gang, choice, keeps[0])
        else:
            levels = [level for level in range(widest(world, gang) + 1)
                      if len({row.subtree[level] for row in rows}) == 1]
            found = (_beside(world, gang, choice, rows, level) for level in levels)
            members = next((each for each in found if each is not None), None)
        if members is None:
            continue
        if use.allows(gang.tenant, gpus_of(world, members)):
            return Spot(choice, members)
        offers.refuse(choice)
    return None


def _again(world: World, gang: PendingGang, choice: Choice, held: Held) -> Members | None:
    ask = choice.asks[0]
    if ask.count != len(held.gpus) or not world.meets(gang, ask, world.by_name[held.node]):
        return None
    return (NodeChoice(held.node, tuple(sorted(held.gpus)), ask, gang.roles[0].name),)


def _beside(world: World, gang: PendingGang, choice: Choice, keeps: list[Row], level: int) -> Members | None:
    left = sorted(keeps, key=lambda row: (-row.count, row.index))
    chosen: dict[Need, list[Row]] = {}
    for need in choice.needs:
        chosen[need] = [row for row in left if world.meets(gang, need.ask, row)][:need.size]
        left = [row for row in left if row not in chosen[need]]
    if left:
        return None

    def rank(row: Row) -> tuple[int, int, int]:
        shared = next(near for near in range(level + 1)
                      if any(row.subtree[near] == home.subtree[near] for home in keeps))
        return shared, row.count, row.index

    taken = list(keeps)
    for need in choice.needs:
        more = [row for row in world.rows if row.whole and world.open_to(row, gang) and row not in taken
                and row.subtree[level] == keeps[0].subtree[level] and world.meets(gang, need.ask, row)]
        more = sorted(more, key=rank)[:need.size - len(chosen[need])]
        chosen[need] += more
        taken += more
        if len(chosen[need]) < need.size:
            return None
    if counted(taken, block_of(gang)) < len(taken):
        return None
    return hand_out(gang, choice, chosen)
