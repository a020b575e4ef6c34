"""Committing a plan: whole gangs get their leases, or nothing, and the others are told why they wait."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gangline.model.errors import Rejected
from gangline.model.gang import End, RdmaProof, Wait
from gangline.model.states import Cause, GangState, Phase
from gangline.plan.outcome import NodeChoice, Placement, Plan, Release, Waiting
from gangline.service import life, resume, views
from gangline.store import Attempt, Gang, Lease, Member, Node, Rank, Store, Transaction

FIRST_PORT, LAST_PORT = 20_000, 29_999  # below the kernel's ephemeral ports, which begin at 32768
EARLIEST_NEWS = 0.1  # a forecast is written again when it moved by this share of what is left
_Busy = dict[str, dict[int, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """What came of a plan: the gangs placed, and why others were not after all. True when all were."""

    accepted: tuple[str, ...] = ()
    refused: tuple[tuple[str, str], ...] = ()

    def __bool__(self) -> bool:
        return not self.refused


def commit_plan(store: Store, decided: Plan, *, now_ms: int) -> Committed:
    """Opens the leases of every placement that still holds, all of a gang's or none, in one transaction.

    Each placement is checked again against the present, so a plan over an older version does no harm.
    """
    with store.transaction() as tx:
        for release in decided.releases:
            _release(tx, release, now_ms)
        accepted, refused = [], []
        if decided.placements:
            nodes = {node.name: node for node in tx.nodes.all()}
            busy = tx.leases.busy()
            for placement in decided.placements:
                reason = _place(tx, placement, nodes, busy, now_ms)
                if reason is None:
                    accepted.append(placement.gang)
                else:
                    refused.append((placement.gang, reason))
        if decided.waiting:
            known = {gang.id: gang for gang in tx.gangs.unfinished()}
            for waiting in decided.waiting:
                for gang in waiting.gangs:
                    _wait(tx, gang, waiting, known, now_ms)
    return Committed(accepted=tuple(accepted), refused=tuple(refused))


def _release(tx: Transaction, release: Release, now_ms: int) -> None:
    gang = tx.gangs.find(release.gang)
    if gang is not None and gang.state is GangState.QUEUED:
        life.close_leases(tx, [lease for lease in tx.leases.open_of(gang.id) if lease.node in release.nodes],
                          now_ms)


def _place(tx: Transaction, placement: Placement, nodes: dict[str, Node], busy: _Busy,
           now_ms: int) -> str | None:
    """Places the gang, or tells why it cannot be."""
    gang = tx.gangs.find(placement.gang)
    if gang is None or gang.state is not GangState.QUEUED:
        return "it does not wait any more"
    if tx.gangs.unfinished(gang.slot)[0].id != gang.id:
        return "the gang it replaces has not released its nodes"
    reason = _misfit(gang, placement) or _unfree(gang, placement, nodes, busy)
    if reason is not None:
        return reason
    emulated = nodes[placement.nodes[0].node].emulated
    if gang.spec.rdma and not emulated:
        return "rdma cannot be proved on real nodes yet"
    host = nodes[placement.nodes[0].node].host
    number = gang.attempt + 1
    port = tx.ports.spare(host, FIRST_PORT, LAST_PORT,
                          FIRST_PORT + (gang.seq * 31 + number) % (LAST_PORT - FIRST_PORT + 1))
    if port is None:
        return f"every port of {host} is taken"
    try:
        versions = resume.choose(tx, gang)
    except Rejected as exc:
        life.finish(tx, gang, GangState.FAILED, End(cause=Cause.USER, text=str(exc)), now_ms)
        return str(exc)
    parts, ranks = _layout(gang, number, placement, nodes)
    tx.attempts.add(Attempt(
        gang=gang.id, number=number, phase=Phase.ASSEMBLING, started_ms=now_ms, issued_ms=now_ms,
        zone=placement.zone, fabric=placement.fabric, master_addr=parts[0].address, master_port=port,
        world_size=len(ranks), resume=versions, emulated=emulated,
        rdma=RdmaProof(requested=gang.spec.rdma, emulated=gang.spec.rdma and emulated)), parts, ranks)
    tx.ports.take(host, port, gang.id, number)
    tx.gangs.move(gang, GangState.PLACED, now_ms)
    tx.gangs.issue(gang.id, number, gang.generation + 1)
    tx.events.add("gang.placed", now_ms, gang=gang.id, attempt=number, zone=placement.zone,
                  fabric=placement.fabric, nodes=[choice.node for choice in placement.nodes])
    _lease(tx, gang, number, placement, nodes, now_ms)
    for choice in placement.nodes:
        busy.setdefault(choice.node, {}).update(dict.fromkeys(choice.gpus, gang.id))
    return None


def _misfit(gang: Gang, placement: Placement) -> str | None:
    """The placement must have the gang's shape: its roles in order, each with its number of nodes."""
    more = min(max(0, len(placement.nodes) - gang.spec.nodes), gang.spec.most - gang.spec.nodes)
    wanted = [(name, role.asks()) for name, role in gang.spec.role_items() for _ in range(role.size + more)]
    if len(placement.nodes) != len(wanted):
        return f"the plan gave it {len(placement.nodes)} nodes, not {len(wanted)}"
    for choice, (name, asks) in zip(placement.nodes, wanted, strict=True):
        if choice.role != name or choice.ask not in asks:
            return f"the plan gave node {choice.node} the wrong part"
    if len({choice.node for choice in placement.nodes}) != len(wanted):
        return "the plan gave it one node twice"
    return None


