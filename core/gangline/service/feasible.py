"""Whether the fleet could ever run a spec, asked before anything of it is stored."""

from __future__ import annotations

from gangline.model.errors import Rejected
from gangline.model.fleet import Fleet
from gangline.model.spec import GangSpec
from gangline.plan.never import misfit
from gangline.plan.snapshot import PendingGang
from gangline.service.loop import snapshot
from gangline.store import Store


def refusal(store: Store, fleet: Fleet, spec: GangSpec, *, now_ms: int) -> Rejected | None:
    """The error that names the field and the fix when the fleet can never place the gang, else None.

    Nodes count in any state but gone, and pools at the most they can grow to: what is only busy or
    drained now is a reason to wait, not an error.
    """
    wrong = misfit(PendingGang.of(spec, spec.name), snapshot(store, fleet, now_ms=now_ms))
    return None if wrong is None else Rejected(wrong.text, field=wrong.field, fix=wrong.fix)
