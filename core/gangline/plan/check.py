"""An independent reading of a plan: it shares no code with the planner, so that it can disagree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from gangline.plan.outcome import NodeChoice, Placement, Plan, WaitCode
from gangline.plan.snapshot import NodeState, PendingGang, PoolState, Snapshot


def check(snapshot: Snapshot, plan: Plan) -> tuple[str, ...]:
    """Every promise the plan breaks, one line each; empty means that it may be committed."""
    view = _View(snapshot)
    found = [*_bookkeeping(view, plan), *_double_use(view, plan), *_releases(view, plan),
             *_reserved(view, plan), *_capacity(view, plan)]
    for placement in plan.placements:
        gang = view.gangs.get(placement.gang)
        if gang is not None:
            found += [f"{placement.gang}: {text}" for text in _placement(view, gang, placement)]
    return tuple(found)


class _View:
    """The snapshot by name."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.version = snapshot.version
        self.nodes: dict[str, NodeState] = {n.name: n for n in snapshot.nodes}
        self.pools: dict[str, PoolState] = {p.name: p for p in snapshot.pools}
        self.gangs: dict[str, PendingGang] = {g.gang: g for g in snapshot.pending}
        self.held = {g.gang: {h.node: frozenset(h.gpus) for h in g.held} for g in snapshot.pending}


def _bookkeeping(view: _View, plan: Plan) -> Iterator[str]:
    if plan.base != view.version:
        yield f"plan is for version {plan.base}, the snapshot is of version {view.version}"
    answers = Counter([p.gang for p in plan.placements] + [w.gang for w in plan.waiting])
    for gang in sorted(view.gangs.keys() | answers.keys()):
        if gang not in view.gangs:
            yield f"{gang}: is not pending"
        elif answers[gang] != 1:
            yield f"{gang}: is answered {answers[gang]} times instead of once"
    for waiting in plan.waiting:
        if waiting.short < 0 or not waiting.text:
            yield f"{waiting.gang}: its wait is not explained"


def _double_use(view: _View, plan: Plan) -> Iterator[str]:
    used: dict[tuple[str, int], str] = {}
    for placement in plan.placements:
        for member in placement.nodes:
            for gpu in member.gpus:
                other = used.setdefault((member.node, gpu), placement.gang)
                if other != placement.gang:
                    yield f"{member.node} GPU {gpu}: given to {other} and to {placement.gang}"


def _placement(view: _View, gang: PendingGang, placement: Placement) -> Iterator[str]:
    names = [m.node for m in placement.nodes]
    if len(set(names)) != len(names):
        yield "has a node twice"
    unknown = sorted(set(names) - view.nodes.keys())
    if unknown:
        yield f"is on unknown nodes {unknown}"
        return
    yield from _roles(view, gang, placement)
    for member in placement.nodes:
        yield from _member(view, gang, member)
    nodes = [view.nodes[name] for name in names]
    if len({n.emulated for n in nodes}) > 1:
        yield "mixes real and emulated nodes"
    yield from _together(view, gang, nodes)
    zones, fabrics = {n.zone for n in nodes}, {n.fabric for n in nodes}
    zone = zones.pop() if len(zones) == 1 else ""
    fabric = fabrics.pop() if len(fabrics) == 1 else None
    if (placement.zone, placement.fabric) != (zone, fabric):
        yield f"is said to be in {placement.zone!r}/{placement.fabric!r}, is in {zone!r}/{fabric!r}"


def _roles(view: _View, gang: PendingGang, placement: Placement) -> Iterator[str]:
    if len(placement.nodes) != gang.nodes:
        yield f"has {len(placement.nodes)} of {gang.nodes} nodes"
        return
    at = 0
    for role in gang.roles:
        members = placement.nodes[at:at + role.size]
        at += role.size
        if {m.role for m in members} != {role.name}:
            yield f"role {role.name!r} has not its {role.size} nodes in a row"
        asks = {m.ask for m in members}
        if len(asks) != 1 or not asks <= set(role.asks):
            yield f"role {role.name!r} got {sorted(map(str, asks))} instead of one of its alternatives"
        places = [(n.zone, n.fabric or "", n.path, n.name) for n in (view.nodes[m.node] for m in members)]
        if places != sorted(places):
            yield f"role {role.name!r} is not in topology order"


