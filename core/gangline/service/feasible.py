"""Whether the fleet could ever run a spec, asked before anything of it is stored."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

from gangline.model.errors import Rejected
from gangline.model.fleet import Fleet
from gangline.model.spec import GangSpec
from gangline.plan.declared import tenant_state
from gangline.plan.demand import demand_of
from gangline.plan.never import misfit
from gangline.plan.snapshot import PendingGang, Snapshot
from gangline.plan.usage import most_ever
from gangline.service.scaling import bounded


def judge(look: Callable[[], Snapshot], fleet: Fleet) -> Callable[[GangSpec], Rejected | None]:
    """A judge of specs against the fleet as `look` shows it, looked at once, when first asked.

    It gives the error that names the field and the fix when the fleet can never place the gang, else
    None. Nodes count in any state but gone, and pools at the most they can grow to: what is only
    busy, drained or scaled down now is a reason to wait, not an error.
    """
    picture = cache(look)
    widest = cache(lambda: _at_most(picture(), fleet))

    def refusal(spec: GangSpec) -> Rejected | None:
        gang = PendingGang.of(spec, spec.name)
        wrong = misfit(gang, picture()) and misfit(gang, widest())
        if wrong is None:
            return _beyond_quota(gang, picture(), fleet)
        if wrong.field == "rdma" and any(pool.rdma and not pool.emulated for pool in fleet.pools):
            return Rejected("rdma cannot be proved on real nodes yet", field="rdma", fix="leave it out")
        return Rejected(wrong.text, field=wrong.field, fix=wrong.fix)

    return refusal


def _beyond_quota(gang: PendingGang, shown: Snapshot, fleet: Fleet) -> Rejected | None:
    """The gang asks for more than its tenant may ever have, whichever alternative it gets."""
    tenants = [tenant_state(tenant) for tenant in fleet.tenants]
    least: list[str] = []
    for choice in demand_of(shown.fleet.map, gang).choices:
        beyond = [f"{most} {kind}" for kind, count in choice.gpus
                  if (most := most_ever(tenants, gang.tenant, kind)) is not None and count > most]
        if not beyond:
            return None
        least += beyond
    if not least:
        return None
    return Rejected(f"tenant {gang.tenant} may have at most {' or '.join(dict.fromkeys(least))} at once",
                    field="tenant", fix="ask for fewer nodes, or raise the quota in the fleet file")


def _at_most(shown: Snapshot, fleet: Fleet) -> Snapshot:
    """The same fleet without the sizes that persons asked for: a wish passes, and a gang may wait for that."""
    most = {pool.name: bounded(fleet, pool).most for pool in fleet.pools}
    pools = [replace(pool, most=max(pool.most, most.get(pool.name, 0))) for pool in shown.pools]
    if all(pool.most == before.most for pool, before in zip(pools, shown.pools, strict=True)):
        return shown
    return Snapshot.of(version=shown.version, nodes=shown.nodes, pools=pools)
