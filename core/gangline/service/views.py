"""What anyone may observe: gangs, events, nodes. Nothing here changes anything."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from gangline.model.errors import Conflict, NotFound
from gangline.model.gang import AttemptView, Event, GangView, Holder, RankView, VersionRef, Wait
from gangline.model.node import DrainView, NodeView
from gangline.model.states import GangState
from gangline.service.usage import leases_cost_nano
from gangline.store import Attempt, Gang, Node, Rank, Store, Transaction

MOST_NAMED = 5  # gangs that a refusal names
MOST_GANGS, MOST_NODES = 16, 250  # looked at in one transaction: others must not wait long for their turn


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Gangs that are not final: all of them, and those of them that wait for nodes."""

    active: int
    queued: int


def observe(store: Store, gang: str, *, now_ms: int | None = None) -> GangView:
    """The gang of that id, or the only unfinished one whose name or id begins so.

    Its cost counts up to `now_ms`; without it, up to the last change of state.

    Raises NotFound when there is none, Conflict when there are several.
    """
    with store.transaction() as tx:
        return view(tx, resolve(tx, gang), now_ms, store.reasons)


def list_gangs(store: Store, states: Collection[GangState] = (), slot_prefix: str | None = None,
               limit: int = 100, *, now_ms: int | None = None) -> list[GangView]:
    """At most `limit` gangs, newest first; no states means all, no prefix any slot."""
    with store.transaction() as tx:
        listed = tx.gangs.listed(states, slot_prefix, limit)
    shown: list[GangView] = []
    for start in range(0, len(listed), MOST_GANGS):
        with store.transaction() as tx:
            now = tx.gangs.some([gang.id for gang in listed[start:start + MOST_GANGS]])
            shown += [view(tx, now[gang.id], now_ms, store.reasons) for gang in listed[start:start + MOST_GANGS]]
    return shown


def events_after(store: Store, gang: str | None, after: int, limit: int = 500) -> list[Event]:
    """Events after number `after`, of one gang or of all, oldest first."""
    with store.transaction() as tx:
        if gang is not None:
            tx.gangs.get(gang)
        return list(tx.events.after(after, gang, limit))


def nodes(store: Store) -> list[NodeView]:
    """Every node that has not left the fleet, in the order they were declared."""
    shown: list[NodeView] = []
    last: int | None = 0
    while last is not None:
        with store.transaction() as tx:
            found = tx.nodes.present_after(last, MOST_NODES)
            busy = tx.leases.busy([node.name for node in found])
        shown += [node_view(node, busy.get(node.name, {}), store.seen_ms.get(node.name)) for node in found]
        last = found[-1].ordinal if found else None
    return shown


def one_node(tx: Transaction, node: str, seen_ms: int | None) -> NodeView:
    """The node as it is now."""
    return node_view(tx.nodes.get(node), tx.leases.busy([node]).get(node, {}), seen_ms)


def status_counts(store: Store) -> Counts:
    """How much there is to do."""
    with store.transaction() as tx:
        counts = tx.gangs.counts()
    return Counts(active=sum(counts.values()), queued=counts.get(GangState.QUEUED, 0))


def resolve(tx: Transaction, text: str) -> Gang:
    """The gang meant by an id, or by the beginning of an unfinished gang's id or name."""
    found = tx.gangs.find(text)
    if found is not None:
        return found
    named, many = tx.gangs.named(text, MOST_NAMED)
    if not named:
        raise NotFound(f"there is no gang {text}", fix="gangline list shows them")
    if many > 1:
        raise Conflict(f"{many} gangs are called {text}: {', '.join(gang.id for gang in named)}",
                       fix="give the id of one")
    return named[0]


def holder(gang: Gang) -> Holder:
    """The gang as one that another waits for."""
    return Holder(gang=gang.id, name=gang.name, slot=gang.slot, tenant=gang.tenant)


