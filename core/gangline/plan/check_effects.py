"""The checker's reading of what a plan does to quotas, pools and running gangs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from gangline.plan.check_view import View
from gangline.plan.outcome import Placement, Plan, Preemption, Resize, Retirement, WaitCode
from gangline.plan.policy import Policy
from gangline.plan.snapshot import PendingGang, RunningGang

_Gpus = Iterable[tuple[str, int]]
_Taken = list[tuple[str, int]]


def check_effects(view: View, plan: Plan, policy: Policy | None) -> Iterator[str]:
    """Every promise the plan breaks beyond its placements, one line each."""
    yield from _quotas(view, plan)
    yield from _capacity(view, plan)
    told = Counter([p.gang for p in plan.preemptions] + [r.gang for r in plan.resizes])
    yield from (f"{gang}: is told {count} times to end or resize" for gang, count in told.items() if count > 1)
    for preemption in plan.preemptions:
        yield from (f"{preemption.gang}: {text}" for text in _preemption(view, plan, preemption, policy))
    for resize in plan.resizes:
        yield from (f"{resize.gang}: {text}" for text in _resize(view, plan, resize, policy))
    for retirement in plan.retirements:
        yield from (f"pool {retirement.pool}: {text}" for text in _retirement(view, plan, retirement))


# Quotas.

class _Used:
    """GPUs by tenant and type, placement by placement."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._used: Counter[tuple[str, str]] = Counter()
        self._quota = {tenant.name: dict(tenant.quota) for tenant in view.tenants.values()}

    def add(self, tenant: str, gpus: _Gpus, sign: int = 1) -> None:
        for kind, count in gpus:
            self._used[tenant, kind] += sign * count

    def over(self, tenant: str, kind: str) -> str | None:
        """What the tenant has too much of, now that it has just got something of the type."""
        quota = self._quota.get(tenant, {}).get(kind)
        used = self._used[tenant, kind]
        if quota is None or used <= quota:
            return None
        known = self._view.tenants[tenant]
        if known.cohort is None:
            return f"has {used} {kind} of a quota of {quota}"
        if known.borrow is not None and used > quota + known.borrow:
            return f"has {used} {kind}, more than its quota of {quota} and {known.borrow} borrowed"
        members = [name for name, other in self._view.tenants.items()
                   if other.cohort == known.cohort and kind in self._quota[name]]
        together = sum(self._used[name, kind] for name in members)
        most = sum(self._quota[name][kind] for name in members)
        return f"borrows {kind}: its cohort has {together} of {most}" if together > most else None


def _quotas(view: View, plan: Plan) -> Iterator[str]:
    """Placements one after another; what gangs in repair held counts until they are placed or have given it back."""
    if not any(tenant.quota for tenant in view.tenants.values()):
        return
    used = _Used(view)
    for run in view.running.values():
        used.add(run.tenant, view.gpus_of(run.holds))
    placed = {placement.gang for placement in plan.placements}
    for name in view.held:
        if name in placed or name in view.passed_over:
            used.add(view.gangs[name].tenant, view.gpus_of(view.gangs[name].held))
    grown: list[tuple[PendingGang, _Taken]] = []
    for placement in plan.placements:
        gang = view.gangs.get(placement.gang)
        if gang is None or not all(view.has(member.node) for member in placement.nodes):
            continue
        used.add(gang.tenant, view.gpus_of(gang.held), -1)
        first, more = _by_size(view, gang, placement)
        used.add(gang.tenant, first)
        yield from _over(used, gang, first)
        grown.append((gang, more))
    for gang, more in grown:
        used.add(gang.tenant, more)
        yield from _over(used, gang, more)


def _by_size(view: View, gang: PendingGang, placement: Placement) -> tuple[_Taken, _Taken]:
    """(type, GPUs) of the members it started with, the smallest nodes at best, and of those it grew by."""
    gpus = sorted(((view.node(m.node).gpu.type, len(m.gpus)) for m in placement.nodes), key=lambda each: each[1])
    return gpus[:gang.nodes], gpus[gang.nodes:]


def _over(used: _Used, gang: PendingGang, new: _Gpus) -> Iterator[str]:
    for kind in sorted({kind for kind, _ in new}):
        text = used.over(gang.tenant, kind)
        if text is not None:
            yield f"{gang.gang}: with it tenant {gang.tenant} {text}"


# Pools.

def _capacity(view: View, plan: Plan) -> Iterator[str]:
    waits = view.waits
    for name, count in Counter(c.pool for c in plan.capacity).items():
        if count > 1 or name not in view.pools:
            yield f"pool {name}: is asked {count} times or unknown"
    for request in plan.capacity:
        pool = view.pools.get(request.pool)
        if any(gang not in waits or waits[gang].code is not WaitCode.CAPACITY for gang in request.gangs):
            yield f"pool {request.pool}: asked for gangs that do not wait for capacity"
        if pool is not None and not 1 <= request.nodes <= pool.most - pool.nodes:
            yield f"pool {pool.name}: asked for {request.nodes}, may add {pool.most - pool.nodes}"
        warm = 0 if pool is None else pool.warm
        if request.nodes > warm + sum(view.gangs[g].nodes for g in request.gangs if g in view.gangs):
            yield f"pool {request.pool}: asked for more nodes than its gangs need"


