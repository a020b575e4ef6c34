"""Why a gang waits and what would help, asked of the picture as the last pass left it."""

from __future__ import annotations

from gangline.model.gang import Holder, Wait
from gangline.model.passes import Explanation, HolderView, TriedGroup, WhatIf
from gangline.model.units import format_duration
from gangline.plan.counterfactual import Question, WouldBe, what_if
from gangline.plan.leases import Leases
from gangline.plan.outcome import Reservation
from gangline.plan.policy import Policy
from gangline.plan.snapshot import Snapshot
from gangline.plan.tried import in_the_way, tried
from gangline.service.picture import Picture


def explain(picture: Picture, policy: Policy, kept: tuple[Reservation, ...], gang: str, wait: Wait | None, *,
            now_ms: int) -> Explanation:
    """What a pass sees of a gang that waits, and the changes of its spec with which it would start.

    `kept` are the reservations of the last pass, `wait` is what it said. Of a gang that does not wait
    there is nothing to say. The loop goes on meanwhile.
    """
    with picture.lock:  # the queue goes on when it is given back
        snapshot = picture.still()
        pending = snapshot.queue.get(gang)
        ahead = tuple(other for reservation in kept if reservation.gang != gang
                      and (other := snapshot.queue.get(reservation.gang)) is not None)
    if pending is None:
        return Explanation(gang=gang, at_ms=now_ms, wait=wait)
    found = what_if(Question(snapshot, policy, now_ms, pending, ahead))
    names = _Names(snapshot)
    return Explanation(
        gang=gang, at_ms=now_ms, wait=wait,
        tried=tuple(TriedGroup(where=group.where, free=group.free, could=group.could, need=group.need)
                    for group in tried(snapshot, pending)),
        holders=tuple(HolderView(holder=names.holder(other.gang), nodes=other.nodes, ends_ms=other.ends_ms,
                                 reserved=other.reserved) for other in in_the_way(snapshot, pending, kept)),
        what_if=tuple(_what_if(answer, names, now_ms) for answer in found))


class _Names:
    """Gangs by the names that people know."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._running = Leases.of(snapshot)
        self._queue = snapshot.queue

    def holder(self, gang: str) -> Holder:
        found = self._running.find(gang) or self._queue.get(gang)
        if found is None:
            return Holder(gang=gang, name=gang, slot="", tenant="")
        return Holder(gang=gang, name=found.name, slot=found.slot, tenant=found.tenant)


def _what_if(answer: WouldBe, names: _Names, now_ms: int) -> WhatIf:
    preempts = tuple(map(names.holder, answer.preempts))
    text = f"fits now {answer.change}"
    if not answer.fits:
        text = f"starts {answer.change} by preempting {', '.join(holder.name for holder in preempts)}"
        if answer.earliest_ms is not None:
            text += f", in {format_duration(max(0, answer.earliest_ms - now_ms) / 1000)}"
    return WhatIf(change=answer.change, fits=answer.fits, text=text, nodes=answer.nodes, preempts=preempts,
                  earliest_ms=answer.earliest_ms)