def view(tx: Transaction, gang: Gang, now_ms: int | None, reasons: Callable[[str], Wait | None]) -> GangView:
    """All there is to see of a gang; `reasons` tells why it waits, as `Store.reasons` does."""
    attempts = tx.attempts.of(gang.id)
    leases = tx.leases.of(gang.id)
    currency = leases[0].currency if leases else "USD"
    return GangView(
        gang=gang.id, name=gang.name, slot=gang.slot, epoch=gang.epoch, tenant=gang.tenant,
        state=gang.state, spec=gang.spec, digest=gang.digest, submitted_ms=gang.submitted_ms,
        changed_ms=gang.changed_ms, ended_ms=gang.ended_ms, previous=gang.previous, wait=_wait(tx, gang, reasons),
        attempts=tuple(_attempt_view(tx, attempt) for attempt in attempts),
        ranks=_ranks(tx, gang), progress=gang.progress,
        versions=tuple(VersionRef(volume=v.volume, version=v.version, step=v.step, metrics=v.metrics,
                                  manifest_sha256=v.manifest_sha256)
                       for v in reversed(tx.versions.by(gang.id))),
        end=gang.end, cancel_requested=gang.cancel_text,
        cost_nano=leases_cost_nano([lease for lease in leases if lease.currency == currency],
                                   gang.changed_ms if now_ms is None else now_ms),
        currency=currency)


def _wait(tx: Transaction, gang: Gang, reasons: Callable[[str], Wait | None]) -> Wait | None:
    if gang.state is not GangState.QUEUED:
        return None
    ahead = [other for other in tx.gangs.unfinished(gang.slot) if other.seq < gang.seq]
    if not ahead:
        return reasons(gang.id)
    return Wait(code="order", text=f"waits until {ahead[-1].id}, which it replaces, has released its nodes",
                blocked_by=tuple(map(holder, ahead)))


def _attempt_view(tx: Transaction, attempt: Attempt) -> AttemptView:
    members = tx.attempts.members(attempt.gang, attempt.number)
    return AttemptView(
        number=attempt.number, nodes=tuple(member.share for member in members), zone=attempt.zone,
        fabric=attempt.fabric, started_ms=attempt.started_ms, running_ms=attempt.running_ms,
        ended_ms=attempt.ended_ms, resume=attempt.resume, rdma=attempt.rdma, emulated=attempt.emulated,
        end=attempt.end)


def _ranks(tx: Transaction, gang: Gang) -> tuple[RankView, ...]:
    if gang.attempt == 0:
        return ()
    places = {member.node_rank: member.node for member in tx.attempts.members(gang.id, gang.attempt)}
    return tuple(_rank_view(rank, places[rank.node_rank])
                 for rank in tx.attempts.ranks(gang.id, gang.attempt))


def _rank_view(rank: Rank, node: str) -> RankView:
    return RankView(rank=rank.rank, role=rank.role, node=node, local_rank=rank.local_rank, state=rank.state,
                    exit_code=rank.exit_code, signal=rank.signal, result=rank.result)


def node_view(node: Node, busy: dict[int, str], seen_ms: int | None) -> NodeView:
    drain = None if node.drain_owner is None else DrainView(owner=node.drain_owner, reason=node.drain_reason)
    return NodeView(
        node=node.name, pool=node.pool, engine=node.engine, gpu_type=node.gpu_type, gpu_count=node.gpu_count,
        zone=node.zone, fabric=node.fabric, path=node.path, domain=node.domain, address=node.address,
        emulated=node.emulated, lifecycle=node.lifecycle, drain=drain, healthy=node.healthy,
        free_gpus=tuple(gpu for gpu in range(node.gpu_count) if gpu not in busy),
        gangs=tuple(sorted(set(busy.values()))), incarnation=node.incarnation, seen_ms=seen_ms,
        price_nano_per_gpu_hour=node.price_nano_per_gpu_hour, currency=node.currency,
        boot_done_ms=node.boot_done_ms, strikes=node.strikes)
