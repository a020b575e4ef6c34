"""What would become of a gang that waits, were one thing of it another: the planner is asked."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from gangline.model.gpu import CPU, GpuAsk
from gangline.model.spec import PRIORITIES
from gangline.plan.planner import decide
from gangline.plan.policy import Policy
from gangline.plan.queue import Queue
from gangline.plan.snapshot import PendingGang, RoleNeed, Snapshot

MOST_KINDS = 8  # zones, pools or GPU types that are tried
_Change = tuple[str, PendingGang]


@dataclass(frozen=True, slots=True, kw_only=True)
class WouldBe:
    """What one pass would decide for the changed gang.

    It starts at once on `nodes`; or `preempts` gangs and starts when they have ended; or starts at
    `earliest_ms`, as far as that is known.
    """

    change: str
    nodes: tuple[str, ...] = ()
    preempts: tuple[str, ...] = ()
    earliest_ms: int | None = None

    @property
    def fits(self) -> bool:
        """It would start now."""
        return bool(self.nodes)


@dataclass(frozen=True, slots=True)
class Question:
    """A gang on a snapshot, behind the gangs for which nodes are kept."""

    snapshot: Snapshot
    policy: Policy
    now_ms: int
    gang: PendingGang
    before: tuple[PendingGang, ...] = ()

    def answer(self, change: str, changed: PendingGang) -> WouldBe:
        """What becomes of the gang when it is `changed`."""
        queue = Queue.of([*self.before, replace(changed, promise=None)])
        # Only a higher priority makes room that the gang could not have made as it is.
        policy = self.policy if changed.priority > self.gang.priority else replace(self.policy, preempt=False)
        found = decide(replace(self.snapshot, queue=queue), policy, self.now_ms)
        gang = changed.gang
        nodes = next((tuple(choice.node for choice in placement.nodes) for placement in found.placements
                      if placement.gang == gang), ())
        victims = tuple(victim for victim, preemption in sorted(found.preemptions.items()) if gang in preemption.gangs)
        shrinks = tuple(change.gang for change in found.resizes if gang in change.gangs)
        earliest_ms = next((kept.at_ms for kept in found.reservations if kept.gang == gang), None)
        return WouldBe(change=change, nodes=nodes, preempts=victims + shrinks, earliest_ms=earliest_ms)


def what_if(question: Question) -> tuple[WouldBe, ...]:
    """The changes of one thing with which the gang would start now, or preempt others to start soon.

    Of sizes the largest smaller one that fits is told. What would not help is left out.
    """
    found = [question.answer(text, changed) for text, changed in _changes(question)]
    smaller = _smaller(question)
    return tuple(answer for answer in [*found, *([smaller] if smaller else [])] if answer.fits or answer.preempts)


def _changes(question: Question) -> Iterator[_Change]:
    gang = question.gang
    if gang.rdma:
        yield "with rdma off", replace(gang, rdma=False)
    if gang.within is not None:
        yield f"without within {gang.within}", replace(gang, within=None)
    if gang.domain_size is not None:
        yield "without domain_size", replace(gang, domain_size=None)
    yield from _other_types(question)
    yield from _other_places(question)
    if gang.exclude:
        yield "without exclude", replace(gang, exclude=frozenset())
    for name, priority in PRIORITIES.items():
        if priority > gang.priority:
            yield f"at priority {name}", replace(gang, priority=priority)


def _other_types(question: Question) -> Iterator[_Change]:
    """Other GPUs of the fleet, as many of them on each node."""
    gang = question.gang
    known = {ask.type for role in gang.roles for ask in role.asks}
    wanted = max((ask.count for role in gang.roles for ask in role.asks), default=1)
    fleet_map = question.snapshot.fleet.map
    most = {kind: int(fleet_map.count[fleet_map.type == number].max()) for kind, number in fleet_map.types.items()}
    for kind in sorted(most.keys() - known - {CPU})[:MOST_KINDS]:
        if most[kind] >= wanted:
            ask = GpuAsk(kind, wanted)
            yield f"as {ask}", replace(gang, roles=tuple(replace(role, asks=(ask,)) for role in gang.roles))


def _other_places(question: Question) -> Iterator[_Change]:
    gang = question.gang
    if gang.pool is not None:
        yield "in any pool", replace(gang, pool=None)
    if gang.zone is not None:
        fleet_map = question.snapshot.fleet.map
        zones = sorted({str(key[1]) for key in fleet_map.keys[fleet_map.levels.zone]} - {gang.zone})
        for zone in zones[:MOST_KINDS]:
            yield f"in zone {zone}", replace(gang, zone=zone)


def _smaller(question: Question) -> WouldBe | None:
    """The largest smaller size that fits now, found by halving: what fits in so many nodes fits in fewer."""
    gang = question.gang
    if len(gang.roles) != 1 or gang.held:
        return None
    step = gang.domain_size or 1
    low, high, best = 1, (gang.roles[0].size - 1) // step, None
    while low <= high:
        size = (low + high) // 2 * step
        answer = question.answer(f"with size {size}", _sized(gang, size))
        if answer.fits:
            best, low = answer, size // step + 1
        else:
            high = size // step - 1
    return best


def _sized(gang: PendingGang, size: int) -> PendingGang:
    role: RoleNeed = replace(gang.roles[0], size=size)
    return replace(gang, roles=(role,), most=size)
