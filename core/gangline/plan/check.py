"""An independent reading of a plan: it shares no code with the planner, so that it can disagree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from gangline.plan.outcome import NodeChoice, Placement, Plan
from gangline.plan.snapshot import NodeState, PendingGang, PoolState, RunningGang, Snapshot


def check(snapshot: Snapshot, plan: Plan) -> tuple[str, ...]:
    """Every promise the plan breaks, one line each; empty means that it may be committed."""
    view = _View(snapshot)
    found = [*_bookkeeping(view, plan), *_double_use(view, plan), *_releases(view, plan),
             *_reserved(view, plan), *_capacity(view, plan), *_room(view, plan)]
    for placement in plan.placements:
        gang = view.gang(placement.gang)
        if gang is not None:
            found += [f"{placement.gang}: {text}" for text in _placement(view, gang, placement)]
    return tuple(found)


class _View:
    """The snapshot by name; of a big fleet only what a plan names is looked at."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.version = snapshot.version
        self.queue = snapshot.queue
        self.running: dict[str, RunningGang] = {gang.gang: gang for gang in snapshot.running}
        self.pools: dict[str, PoolState] = {p.name: p for p in snapshot.pools}
        self._fleet = snapshot.fleet
        self._nodes: dict[str, NodeState | None] = {}

    def gang(self, gang: str) -> PendingGang | None:
        return self.queue.get(gang)

    def row(self, node: str) -> int:
        return self._fleet.map.row[node]

    def node(self, name: str) -> NodeState | None:
        """The node as it is, None when there is none."""
        if name not in self._nodes:
            row = self._fleet.map.row.get(name)
            self._nodes[name] = None if row is None or self._fleet.map.virtual[row] else replace(
                self._fleet.map.values[row], free_gpus=self._fleet.free_gpus(row),
                usable=bool(self._fleet.base[row] == 0))
        return self._nodes[name]


def _held(gang: PendingGang) -> dict[str, frozenset[int]]:
    return {held.node: frozenset(held.gpus) for held in gang.held}


def _bookkeeping(view: _View, plan: Plan) -> Iterator[str]:
    if plan.base != view.version:
        yield f"plan is for version {plan.base}, the snapshot is of version {view.version}"
    answered = [p.gang for p in plan.placements]
    for waiting in plan.waiting:
        answered += waiting.gangs
        if waiting.short < 0 or not waiting.text or not waiting.gangs:
            yield f"{', '.join(waiting.gangs[:3])}: its wait is not explained"
    pending = view.queue.ids()
    if len(answered) == len(pending) and pending == set(answered):
        return
    answers = Counter(answered)
    for gang in sorted({*pending, *answers}):
        if gang not in pending:
            yield f"{gang}: is not pending"
        elif answers[gang] != 1:
            yield f"{gang}: is answered {answers[gang]} times instead of once"


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
    nodes = [node for name in names if (node := view.node(name)) is not None]
    if len(nodes) != len(names):
        yield f"is on unknown nodes {sorted(name for name in names if view.node(name) is None)}"
        return
    yield from _roles(view, gang, placement)
    for member, node in zip(placement.nodes, nodes, strict=True):
        yield from _member(view, gang, member, node)
    if len({n.emulated for n in nodes}) > 1:
        yield "mixes real and emulated nodes"
    yield from _together(view, gang, nodes)
    zones, fabrics = {n.zone for n in nodes}, {n.fabric for n in nodes}
    zone = zones.pop() if len(zones) == 1 else ""
    fabric = fabrics.pop() if len(fabrics) == 1 else None
    if (placement.zone, placement.fabric) != (zone, fabric):
        yield f"is said to be in {placement.zone!r}/{placement.fabric!r}, is in {zone!r}/{fabric!r}"