def _unfree(gang: Gang, placement: Placement, nodes: dict[str, Node], busy: _Busy) -> str | None:
    for choice in placement.nodes:
        node = nodes.get(choice.node)
        if node is None or not node.usable:
            return f"node {choice.node} takes no work now"
        if choice.ask.type != node.gpu_type or not _within(choice, node):
            return f"node {choice.node} is not what the plan took it for"
        holders = {busy.get(node.name, {}).get(gpu, gang.id) for gpu in choice.gpus} - {gang.id}
        if holders:
            return f"node {choice.node} is held by {', '.join(sorted(holders))}"
    if len({nodes[choice.node].emulated for choice in placement.nodes}) > 1:
        return "real and emulated nodes never share a gang"
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


def _lease(tx: Transaction, gang: Gang, number: int, placement: Placement, nodes: dict[str, Node],
           now_ms: int) -> None:
    """Carries over the leases it kept where the plan uses them, closes the others, opens the rest."""
    kept = {(lease.node, lease.gpus): lease for lease in tx.leases.open_of(gang.id)}
    wanted = {(choice.node, choice.gpus) for choice in placement.nodes}
    life.close_leases(tx, [lease for key, lease in kept.items() if key not in wanted], now_ms)
    for key, lease in kept.items():
        if key in wanted:
            tx.leases.carry_over(lease, gang.generation + 1, number, now_ms)
    fresh = [choice for choice in placement.nodes if (choice.node, choice.gpus) not in kept]
    first = tx.leases.next_id(len(fresh))
    leases = [_new_lease(first + i, gang, choice, nodes[choice.node], now_ms)
              for i, choice in enumerate(fresh)]
    tx.leases.open(leases, number)
    for lease in leases:
        tx.events.add("lease.opened", now_ms, gang=gang.id, lease=lease.id, node=lease.node,
                      gpus=list(lease.gpus))


def _new_lease(number: int, gang: Gang, choice: NodeChoice, node: Node, now_ms: int) -> Lease:
    return Lease(id=number, gang=gang.id, node=node.name, gpus=choice.gpus, generation=gang.generation + 1,
                 pool=node.pool, tenant=gang.tenant, slot=gang.slot, opened_ms=now_ms,
                 price_nano_per_gpu_hour=node.price_nano_per_gpu_hour, currency=node.currency)


def _wait(tx: Transaction, gang_id: str, waiting: Waiting, known: Mapping[str, Gang], now_ms: int) -> None:
    gang = known.get(gang_id)
    if gang is None or gang.state is not GangState.QUEUED:
        return
    wait = Wait(code=waiting.code, text=waiting.text, short=waiting.short,
                blocked_by=tuple(views.holder(other) for other in map(known.get, waiting.blocked_by)
                                 if other is not None),
                earliest_ms=waiting.earliest_ms)
    if gang.wait is not None and _same_news(gang.wait, wait, now_ms):
        return
    tx.gangs.waits(gang.id, wait)
    if gang.wait is None or (gang.wait.code, gang.wait.text) != (wait.code, wait.text):
        tx.events.add("plan.waiting", now_ms, gang=gang.id, code=wait.code, text=wait.text, short=wait.short,
                      blocked_by=list(waiting.blocked_by), earliest_ms=wait.earliest_ms)


def _same_news(old: Wait, new: Wait, now_ms: int) -> bool:
    """Nothing a reader would act on has changed: forecasts drift with every pass."""
    if old.model_copy(update={"earliest_ms": None}) != new.model_copy(update={"earliest_ms": None}):
        return False
    if old.earliest_ms is None or new.earliest_ms is None:
        return old.earliest_ms == new.earliest_ms
    left_ms = max(1_000, old.earliest_ms - now_ms)
    return abs(new.earliest_ms - old.earliest_ms) <= left_ms * EARLIEST_NEWS
