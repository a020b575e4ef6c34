"""What is done with what is left: growth, warm nodes, retirements."""

from __future__ import annotations

from dataclasses import replace

from gangline.plan.outcome import NodeChoice, Resize, Retirement
from gangline.plan.snapshot import UNKNOWN_MS, PendingGang, RunningGang
from reference.asking import Use, choices_of, widest
from reference.placing import Spot
from reference.world import Row, World


def grow_placed(world: World, use: Use, placed: dict[str, Spot]) -> None:
    """Placed elastic gangs take a row each, round by round, while any can."""
    gangs = {gang.gang: gang for gang in world.snapshot.pending}
    growing = [name for name in placed if gangs[name].most > gangs[name].nodes and len(gangs[name].roles) == 1
               and gangs[name].domain_size is None]
    while growing:
        growing = [name for name in growing if _one_more(world, use, gangs[name], placed)]


def _one_more(world: World, use: Use, gang: PendingGang, placed: dict[str, Spot]) -> bool:
    spot = placed[gang.gang]
    rows = [world.by_name[member.node] for member in spot.members]
    if len(rows) >= gang.most:
        return False
    ask, role = spot.members[0].ask, spot.members[0].role
    for level in range(widest(world, gang) + 1):
        near = [row for row in world.rows if row.whole and row.claim is None and world.meets(gang, ask, row)
                and all(row.subtree[level] == other.subtree[level] for other in rows)]
        if not near:
            continue
        row = min(near, key=lambda each: (each.count, each.index))
        if not use.allows(gang.tenant, [(row.node.gpu.type, row.count)]):
            return False
        more = NodeChoice(row.node.name, tuple(range(row.count)), ask, role)
        world.start(gang, (more,))
        use.add(gang.tenant, [(row.node.gpu.type, row.count)])
        members = sorted((*spot.members, more), key=lambda member: world.by_name[member.node].index)
        placed[gang.gang] = replace(spot, members=tuple(members))
        return True
    return False


def grow_running(world: World, use: Use) -> Resize | None:
    """The first running elastic gang that has room, when nothing is pending."""
    if world.snapshot.pending:
        return None
    for run in sorted(world.snapshot.running, key=lambda run: (-run.priority, run.since_ms, run.gang)):
        changed_ms = max(run.resized_ms, run.since_ms)
        if run.again is None or run.ending or world.now_ms - changed_ms < world.policy.resize_every_ms:
            continue
        rows = _room(world, use, run, run.again)
        if rows:
            world.claim(rows, run.again, UNKNOWN_MS)
            return Resize(gang=run.gang, size=len(run.holds) + len(rows))
    return None


def _room(world: World, use: Use, run: RunningGang, again: PendingGang) -> list[Row]:
    held = world.held_rows(run.holds)
    if not held or again.domain_size is not None:
        return []
    home = held[0][0]
    asks = [choice.asks[0] for choice in choices_of(world, again)]
    ask = next((ask for ask in asks if ask.type == home.node.gpu.type and ask.count <= home.count), None)
    if ask is None:
        return []
    level = widest(world, again)
    rows = [row for row in world.rows if row.whole and row.claim is None and row.subtree[level] == home.subtree[level]
            and world.meets(again, ask, row)][:max(0, run.most - len(run.holds))]
    while rows and not use.allows(run.tenant, [(row.node.gpu.type, row.count) for row in rows]):
        rows.pop()
    return rows


def warm_up(world: World) -> dict[str, int]:
    """How many more nodes each pool should boot."""
    asked = {}
    for pool in world.pools.values():
        mine = [row for row in world.rows if row.node.pool == pool.name and row.claim is None]
        there = [row for row in mine if not row.leases and not row.virtual and row.there_ms is not None]
        more = min(pool.warm - len(there), sum(row.virtual for row in mine))
        if world.policy.capacity and more > 0:
            asked[pool.name] = more
    return asked


def retire(world: World) -> list[Retirement]:
    """The nodes that pools give back, those that idle longest first."""
    made = []
    for name in sorted(world.pools):
        pool = world.pools[name]
        mine = [row for row in world.rows if row.node.pool == name and row.whole and row.claim is None]
        idle = [row for row in mine if pool.idle_ms is not None and row.node.idle_ms > 0
                and world.now_ms - row.node.idle_ms >= pool.idle_ms]
        idle.sort(key=lambda row: (row.node.idle_ms, row.index))
        may_go = max(0, min(len(mine) - pool.warm, pool.nodes - pool.least))
        if idle[:may_go]:
            made.append(Retirement(pool=name, nodes=tuple(row.node.name for row in idle[:may_go])))
    return made
