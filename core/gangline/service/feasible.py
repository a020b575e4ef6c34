"""Whether the fleet could ever run a spec, asked before anything of it is stored."""

from __future__ import annotations

from collections.abc import Callable

from gangline.model.errors import Rejected
from gangline.model.fleet import Fleet
from gangline.model.spec import GangSpec
from gangline.plan.never import misfit
from gangline.plan.snapshot import PendingGang, Snapshot


def judge(look: Callable[[], Snapshot], fleet: Fleet) -> Callable[[GangSpec], Rejected | None]:
    """A judge of specs against the fleet as `look` shows it.

    It gives the error that names the field and the fix when the fleet can never place the gang, else
    None. Nodes count in any state but gone, and pools at the most they can grow to: what is only
    busy or drained now is a reason to wait, not an error.
    """
    def refusal(spec: GangSpec) -> Rejected | None:
        wrong = misfit(PendingGang.of(spec, spec.name), look())
        if wrong is None:
            return None
        if wrong.field == "rdma" and any(pool.rdma and not pool.emulated for pool in fleet.pools):
            return Rejected("rdma cannot be proved on real nodes yet", field="rdma", fix="leave it out")
        return Rejected(wrong.text, field=wrong.field, fix=wrong.fix)

    return refusal
