"""Passes are kept for people who ask later what was decided, from what, and what else could have been."""

from __future__ import annotations

import json
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from gangline.model.errors import Conflict, NotFound
from gangline.model.passes import PassDetail, PassView
from gangline.plan.outcome import Plan
from gangline.plan.wire import Inputs, Writer, plan_json
from gangline.store import Pass, Store

MOST_PASSES = 500
MOST_BYTES = 64 << 20
COST = 20  # a backlog's inputs take long to write: so many times as long passes until they are written again
MOST_NAMED = 100  # gangs named of a reason, when the inputs do not name them


@dataclass(slots=True)
class Recorder:
    """Keeps passes. Inputs are written before a plan is committed, for that changes what they were."""

    store: Store
    clock_s: Callable[[], float] = time.monotonic
    most_passes: int = MOST_PASSES
    most_bytes: int = MOST_BYTES
    _writer: Writer = field(init=False, default_factory=Writer)
    _next_s: float = field(init=False, default=0.0)

    def pack(self, inputs: Inputs, *, always: bool = False) -> bytes | None:
        """Inputs as they are kept; None when writing them would take too much of the loop's time, unless `always`."""
        began_s = self.clock_s()
        if began_s < self._next_s and not always:
            return None
        packer = zlib.compressobj(1)
        parts = [packer.compress(piece.encode()) for piece in self._writer.pieces(inputs)]
        packed = b"".join((*parts, packer.flush()))
        self._next_s = self.clock_s() + COST * (self.clock_s() - began_s)
        return packed

    def keep(self, inputs: Inputs, packed: bytes | None, plan: Plan, *, trigger: str, duration_us: int,
             refused: int = 0, faults: tuple[str, ...] = ()) -> int:
        """Stores a pass and drops what is beyond the newest 500 or 64 MiB; its number."""
        # Written bit by bit: in one go, naming a whole backlog would stop every other thread meanwhile.
        pieces = json.JSONEncoder().iterencode(_plan_kept(plan, whole=packed is not None))
        text = zlib.compress("".join(pieces).encode(), 1)
        size = len(text) + len(packed or b"")
        with self.store.transaction() as tx:
            number = tx.passes.next_id()
            tx.passes.add(Pass(
                id=number, at_ms=inputs.now_ms, version=plan.base, duration_us=duration_us, trigger=trigger,
                policy=inputs.policy.name, pending=len(inputs.snapshot.queue), placed=len(plan.placements),
                asked=sum(request.nodes for request in plan.capacity), released=len(plan.releases),
                preempted=len(plan.preemptions), resized=len(plan.resizes),
                retired=sum(len(retired.nodes) for retired in plan.retirements), refused=refused, size_bytes=size,
                plan=text, inputs=packed, faults=faults))
            tx.passes.drop(_beyond(tx.passes.sizes(), self.most_passes, self.most_bytes))
        return number


def decided(plan: Plan) -> bool:
    """The plan does something, apart from saying why gangs wait."""
    return bool(plan.placements or plan.capacity or plan.releases or plan.preemptions or plan.resizes
                or plan.retirements)


def list_passes(store: Store, before: int | None = None, limit: int = 50) -> list[PassView]:
    """The newest passes, or the newest before one of them."""
    with store.transaction() as tx:
        return [_view(kept, replayable=whole) for kept, whole in tx.passes.listed(before, limit)]


def get_pass(store: Store, number: int, *, inputs: bool = False) -> PassDetail:
    """One pass with its plan; NotFound when it is not kept (any more)."""
    with store.transaction() as tx:
        kept = tx.passes.find(number)
    if kept is None:
        raise NotFound(f"there is no pass {number}", fix=f"gangline plan --list shows the last {MOST_PASSES} at most")
    return PassDetail(summary=_view(kept, replayable=kept.inputs is not None), plan=_unpack(kept.plan),
                      inputs=_unpack(kept.inputs) if inputs and kept.inputs is not None else None)


def _view(kept: Pass, *, replayable: bool) -> PassView:
    return PassView(
        id=kept.id, at_ms=kept.at_ms, version=kept.version, duration_us=kept.duration_us, trigger=kept.trigger,
        policy=kept.policy, pending=kept.pending, placed=kept.placed, asked=kept.asked, released=kept.released,
        preempted=kept.preempted, resized=kept.resized, retired=kept.retired, refused=kept.refused,
        size_bytes=kept.size_bytes, replayable=replayable, faults=kept.faults)


def _plan_kept(plan: Plan, *, whole: bool) -> dict[str, Any]:
    """The plan; without its inputs nobody can make it again, and a reason need not name a whole backlog."""
    if whole:
        return plan_json(plan)
    kept = plan_json(replace(plan, waiting=tuple(replace(waiting, gangs=waiting.gangs[:MOST_NAMED])
                                                 for waiting in plan.waiting)))
    for waiting, known in zip(kept.get("waiting", ()), plan.waiting, strict=True):
        if len(known.gangs) > MOST_NAMED:
            waiting["more"] = len(known.gangs) - MOST_NAMED
    return kept


def _unpack(packed: bytes) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(zlib.decompress(packed))
    except (zlib.error, ValueError) as exc:
        raise Conflict(f"this pass is damaged in the database: {exc}", fix="look at another one") from None
    return found


def _beyond(sizes: list[tuple[int, int]], most_passes: int, most_bytes: int) -> list[int]:
    """Passes to drop; the newest always stays."""
    total, dropped = 0, []
    for place, (number, size) in enumerate(sizes):
        total += size
        if place and (place >= most_passes or total > most_bytes):
            dropped.append(number)
    return dropped
