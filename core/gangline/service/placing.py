"""Committing a plan: whole gangs get their leases, or nothing; running ones are told to make room."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from gangline.model.engine import LOCAL
from gangline.model.errors import Rejected
from gangline.model.gang import End, RdmaProof
from gangline.model.states import Cause, GangState, Phase
from gangline.plan.outcome import NodeChoice, Placement, Plan
from gangline.service import fleet as fleet_service
from gangline.service import life, resume
from gangline.store import Attempt, Gang, Lease, Member, Node, Rank, Store, Transaction

FIRST_PORT, LAST_PORT = 20_000, 29_999  # below the kernel's ephemeral ports, which begin at 32768
MOST_MEMBERS = 16  # placed in one transaction: others must not wait long for their turn


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """What came of a plan: the gangs placed, and why others were not placed, or made no room, after all. True when
    nothing was refused."""

    accepted: tuple[str, ...] = ()
    refused: tuple[tuple[str, str], ...] = ()

    def __bool__(self) -> bool:
        return not self.refused


def commit_plan(store: Store, decided: Plan, *, now_ms: int) -> Committed:
    """Does what a plan decided, as far as it still holds: every part is checked again against the present.

    A gang gets all its leases or none, in one transaction; a big plan is committed in several.
    """
    accepted: list[str] = []
    refused: list[tuple[str, str]] = []
    if decided.releases or decided.preemptions or decided.resizes or decided.retirements:
        with store.transaction() as tx:
            refused += _make_room(tx, decided, now_ms)
    ports: dict[str, set[int]] = {}
    for batch in _batches(decided.placements):
        with store.transaction() as tx:
            found = _place_all(tx, batch, ports, now_ms)
        accepted += found.accepted
        refused += found.refused
    return Committed(accepted=tuple(accepted), refused=tuple(refused))


def _make_room(tx: Transaction, decided: Plan, now_ms: int) -> list[tuple[str, str]]:
    """Who was not told to make room after all, and why."""
    gangs = tx.gangs.some({*(release.gang for release in decided.releases),
                           *(preemption.gang for preemption in decided.preemptions),
                           *(change.gang for change in decided.resizes)})
    for release in decided.releases:
        gang = gangs.get(release.gang)
        if gang is not None and gang.state is GangState.QUEUED:
            life.close_leases(tx, [lease for lease in tx.leases.open_of(gang.id) if lease.node in release.nodes],
                              now_ms)
    told = {each.gang: each.gang in gangs and life.preempt(tx, gangs[each.gang], each.gangs, now_ms,
                                                           reclaim=each.reclaim) for each in decided.preemptions}
    told |= {each.gang: each.gang in gangs and life.resize(tx, gangs[each.gang], each.size, each.nodes, now_ms,
                                                           for_gangs=each.gangs) for each in decided.resizes}
    for retirement in decided.retirements:
        fleet_service.retire(tx, retirement.nodes, now_ms)
    return [(gang, "it makes no room: it ends already, or has that size") for gang, done in told.items() if not done]


def _batches(placements: Iterable[Placement]) -> Iterator[list[Placement]]:
    batch: list[Placement] = []
    members = 0
    for placement in placements:
        if batch and members + len(placement.nodes) > MOST_MEMBERS:
            yield batch
            batch, members = [], 0
        batch.append(placement)
        members += len(placement.nodes)
    if batch:
        yield batch


@dataclass(slots=True)
class _Desk:
    """What a batch of placements is judged by, read once, and what they add, written once."""

    gangs: dict[str, Gang]
    first: dict[str, str]
    nodes: dict[str, Node]
    busy: dict[str, dict[int, str]]
    kept: dict[str, list[Lease]]
    ports: dict[str, set[int]]  # by host, as the first batch of a plan found them: nobody else takes any
    placed: list[Gang] = field(default_factory=list)
    attempts: list[Attempt] = field(default_factory=list)
    members: list[Member] = field(default_factory=list)
    ranks: list[Rank] = field(default_factory=list)
    taken: list[tuple[str, int, str, int]] = field(default_factory=list)
    leases: list[tuple[Lease, int]] = field(default_factory=list)

    @staticmethod
    def of(tx: Transaction, batch: Sequence[Placement], ports: dict[str, set[int]]) -> _Desk:
        gangs = tx.gangs.some([placement.gang for placement in batch])
        names = {choice.node for placement in batch for choice in placement.nodes}
        return _Desk(
            ports=ports, gangs=gangs, first=tx.gangs.first_in({gang.slot for gang in gangs.values()}),
            nodes=tx.nodes.some(names), busy=tx.leases.busy(names),
            kept=tx.leases.open_of_some([gang.id for gang in gangs.values() if gang.attempt]))

    def write(self, tx: Transaction, now_ms: int) -> None:
        tx.attempts.add(self.attempts, self.members, self.ranks)
        tx.ports.take(self.taken)
        tx.gangs.placed(self.placed, now_ms)
        tx.leases.open(self.leases)


def _place_all(tx: Transaction, batch: Sequence[Placement], ports: dict[str, set[int]], now_ms: int) -> Committed:
    desk = _Desk.of(tx, batch, ports)
    accepted, refused = [], []
    for placement in batch:
        reason = _place(tx, desk, placement, now_ms)
        if reason is None:
            accepted.append(placement.gang)
        else:
            refused.append((placement.gang, reason))
    desk.write(tx, now_ms)
    return Committed(accepted=tuple(accepted), refused=tuple(refused))


def _place(tx: Transaction, desk: _Desk, placement: Placement, now_ms: int) -> str | None:
    """Places the gang, or tells why it cannot be."""
    gang = desk.gangs.get(placement.gang)
    if gang is None or gang.state is not GangState.QUEUED:
        return "it does not wait any more"
    if desk.first[gang.slot] != gang.id:
        return "the gang it replaces has not released its nodes"
    reason = _misfit(gang, placement) or _unfree(gang, placement, desk)
    if reason is not None:
        return reason
    head = desk.nodes[placement.nodes[0].node]
    if gang.spec.rdma and not head.emulated:
        return "rdma cannot be proved on real nodes yet"
    number = gang.attempt + 1
    port = _spare_port(tx, desk, head.host, gang.seq * 31 + number)
    if port is None:
        return f"every port of {head.host} is taken"
    try:
        versions = resume.choose(tx, gang)
    except Rejected as exc:
        life.finish(tx, gang, GangState.FAILED, End(cause=Cause.USER, text=str(exc)), now_ms)
        return str(exc)
    parts, ranks = _layout(gang, number, placement, desk.nodes)
    desk.attempts.append(Attempt(
        gang=gang.id, number=number, phase=Phase.ASSEMBLING, started_ms=now_ms, issued_ms=now_ms,
        zone=placement.zone, fabric=placement.fabric, master_addr=parts[0].address, master_port=port,
        world_size=len(ranks), resume=versions, emulated=head.emulated,
        rdma=RdmaProof(requested=gang.spec.rdma, emulated=gang.spec.rdma and head.emulated),
        pool=head.pool if head.engine != LOCAL else None))
    desk.members += parts
    desk.ranks += ranks
    desk.ports[head.host].add(port)
    desk.taken.append((head.host, port, gang.id, number))
    desk.gangs[gang.id] = replace(gang, state=GangState.PLACED)  # a plan that names it twice places it once
    desk.placed.append(gang)
    tx.events.add("gang.placed", now_ms, gang=gang.id, attempt=number, zone=placement.zone,
                  fabric=placement.fabric, nodes=[choice.node for choice in placement.nodes])
    _lease(tx, desk, gang, placement, now_ms)
    return None


def _misfit(gang: Gang, placement: Placement) -> str | None:
    """The placement must have the gang's shape: its roles in order, each with its number of nodes."""
    spare = min(max(0, len(placement.nodes) - gang.spec.nodes), gang.spec.most - gang.spec.nodes)
    wanted = [(name, role.asks()) for name, role in gang.spec.role_items() for _ in range(role.size + spare)]
    if len(placement.nodes) != len(wanted):
        return f"the plan gave it {len(placement.nodes)} nodes, not {len(wanted)}"
    for choice, (name, asks) in zip(placement.nodes, wanted, strict=True):
        if choice.role != name or choice.ask not in asks:
            return f"the plan gave node {choice.node} the wrong part"
    if len({choice.node for choice in placement.nodes}) != len(wanted):
        return "the plan gave it one node twice"
    return None


