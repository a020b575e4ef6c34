"""The promises of a pass over random worlds."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from random import Random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from plan_worlds import NOW_MS, POLICIES, advance, changed, commit, gang, node, pool, world, worlds

from gangline.plan.check import check
from gangline.plan.never import never_fits
from gangline.plan.outcome import Plan
from gangline.plan.planner import plan
from gangline.plan.policy import Order, Policy
from gangline.plan.queue import rank
from gangline.plan.snapshot import Held, NodeState, PendingGang, Snapshot

quick = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
# Whose turn it is depends on nothing that a plan changes.
STEADY = Policy(fair=False, age_after_ms=None, preempt=False, backfill=Order.SUBMITTED)


def unlimited(snapshot: Snapshot) -> Snapshot:
    """The world without quotas: a gang that starts later cannot take the quota of one that waits."""
    return changed(snapshot, tenants=())


@quick
@given(worlds(), POLICIES)
def test_no_plan_breaks_a_promise_that_the_checker_knows(snapshot: Snapshot, policy: Policy) -> None:
    assert check(snapshot, plan(snapshot, policy, NOW_MS), policy) == ()


@quick
@given(worlds(), POLICIES, st.integers(0, 2**20))
def test_the_order_of_the_input_changes_nothing(snapshot: Snapshot, policy: Policy, seed: int) -> None:
    def shuffled(items: Iterable[object]) -> list[object]:
        copy = list(items)
        Random(seed).shuffle(copy)
        return copy

    other = changed(snapshot, nodes=shuffled(snapshot.nodes), pools=shuffled(snapshot.pools),
                    pending=shuffled(snapshot.pending), running=shuffled(snapshot.running),
                    tenants=shuffled(snapshot.tenants))
    assert plan(other, policy, NOW_MS) == plan(snapshot, policy, NOW_MS)


@quick
@given(worlds(repairs=False), POLICIES)
def test_a_plan_leaves_its_snapshot_as_it_was(snapshot: Snapshot, policy: Policy) -> None:
    before = plan(snapshot, policy, NOW_MS)
    assert plan(snapshot, policy, NOW_MS) == before


@quick
@given(worlds(repairs=False), st.sampled_from([(0, False), (1, False), (4, False), (99, True)]))
def test_a_committed_plan_leaves_nothing_to_do(snapshot: Snapshot, setting: tuple[int, bool]) -> None:
    # A gang for which nothing is kept may lose its nodes to what the plan starts, and then ask for new ones.
    reserve_first, capacity = setting
    policy = replace(STEADY, reserve_first=reserve_first, capacity=capacity)
    first = plan(unlimited(snapshot), policy, NOW_MS)
    second = plan(commit(unlimited(snapshot), first), policy, NOW_MS)
    assert (second.placements, second.capacity, second.releases, second.retirements) == ((), (), (), ())


@quick
@given(worlds(repairs=False), POLICIES)
def test_nodes_are_not_asked_for_twice(snapshot: Snapshot, policy: Policy) -> None:
    for each in snapshot.pending:
        alone = changed(snapshot, pending=[each])
        first = plan(alone, policy, NOW_MS)
        second = plan(commit(alone, first), policy, NOW_MS)
        if first.capacity:
            assert second.capacity == ()
        before, after = first.waits().get(each.gang), second.waits().get(each.gang)
        if before is not None and before.code == "capacity":
            assert after is not None
            assert after.earliest_ms <= before.earliest_ms


@quick
@given(worlds(repairs=False), POLICIES)
def test_nobody_is_preempted_twice_for_one_gang(snapshot: Snapshot, policy: Policy) -> None:
    first = plan(snapshot, policy, NOW_MS)
    second = plan(commit(snapshot, first), policy, NOW_MS)
    served = {name for told in (*first.preemptions, *first.resizes) for name in told.gangs}
    ended = {told.gang for told in (*first.preemptions, *first.resizes)}
    for told in (*second.preemptions, *second.resizes):
        assert told.gang not in ended
        assert not served & set(told.gangs)


@quick
@given(worlds(repairs=False), st.sampled_from([1, 4]))
def test_a_promised_time_does_not_move_later_by_what_the_plan_itself_starts(
        snapshot: Snapshot, reserve_first: int) -> None:
    policy = replace(STEADY, reserve_first=reserve_first, capacity=False)
    first = plan(unlimited(snapshot), policy, NOW_MS)
    second = plan(commit(unlimited(snapshot), first), policy, NOW_MS)
    later = {name: waiting.earliest_ms for name, waiting in second.waits().items()}
    for reservation in first.reservations:
        if reservation.at_ms is not None:
            assert later[reservation.gang] is not None
            assert later[reservation.gang] <= reservation.at_ms


@quick
@given(worlds(repairs=False), POLICIES)
def test_a_single_that_fits_and_disturbs_no_reservation_is_started(snapshot: Snapshot, policy: Policy) -> None:
    made = plan(snapshot, policy, NOW_MS)
    after = commit(snapshot, replace(made, capacity=(), preemptions=(), resizes=(), retirements=()))
    codes = {name: waiting.code for name, waiting in made.waits().items()}
    spares = _spares(snapshot)
    for waiting in after.pending:
        if not waiting.single or codes[waiting.gang] in ("quota", "order"):
            continue
        kept = {name for r in made.reservations if r.gang != waiting.gang and not _ends_before(waiting, r.at_ms)
                for name in r.nodes}
        fitting = [n.name for n in after.nodes if n.usable and _serves(snapshot, waiting, n)
                   and n.name not in kept | spares and _enough(waiting, n)]
        assert fitting == []


@quick
@given(worlds(repairs=False), st.data())
def test_one_more_healthy_node_never_hurts_the_first_gang(snapshot: Snapshot, data: st.DataObject) -> None:
    if not snapshot.pending or not snapshot.nodes:
        return
    snapshot = unlimited(snapshot)
    head = min(snapshot.pending, key=rank)
    like = data.draw(st.sampled_from(snapshot.nodes))
    more = replace(like, name="more", usable=True, usable_ms=0, free_gpus=tuple(range(like.gpu.count)))
    grown = changed(snapshot, nodes=(*snapshot.nodes, more))
    assert min(head.nodes, _placed_nodes(grown, head.gang)) >= min(head.nodes, _placed_nodes(snapshot, head.gang))


@quick
@given(worlds(repairs=False), POLICIES)
def test_what_is_placed_or_promised_was_never_called_impossible(snapshot: Snapshot, policy: Policy) -> None:
    made = plan(snapshot, policy, NOW_MS)
    codes = {name: waiting.code for name, waiting in made.waits().items()}
    for each in snapshot.pending:
        if never_fits(each, snapshot) is None:
            assert codes.get(each.gang) != "never"
        else:
            assert codes[each.gang] in ("never", "quota", "order")


@quick
@given(worlds(repairs=False), st.integers(1, 100))
def test_no_victim_could_have_been_left_out(snapshot: Snapshot, above: int) -> None:
    policy = Policy(min_runtime_ms=0, cool_down_ms=0, capacity=False)
    calm = replace(policy, preempt=False, reserve_first=0)
    for each in snapshot.pending:
        alone = changed(snapshot, pending=[replace(each, priority=above, promise=None)])
        made = plan(alone, policy, NOW_MS)
        left = [(told.gang, set()) for told in made.preemptions] + [
            (told.gang, _holds(alone, told.gang) - set(told.nodes)) for told in made.resizes if told.nodes]
        if left:
            assert plan(_without(alone, dict(left)), calm, NOW_MS).placements
        for name, _ in left:
            others = {other: kept for other, kept in left if other != name}
            assert plan(_without(alone, others), calm, NOW_MS).placements == ()


@quick
@given(worlds())
def test_passes_come_to_rest_with_every_gang_placed_or_explained(snapshot: Snapshot) -> None:
    seen: list[Plan] = []
    for _ in range(8):
        made = plan(snapshot, Policy(), NOW_MS)
        assert check(snapshot, made, Policy()) == ()
        seen.append(made)
        if not (made.placements or made.capacity or made.releases or made.preemptions or made.resizes
                or made.retirements):
            return
        snapshot = commit(snapshot, made)
    raise AssertionError(f"the planner does not settle: {seen[-2:]}")


def closed(snapshot: Snapshot) -> Snapshot:
    """The world without boots, spares and quotas, in which everything that runs or will run ends."""
    return changed(
        snapshot, tenants=(), nodes=[n for n in snapshot.nodes if n.usable_ms == 0],
        pools=[replace(p, spares=0, warm=0, idle_ms=None) for p in snapshot.pools],
        pending=[replace(g, limit_ms=g.limit_ms or 90_000, promise=None) for g in snapshot.pending],
        running=[replace(r, ends_by_ms=r.ends_by_ms or NOW_MS + 45_000) for r in snapshot.running])


@quick
@given(worlds(repairs=False), st.sampled_from([1, 4]), st.booleans())
def test_with_limits_promises_hold_and_everybody_gets_a_turn(
        snapshot: Snapshot, reserve_first: int, sticky: bool) -> None:
    policy = replace(STEADY, reserve_first=reserve_first, capacity=False, sticky_ms=300_000 if sticky else 0)
    now, now_ms, promised = closed(snapshot), NOW_MS, {}
    while True:
        made = plan(now, policy, now_ms)
        assert check(now, made, policy) == ()
        for reservation in made.reservations:
            assert reservation.at_ms <= promised.get(reservation.gang, reservation.at_ms)
            promised[reservation.gang] = reservation.at_ms
        for placement in made.placements:
            assert now_ms <= promised.get(placement.gang, now_ms)
        now = commit(now, made, now_ms)
        if not now.running:
            assert {w.code for w in made.waiting} <= {"never", "unavailable"}
            return
        now_ms = min(r.ends_by_ms for r in now.running)
        now = advance(now, now_ms)


@quick
@given(worlds(repairs=False), st.sampled_from([1, 4]), st.booleans(), st.sampled_from(Order), st.sampled_from(Order))
def test_nobody_waits_longer_than_all_limits_together(
        snapshot: Snapshot, reserve_first: int, fair: bool, order: Order, backfill: Order) -> None:
    policy = Policy(reserve_first=reserve_first, fair=fair, order=order, backfill=backfill, capacity=False,
                    preempt=False)
    now, now_ms = closed(snapshot), NOW_MS
    latest_ms = max((r.ends_by_ms for r in now.running), default=NOW_MS) + sum(g.limit_ms for g in now.pending)
    while True:
        made = plan(now, policy, now_ms)
        assert not made.placements or now_ms <= latest_ms
        now = commit(now, made, now_ms)
        if not now.running:
            assert {w.code for w in made.waiting} <= {"never", "unavailable"}
            return
        now_ms = min(r.ends_by_ms for r in now.running)
        now = advance(now, now_ms)


@quick
@given(st.integers(1, 3), st.integers(1, 3), st.integers(0, 2), st.randoms(use_true_random=False))
def test_failed_members_are_replaced_by_spares_and_nobody_moves(
        spares: int, failed: int, others: int, rng: Random) -> None:
    """As many failures as there are spares, in a pool that is full otherwise."""
    failed = min(failed, spares)
    held = [f"a{i}" for i in range(4)]
    lost = rng.sample(held, failed)
    nodes = [node(name, used=8, usable=name not in lost, path=("s1", rng.choice(("l1", "l2")))) for name in held]
    nodes += [node(f"b{i}", path=("s1", rng.choice(("l1", "l2")))) for i in range(spares)]
    kept = tuple(Held(node=name, gpus=tuple(range(8))) for name in held if name not in lost)
    rest = [gang(f"o{i}", 1, priority=rng.choice((0, 1))) for i in range(others)]
    made = plan(world(pool(spares=spares), *nodes, gang("hurt", 4, rdma=True, held=kept), *rest), STEADY, NOW_MS)
    assert [p.gang for p in made.placements] == ["hurt"]
    assert {h.node for h in kept} < {m.node for m in made.placements[0].nodes}
    assert made.releases == ()




def _placed_nodes(snapshot: Snapshot, name: str) -> int:
    return sum(len(p.nodes) for p in plan(snapshot, STEADY, NOW_MS).placements if p.gang == name)


def _ends_before(waiting: PendingGang, at_ms: int | None) -> bool:
    return at_ms is not None and NOW_MS + waiting.bound_ms <= at_ms


def _serves(snapshot: Snapshot, waiting: PendingGang, n: NodeState) -> bool:
    rdma = {p.name for p in snapshot.pools if p.rdma and p.fabric}
    return (waiting.zone in (None, n.zone) and waiting.pool in (None, n.pool) and n.name not in waiting.exclude
            and (not waiting.rdma or n.pool in rdma) and (waiting.domain_size is None or n.domain is not None))


def _enough(waiting: PendingGang, n: NodeState) -> bool:
    return any(a.type == n.gpu.type and a.count <= len(n.free_gpus) for r in waiting.roles for a in r.asks)


def _spares(snapshot: Snapshot) -> set[str]:
    """The last whole nodes in service of each pool."""
    found: set[str] = set()
    for each in snapshot.pools:
        whole = [n.name for n in snapshot.nodes if n.pool == each.name and n.usable and n.whole]
        found.update(whole[max(0, len(whole) - each.spares):])
    return found


def _holds(snapshot: Snapshot, name: str) -> set[str]:
    return {held.node for run in snapshot.running if run.gang == name for held in run.holds}


def _without(snapshot: Snapshot, left: dict[str, set[str]]) -> Snapshot:
    """The world in which gangs that are ending are gone, and those named hold only the nodes they have left."""
    free = {n.name: set(n.free_gpus) for n in snapshot.nodes}
    running = []
    for run in snapshot.running:
        kept = set() if run.ending else left.get(run.gang, _holds(snapshot, run.gang))
        for held in run.holds:
            if held.node not in kept:
                free[held.node] |= set(held.gpus)
        running.append(replace(run, holds=tuple(held for held in run.holds if held.node in kept)))
    # A spare that was set aside stays one, whatever else comes free.
    spared = _spares(snapshot)
    return changed(snapshot, running=[run for run in running if run.holds],
                   pools=[replace(p, spares=0) for p in snapshot.pools],
                   nodes=[replace(n, free_gpus=tuple(sorted(free[n.name])), usable=n.usable and n.name not in spared)
                          for n in snapshot.nodes])