def _retirement(view: View, plan: Plan, retirement: Retirement) -> Iterator[str]:
    pool = view.pools.get(retirement.pool)
    if pool is None or pool.idle_ms is None or not retirement.nodes:
        yield "gives back nothing, or never does"
        return
    if len(set(retirement.nodes)) != len(retirement.nodes) or not all(map(view.has, retirement.nodes)):
        yield "gives back unknown nodes, or one twice"
        return
    if pool.nodes - len(retirement.nodes) < pool.least:
        yield f"would keep {pool.nodes - len(retirement.nodes)} nodes, fewer than {pool.least}"
    used = {member.node for placement in plan.placements for member in placement.nodes}
    used |= {node for reservation in plan.reservations for node in reservation.nodes}
    for name in retirement.nodes:
        node = view.node(name)
        if node.pool != pool.name or not node.usable or not node.whole or name in used:
            yield f"gives back {name}, which is in use, kept or not its own"
        if not node.idle_ms or plan.now_ms - node.idle_ms < pool.idle_ms:
            yield f"gives back {name}, which has not idled for long enough"


# Running gangs.

def _preemption(view: View, plan: Plan, preemption: Preemption, policy: Policy | None) -> Iterator[str]:
    run = view.running.get(preemption.gang)
    if run is None or run.ending or not run.preemptible:
        yield "is preempted, but does not run, is ending or may not be preempted"
        return
    yield from _made_to_leave(view, plan, run, preemption.gangs, policy)
    gangs = [view.gangs[gang] for gang in preemption.gangs if gang in view.gangs]
    placed = _placed(view, plan)
    higher = any(gang.priority > run.priority for gang in gangs)
    if preemption.reclaim and (higher or not any(_lends(view, placed, gang, run) for gang in gangs)):
        yield "is preempted to reclaim what its tenant has not borrowed"
    if not preemption.reclaim and not higher:
        yield f"is preempted for {', '.join(preemption.gangs)} of no higher priority"


def _made_to_leave(view: View, plan: Plan, run: RunningGang, gangs: tuple[str, ...],
                   policy: Policy | None) -> Iterator[str]:
    waits = view.waits
    if not gangs or any(gang not in waits or gang not in view.gangs for gang in gangs):
        yield "is preempted for gangs that do not wait"
    if policy is None:
        return
    if not policy.preempt:
        yield "is preempted although the policy never does"
    if plan.now_ms - run.since_ms < policy.min_runtime_ms:
        yield "is preempted before it ran for long enough"
    if run.preempted_ms and plan.now_ms - run.preempted_ms < policy.cool_down_ms:
        yield "is preempted again too soon"


def _lends(view: View, placed: dict[str, Counter[str]], gang: PendingGang, run: RunningGang) -> bool:
    """Whether the running gang's tenant has more than its quota of something, in the waiting gang's cohort."""
    mine, other = view.tenants.get(gang.tenant), view.tenants.get(run.tenant)
    if mine is None or other is None or mine.cohort is None or mine.cohort != other.cohort or mine is other:
        return False
    holds = [each.holds for each in view.running.values() if each.tenant == run.tenant]
    holds += [view.gangs[name].held for name in view.held if view.gangs[name].tenant == run.tenant]
    used = Counter(placed.get(run.tenant, {}))
    for each in holds:
        for kind, count in view.gpus_of(each):
            used[kind] += count
    kinds = {ask.type for role in gang.roles for ask in role.asks}
    return any(kind in kinds and used[kind] > quota for kind, quota in other.quota)


def _placed(view: View, plan: Plan) -> dict[str, Counter[str]]:
    """GPUs that the plan gives to each tenant, by type."""
    given: dict[str, Counter[str]] = {}
    for placement in plan.placements:
        if placement.gang in view.gangs:
            mine = given.setdefault(view.gangs[placement.gang].tenant, Counter())
            for member in placement.nodes:
                mine[member.ask.type] += len(member.gpus)
    return given


def _resize(view: View, plan: Plan, resize: Resize, policy: Policy | None) -> Iterator[str]:
    run = view.running.get(resize.gang)
    if run is None or run.ending:
        yield "is resized, but does not run or is ending"
        return
    held = {each.node for each in run.holds}
    if resize.nodes:
        yield from _made_to_leave(view, plan, run, resize.gangs, policy)
        if not set(resize.nodes) <= held or resize.size != len(run.holds) - len(set(resize.nodes)):
            yield f"gives up {resize.nodes}, which leaves not {resize.size} of its nodes"
        if not 1 <= run.least <= resize.size:
            yield f"shrinks to {resize.size}, fewer than {run.least or 'it may'}"
        return
    if not len(run.holds) < resize.size <= run.most:
        yield f"is to have {resize.size} nodes, has {len(run.holds)} and may have {run.most}"
    if view.gangs:
        yield "grows while gangs wait"
    if policy is not None and plan.now_ms - max(run.resized_ms, run.since_ms) < policy.resize_every_ms:
        yield "is resized again too soon"