def _unfree(gang: Gang, placement: Placement, desk: _Desk) -> str | None:
    nodes = desk.nodes
    for choice in placement.nodes:
        node = nodes.get(choice.node)
        if node is None or not node.usable:
            return f"node {choice.node} takes no work now"
        if choice.ask.type != node.gpu_type or not _within(choice, node):
            return f"node {choice.node} is not what the plan took it for"
        taken = len(desk.busy.get(node.name, {}).keys() - set(choice.gpus)) + node.foreign_gpus
        if taken + len(choice.gpus) > node.gpu_count:
            return f"GPUs of node {choice.node} are held by {', '.join(node.foreign_jobs) or 'others'}"
        holders = {desk.busy.get(node.name, {}).get(gpu, gang.id) for gpu in choice.gpus} - {gang.id}
        if holders:
            return f"node {choice.node} is held by {', '.join(sorted(holders))}"
    if len({nodes[choice.node].emulated for choice in placement.nodes}) > 1:
        return "real and emulated nodes never share a gang"
    if len({nodes[choice.node].pool if nodes[choice.node].engine != LOCAL else "" for choice in placement.nodes}) > 1:
        return "a gang is one job in one pool"
    return None


def _within(choice: NodeChoice, node: Node) -> bool:
    gpus = set(choice.gpus)
    return len(gpus) == len(choice.gpus) >= choice.ask.count and gpus <= set(range(node.gpu_count))