def _roles(view: _View, gang: PendingGang, placement: Placement) -> Iterator[str]:
    extra = len(placement.nodes) - gang.nodes
    if not 0 <= extra <= max(0, gang.most - gang.nodes) or (extra and len(gang.roles) > 1):
        yield f"has {len(placement.nodes)} of {gang.nodes} nodes"
        return
    at = 0
    for role in gang.roles:
        members = placement.nodes[at:at + role.size + extra]
        at += role.size
        if {m.role for m in members} != {role.name}:
            yield f"role {role.name!r} has not its {role.size} nodes in a row"
        asks = {m.ask for m in members}
        if len(asks) != 1 or not asks <= set(role.asks):
            yield f"role {role.name!r} got {sorted(map(str, asks))} instead of one of its alternatives"
        rows = [view.row(m.node) for m in members]
        if rows != sorted(rows):
            yield f"role {role.name!r} is not in topology order"


def _member(view: _View, gang: PendingGang, member: NodeChoice, node: NodeState) -> Iterator[str]:
    mine = _held(gang).get(member.node, frozenset())
    if not node.usable or node.gone:
        yield f"{node.name} takes no work"
    if node.gpu.type != member.ask.type or node.gpu.count < member.ask.count:
        yield f"{node.name} is {node.gpu}, not {member.ask}"
    if not set(member.gpus) <= {*node.free_gpus, *mine} or len(set(member.gpus)) != len(member.gpus):
        yield f"{node.name} has not GPUs {member.gpus} free"
    wanted = member.ask.count if gang.single else node.gpu.count
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
        gang = view.gang(release.gang)
        if not release.nodes or gang is None or not set(release.nodes) <= _held(gang).keys():
            yield f"{release.gang}: releases {release.nodes}, which it does not hold"
    for repairing in sorted(view.queue.repairing(), key=lambda gang: gang.gang):
        for node, gpus in sorted(_held(repairing).items()):
            kept = gpus & placed.get(repairing.gang, {}).get(node, frozenset())
            if kept != (frozenset() if node in released.get(repairing.gang, set()) else gpus):
                yield f"{repairing.gang}: what it held on {node} must be either kept or released, all of it"


def _reserved(view: _View, plan: Plan) -> Iterator[str]:
    if not plan.reservations:
        return
    placed = {placement.gang for placement in plan.placements}
    for reservation in plan.reservations:
        if reservation.gang in placed or view.gang(reservation.gang) is None:
            yield f"{reservation.gang}: has a reservation without waiting"
        if any(view.node(name) is None for name in reservation.nodes):
            yield f"{reservation.gang}: reserves unknown nodes"


def _capacity(view: _View, plan: Plan) -> Iterator[str]:
    asked: Counter[str] = Counter()
    for request in plan.capacity:
        asked[request.pool] += request.nodes
        gangs = [gang for name in request.gangs if (gang := view.gang(name)) is not None]
        if len(gangs) != len(request.gangs):
            yield f"pool {request.pool}: is asked for gangs that do not wait"
        if request.nodes < 1 or (gangs and request.nodes > sum(gang.nodes for gang in gangs)):
            yield f"pool {request.pool}: is asked for {request.nodes} nodes, not for what its gangs need"
    for name, nodes in asked.items():
        pool = view.pools.get(name)
        if pool is None or nodes > pool.most - pool.nodes:
            yield f"pool {name}: asked for {nodes}, may add {0 if pool is None else pool.most - pool.nodes}"


def _room(view: _View, plan: Plan) -> Iterator[str]:
    """Whoever is told to end may be, and what is given back is idle."""
    for preemption in plan.preemptions:
        victim = view.running.get(preemption.gang)
        if victim is None or victim.ending or not victim.preemptible or not preemption.gangs:
            yield f"{preemption.gang}: must not be preempted"
    for change in plan.resizes:
        run = view.running.get(change.gang)
        if run is None or run.ending or not run.least <= change.size <= run.most or (
                change.nodes and change.size != len(run.holds) - len(change.nodes)):
            yield f"{change.gang}: cannot go on with {change.size} nodes"
    used = {member.node for placement in plan.placements for member in placement.nodes}
    for retirement in plan.retirements:
        for name in retirement.nodes:
            node = view.node(name)
            if node is None or not node.whole or node.pool != retirement.pool or name in used:
                yield f"{name}: is not idle, and cannot be given back"