def _member(view: _View, gang: PendingGang, member: NodeChoice) -> Iterator[str]:
    node, mine = view.nodes[member.node], view.held[gang.gang].get(member.node, frozenset())
    if not node.usable or node.gone:
        yield f"{node.name} takes no work"
    if node.gpu.type != member.ask.type or node.gpu.count < member.ask.count:
        yield f"{node.name} is {node.gpu}, not {member.ask}"
    if not set(member.gpus) <= {*node.free_gpus, *mine} or len(set(member.gpus)) != len(member.gpus):
        yield f"{node.name} has not GPUs {member.gpus} free"
    wanted = member.ask.count if gang.nodes == 1 else node.gpu.count
    if len(member.gpus) != wanted:
        yield f"{node.name} gives {len(member.gpus)} GPUs instead of {wanted}"
    if gang.zone not in (None, node.zone):
        yield f"{node.name} is in zone {node.zone}, not {gang.zone}"
    if gang.pool not in (None, node.pool):
        yield f"{node.name} is of pool {node.pool}, not {gang.pool}"
    if node.name in gang.exclude:
        yield f"{node.name} is excluded"
    if gang.rdma and (node.fabric is None or not (node.pool in view.pools and view.pools[node.pool].rdma)):
        yield f"{node.name} has no rdma"


def _together(view: _View, gang: PendingGang, nodes: list[NodeState]) -> Iterator[str]:
    """Nodes share what the gang must not span. An unknown fabric or switch is shared by nobody."""
    if len(nodes) < 2:
        return
    if gang.rdma and len({(n.zone, n.fabric) for n in nodes}) != 1:
        yield "spans fabrics although it asks for rdma"
    match gang.within:
        case "leaf":
            together = len({(n.zone, n.fabric, n.path) for n in nodes}) == 1 and nodes[0].path != ()
        case "spine":
            spines = {(n.zone, n.fabric, n.path[:-1] if len(n.path) > 1 else n.path) for n in nodes}
            together = len(spines) == 1 and nodes[0].path != ()
        case "fabric":
            networks = {(n.zone, n.fabric) for n in nodes}
            switches = {(n.zone, n.path[:1]) for n in nodes}
            together = len(networks) == 1 and (nodes[0].fabric is not None
                                               or (len(switches) == 1 and nodes[0].path != ()))
        case _:
            together = True
    if not together:
        yield f"is not within one {gang.within}"


def _releases(view: _View, plan: Plan) -> Iterator[str]:
    placed = {p.gang: {m.node: frozenset(m.gpus) for m in p.nodes} for p in plan.placements}
    released: dict[str, set[str]] = {}
    for release in plan.releases:
        released.setdefault(release.gang, set()).update(release.nodes)
        if not release.nodes or not set(release.nodes) <= view.held.get(release.gang, {}).keys():
            yield f"{release.gang}: releases {release.nodes}, which it does not hold"
    for gang, held in sorted(view.held.items()):
        for node, gpus in sorted(held.items()):
            kept = gpus & placed.get(gang, {}).get(node, frozenset())
            if kept != (frozenset() if node in released.get(gang, set()) else gpus):
                yield f"{gang}: what it held on {node} must be either kept or released, all of it"


def _order(gang: PendingGang) -> tuple[int, bool, int, str]:
    return -gang.priority, not gang.held, gang.submitted_ms, gang.gang


def _reserved(view: _View, plan: Plan) -> Iterator[str]:
    waiting = {w.gang for w in plan.waiting}
    for reservation in plan.reservations:
        if reservation.gang not in waiting or reservation.gang not in view.gangs:
            yield f"{reservation.gang}: has a reservation without waiting"
            continue
        if not set(reservation.nodes) <= view.nodes.keys():
            yield f"{reservation.gang}: reserves unknown nodes"
        first = view.gangs[reservation.gang]
        for placement in plan.placements:
            later = view.gangs.get(placement.gang)
            if later is None or _order(later) < _order(first):
                continue
            taken = {m.node for m in placement.nodes} & set(reservation.nodes)
            taken -= view.held[later.gang].keys()
            in_time = (later.limit_ms is not None and reservation.at_ms is not None
                       and plan.now_ms + later.limit_ms <= reservation.at_ms)
            if taken and not in_time:
                yield f"{later.gang}: takes {sorted(taken)}, reserved for {first.gang}"


def _capacity(view: _View, plan: Plan) -> Iterator[str]:
    codes = {w.gang: w.code for w in plan.waiting}
    for name, count in Counter(c.pool for c in plan.capacity).items():
        if count > 1 or name not in view.pools:
            yield f"pool {name}: is asked {count} times or unknown"
    for request in plan.capacity:
        if any(codes.get(gang) is not WaitCode.CAPACITY for gang in request.gangs) or not request.gangs:
            yield f"pool {request.pool}: asked for gangs that do not wait for capacity"
        pool = view.pools.get(request.pool)
        if pool is not None and not 1 <= request.nodes <= pool.most - pool.nodes:
            yield f"pool {pool.name}: asked for {request.nodes}, may add {pool.most - pool.nodes}"
        if request.nodes > sum(view.gangs[g].nodes for g in request.gangs if g in view.gangs):
            yield f"pool {request.pool}: asked for more nodes than its gangs need"