def _layout(gang: Gang, number: int, placement: Placement,
            nodes: dict[str, Node]) -> tuple[list[Member], list[Rank]]:
    roles = dict(gang.spec.role_items())
    parts: list[Member] = []
    ranks: list[Rank] = []
    for node_rank, choice in enumerate(placement.nodes):
        node = nodes[choice.node]
        parts.append(Member(
            gang=gang.id, attempt=number, node_rank=node_rank, node=node.name, role=choice.role,
            address=node.address, gpus=choice.gpus, gpu_type=node.gpu_type, incarnation=node.incarnation))
        ranks += [Rank(gang=gang.id, attempt=number, rank=len(ranks) + local_rank, node_rank=node_rank,
                       local_rank=local_rank, role=choice.role)
                  for local_rank in range(roles[choice.role].ranks_on(choice.ask))]
    return parts, ranks


def _spare_port(tx: Transaction, desk: _Desk, host: str, seed: int) -> int | None:
    """A port that nobody holds on the host; where the search begins depends on the gang and its attempt."""
    if host not in desk.ports:
        desk.ports[host] = tx.ports.taken(host)
    taken = desk.ports[host]
    count = LAST_PORT - FIRST_PORT + 1
    if len(taken) >= count:
        return None
    candidates = (FIRST_PORT + (seed + i) % count for i in range(count))
    return next((port for port in candidates if port not in taken), None)


def _lease(tx: Transaction, desk: _Desk, gang: Gang, placement: Placement, now_ms: int) -> None:
    """Carries over the leases it kept where the plan uses them, closes the others, opens the rest."""
    number = gang.attempt + 1
    kept = {(lease.node, lease.gpus): lease for lease in desk.kept.get(gang.id, ())}
    wanted = {(choice.node, choice.gpus) for choice in placement.nodes}
    life.close_leases(tx, [lease for key, lease in kept.items() if key not in wanted], now_ms)
    for key, lease in kept.items():
        if key in wanted:
            tx.leases.carry_over(lease, gang.generation + 1, number, now_ms)
    fresh = [choice for choice in placement.nodes if (choice.node, choice.gpus) not in kept]
    first = tx.leases.next_id(len(fresh))
    for lease_id, choice in enumerate(fresh, first):
        lease = _new_lease(lease_id, gang, choice, desk.nodes[choice.node], now_ms)
        desk.leases.append((lease, number))
        tx.events.add("lease.opened", now_ms, gang=gang.id, lease=lease.id, node=lease.node,
                      gpus=list(lease.gpus))
    for choice in placement.nodes:
        desk.busy.setdefault(choice.node, {}).update(dict.fromkeys(choice.gpus, gang.id))


def _new_lease(number: int, gang: Gang, choice: NodeChoice, node: Node, now_ms: int) -> Lease:
    return Lease(id=number, gang=gang.id, node=node.name, gpus=choice.gpus, generation=gang.generation + 1,
                 pool=node.pool, tenant=gang.tenant, slot=gang.slot, opened_ms=now_ms,
                 price_nano_per_gpu_hour=node.price_nano_per_gpu_hour, currency=node.currency)
