"""Whether the fleet could ever run a spec, asked before anything of it is stored."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

from gangline.model.errors import Rejected
from gangline.model.fleet import Fleet
from gangline.model.spec import GangSpec
from gangline.plan.never import misfit
from gangline.plan.snapshot import PendingGang, Snapshot
from gangline.service.loop import snapshot
from gangline.service.scaling import bounded
from gangline.store import Store


def judge(store: Store, fleet: Fleet, *, now_ms: int) -> Callable[[GangSpec], Rejected | None]:
    """A judge of specs against the fleet as it is now, looked at once, when first asked.

    It gives the error that names the field and the fix when the fleet can never place the gang, else
    None. Nodes count in any state but gone, and pools at the most they can grow to: what is only
    busy, drained or scaled down now is a reason to wait, not an error.
    """
    @cache
    def picture() -> Snapshot:
        return snapshot(store, fleet, now_ms=now_ms)

    @cache
    def widest() -> Snapshot:
        most = {pool.name: bounded(fleet, pool).most for pool in fleet.pools}
        pools = [replace(pool, most=max(pool.most, most[pool.name])) for pool in picture().pools]
        return Snapshot.of(version=picture().version, nodes=picture().nodes, pools=pools)

    def refusal(spec: GangSpec) -> Rejected | None:
        gang = PendingGang.of(spec, spec.name)
        wrong = misfit(gang, picture()) and misfit(gang, widest())
        if wrong is None:
            return None
        if wrong.field == "rdma" and any(pool.rdma and not pool.emulated for pool in fleet.pools):
            return Rejected("rdma cannot be proved on real nodes yet", field="rdma", fix="leave it out")
        return Rejected(wrong.text, field=wrong.field, fix=wrong.fix)

    return refusal
