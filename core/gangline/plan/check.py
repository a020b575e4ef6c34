"""An independent reading of a plan: it shares no code with the planner, so that it can disagree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from gangline.plan.check_effects import check_effects
from gangline.plan.check_view import View
from gangline.plan.outcome import NodeChoice, Placement, Plan
from gangline.plan.policy import Policy
from gangline.plan.snapshot import PendingGang, Snapshot


def check(snapshot: Snapshot, plan: Plan, policy: Policy | None = None) -> tuple[str, ...]:
    """Every promise the plan breaks, one line each; empty means that it may be committed.

    What only the policy says (how long a gang is safe from preemption, say) is checked where it is given.
    """
    view = View(snapshot, plan)
    found = [*_bookkeeping(view, plan), *_double_use(plan), *_releases(view, plan), *_reserved(view, plan)]
    for placement in plan.placements:
        gang = view.gangs.get(placement.gang)
        if gang is not None:
            found += [f"{placement.gang}: {text}" for text in _placement(view, gang, placement)]
    return (*found, *check_effects(view, plan, policy))


def _bookkeeping(view: View, plan: Plan) -> Iterator[str]:
    if plan.base != view.version:
        yield f"plan is for version {plan.base}, the snapshot is of version {view.version}"
    answered = [p.gang for p in plan.placements]
    for waiting in plan.waiting:
        answered += waiting.gangs
        if waiting.short < 0 or not waiting.text:
            yield f"{', '.join(waiting.gangs)}: the wait is not explained"
        elif not waiting.gangs:
            yield f"nobody waits for {waiting.text!r}"
    if len(answered) == len(view.gangs) and view.gangs.keys() == set(answered):
        return
    answers = Counter(answered)
    for gang in sorted(view.gangs.keys() | answers.keys()):
        if gang not in view.gangs:
            yield f"{gang}: is not pending"
        elif answers[gang] != 1:
            yield f"{gang}: is answered {answers[gang]} times instead of once"


def _double_use(plan: Plan) -> Iterator[str]:
    used: dict[tuple[str, int], str] = {}
    for placement in plan.placements:
        for member in placement.nodes:
            for gpu in member.gpus:
                other = used.setdefault((member.node, gpu), placement.gang)
                if other != placement.gang:
                    yield f"{member.node} GPU {gpu}: given to {other} and to {placement.gang}"


def _placement(view: View, gang: PendingGang, placement: Placement) -> Iterator[str]:
    names = [m.node for m in placement.nodes]
    if len(set(names)) != len(names):
        yield "has a node twice"
    unknown = sorted(name for name in set(names) if not view.has(name))
    if unknown:
        yield f"is on unknown nodes {unknown}"
        return
    yield from _roles(view, gang, placement)
    for member in placement.nodes:
        yield from _member(view, gang, member)
    nodes = [view.node(name) for name in names]
    if len({n.emulated for n in nodes}) > 1:
        yield "mixes real and emulated nodes"
    if len({n.realm for n in nodes}) > 1:
        yield "is in several realms"
    yield from _together(view, gang, names)
    zones, fabrics = {n.zone for n in nodes}, {(n.zone, n.fabric) for n in nodes}
    zone = zones.pop() if len(zones) == 1 else ""
    fabric = fabrics.pop()[1] if len(fabrics) == 1 else None
    if (placement.zone, placement.fabric) != (zone, fabric):
        yield f"is said to be in {placement.zone!r}/{placement.fabric!r}, is in {zone!r}/{fabric!r}"


def _roles(view: View, gang: PendingGang, placement: Placement) -> Iterator[str]:
    more = len(placement.nodes) - gang.nodes
    if more < 0:
        yield f"has {len(placement.nodes)} of {gang.nodes} nodes"
        return
    if more > max(0, gang.most - gang.nodes) or (more and len(gang.roles) > 1):
        yield f"has {len(placement.nodes)} nodes and may have {max(gang.most, gang.nodes)}"
        return
    at = 0
    for role in gang.roles:
        size = role.size + more
        members = placement.nodes[at:at + size]
        at += size
        if {m.role for m in members} != {role.name}:
            yield f"role {role.name!r} has not its {size} nodes in a row"
        asks = {m.ask for m in members}
        if len(asks) != 1 or not asks <= set(role.asks):
            yield f"role {role.name!r} got {sorted(map(str, asks))} instead of one of its alternatives"
        rows = [view.map.row[m.node] for m in members]
        if rows != sorted(rows):
            yield f"role {role.name!r} is not in topology order"


def _member(view: View, gang: PendingGang, member: NodeChoice) -> Iterator[str]:
    node, mine = view.node(member.node), view.held.get(gang.gang, {}).get(member.node, frozenset())
    if not node.usable:
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


def _together(view: View, gang: PendingGang, names: list[str]) -> Iterator[str]:
    """Nodes share what the gang must not span. An unknown fabric or switch is shared by nobody."""
    nodes = [view.node(name) for name in names]
    if gang.rdma and len({(n.zone, n.fabric) for n in nodes}) > 1:
        yield "spans fabrics although it asks for rdma"
    if gang.within is not None:
        level = view.map.levels.within(gang.within, rdma=False)
        if len({view.subtree(name, level) for name in names}) > 1:
            yield f"is not within one {gang.within}"
    if gang.domain_size is not None:
        domains = Counter((view.subtree(node.name, 0), node.domain) for node in nodes)
        if any(domain is None or count % gang.domain_size for (_, domain), count in domains.items()):
            yield f"is not in blocks of {gang.domain_size} nodes of one NVLink domain"


def _releases(view: View, plan: Plan) -> Iterator[str]:
    placed = {p.gang: {m.node: frozenset(m.gpus) for m in p.nodes} for p in plan.placements}
    released: dict[str, set[str]] = {}
    for release in plan.releases:
        released.setdefault(release.gang, set()).update(release.nodes)
        if not release.nodes or not set(release.nodes) <= view.held.get(release.gang, {}).keys():
            yield f"{release.gang}: releases {release.nodes}, which it does not hold"
    for gang, held in sorted(view.held.items()):
        for node, gpus in sorted(held.items()):
            kept = gpus & placed.get(gang, {}).get(node, frozenset())
            given = node in released.get(gang, set())
            if kept != (frozenset() if given else gpus) and (gang not in view.passed_over or given):
                yield f"{gang}: what it held on {node} must be either kept or released, all of it"


def _reserved(view: View, plan: Plan) -> Iterator[str]:
    """Whoever is on a node that another gang will start on must be gone by then."""
    for reservation in plan.reservations:
        if reservation.gang not in view.waits or reservation.gang not in view.gangs:
            yield f"{reservation.gang}: has a reservation without waiting"
            continue
        if not reservation.nodes or not all(map(view.has, reservation.nodes)):
            yield f"{reservation.gang}: reserves unknown nodes"
    # Of a single's node only a part is kept; others may well be on the rest of it.
    wholes = [reservation for reservation in plan.reservations
              if reservation.gang in view.gangs and not view.gangs[reservation.gang].single]
    kept = {node: reservation for reservation in wholes for node in reservation.nodes}
    whole = [node for reservation in wholes for node in reservation.nodes]
    yield from (f"{node}: is reserved for {count} gangs" for node, count in Counter(whole).items() if count > 1)
    for placement in plan.placements:
        gang = view.gangs.get(placement.gang)
        for name in sorted({m.node for m in placement.nodes} & kept.keys()) if gang is not None else ():
            reservation = kept[name]
            if gang is not None and name not in view.held.get(gang.gang, {}) and reservation.at_ms is not None \
                    and plan.now_ms + gang.bound_ms > reservation.at_ms:
                yield f"{gang.gang}: takes {name}, reserved for {reservation.gang}"
