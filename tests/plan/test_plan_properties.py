"""The promises of a pass over random worlds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from plan_worlds import NOW_MS, POLICIES, advance, commit, worlds

from gangline.plan.check import check
from gangline.plan.outcome import Plan
from gangline.plan.planner import never_fits, plan, queue_order
from gangline.plan.snapshot import NodeState, PendingGang, Policy, Snapshot

quick = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@quick
@given(worlds(), POLICIES)
def test_no_plan_breaks_a_promise_that_the_checker_knows(snapshot: Snapshot, policy: Policy) -> None:
    assert check(snapshot, plan(snapshot, policy, NOW_MS)) == ()


@quick
@given(worlds(), POLICIES, st.randoms(use_true_random=False))
def test_the_order_of_the_input_changes_nothing(snapshot: Snapshot, policy: Policy, rng: object) -> None:
    def shuffled(items: tuple[object, ...]) -> tuple[object, ...]:
        copy = list(items)
        rng.shuffle(copy)
        return tuple(copy)

    other = Snapshot(version=snapshot.version, nodes=shuffled(snapshot.nodes), pools=shuffled(snapshot.pools),
                     pending=shuffled(snapshot.pending), running=shuffled(snapshot.running))
    assert plan(other, policy, NOW_MS) == plan(snapshot, policy, NOW_MS)


@quick
@given(worlds(repairs=False), POLICIES)
def test_a_committed_plan_leaves_nothing_to_do(snapshot: Snapshot, policy: Policy) -> None:
    first = plan(snapshot, policy, NOW_MS)
    second = plan(commit(snapshot, first), policy, NOW_MS)
    assert (second.placements, second.capacity, second.releases) == ((), (), ())


@quick
@given(worlds(repairs=False), POLICIES)
def test_a_promised_time_does_not_move_later_by_what_the_plan_itself_starts(
        snapshot: Snapshot, policy: Policy) -> None:
    first = plan(snapshot, policy, NOW_MS)
    second = plan(commit(snapshot, first), policy, NOW_MS)
    later = {r.gang: r.at_ms for r in second.reservations}
    for reservation in first.reservations:
        if reservation.at_ms is not None:
            assert later[reservation.gang] is not None
            assert later[reservation.gang] <= reservation.at_ms


@quick
@given(worlds(repairs=False), POLICIES)
def test_a_single_that_fits_and_disturbs_no_reservation_is_started(
        snapshot: Snapshot, policy: Policy) -> None:
    made = plan(snapshot, policy, NOW_MS)
    after = commit(snapshot, replace(made, capacity=()))
    for gang in after.pending:
        if gang.nodes > 1:
            continue
        kept = {name for r in made.reservations if r.gang != gang.gang and not _ends_before(gang, r.at_ms)
                for name in r.nodes}
        fitting = [n.name for n in after.nodes if n.usable and _serves(snapshot, gang, n)
                   and n.name not in kept and any(_enough(gang, n))]
        assert fitting == []


@quick
@given(worlds(repairs=False))
def test_the_first_gang_is_placed_in_the_smallest_subtree_that_fits(snapshot: Snapshot) -> None:
    if not snapshot.pending:
        return
    head = min(snapshot.pending, key=queue_order)
    made = plan(snapshot, Policy(), NOW_MS)
    placed = {p.gang: p for p in made.placements}.get(head.gang)
    if head.nodes == 1:
        return
    smallest = next((level for level, _ in enumerate(_SUBTREES) if _fits_within(snapshot, head, level)), None)
    if placed is None:
        assert smallest is None or smallest > _widest(head)
        return
    by_name = {n.name: n for n in snapshot.nodes}
    nodes = [by_name[m.node] for m in placed.nodes]
    used = next(level for level, key in enumerate(_SUBTREES) if len({key(n) for n in nodes}) == 1)
    asks = tuple(next(m.ask for m in placed.nodes if m.role == role.name) for role in head.roles)
    same = replace(head, roles=tuple(replace(r, asks=(a,)) for r, a in zip(head.roles, asks, strict=True)))
    alike = replace(snapshot, nodes=tuple(n for n in snapshot.nodes if n.emulated is nodes[0].emulated))
    assert not any(_fits_within(alike, same, level) for level in range(used))


@quick
@given(worlds(repairs=False), st.data())
def test_one_more_healthy_node_never_hurts_the_first_gang(snapshot: Snapshot, data: st.DataObject) -> None:
    if not snapshot.pending or not snapshot.nodes:
        return
    head = min(snapshot.pending, key=queue_order).gang
    like = data.draw(st.sampled_from(snapshot.nodes))
    more = replace(like, name="more", usable=True, usable_ms=0, gone=False,
                   free_gpus=tuple(range(like.gpu.count)))
    grown = replace(snapshot, nodes=(*snapshot.nodes, more))
    assert _placed_nodes(grown, head) >= _placed_nodes(snapshot, head)


@quick
@given(worlds(repairs=False), POLICIES)
def test_what_is_placed_or_promised_was_never_called_impossible(snapshot: Snapshot, policy: Policy) -> None:
    made = plan(snapshot, policy, NOW_MS)
    impossible = {g.gang for g in snapshot.pending if never_fits(g, snapshot) is not None}
    assert impossible == {w.gang for w in made.waiting if w.code == "never"}


@settings(max_examples=100, deadline=None)
@given(worlds())
def test_passes_come_to_rest_with_every_gang_placed_or_explained(snapshot: Snapshot) -> None:
    seen: list[Plan] = []
    for _ in range(6):
        made = plan(snapshot, Policy(), NOW_MS)
        assert check(snapshot, made) == ()
        seen.append(made)
        if not (made.placements or made.capacity or made.releases):
            return
        snapshot = commit(snapshot, made)
    raise AssertionError(f"the planner does not settle: {seen[-2:]}")


@quick
@given(worlds(repairs=False), st.sampled_from([1, 4]))
def test_with_limits_promises_hold_and_everybody_gets_a_turn(snapshot: Snapshot, reserve_first: int) -> None:
    policy = Policy(reserve_first=reserve_first, capacity=False)
    world = replace(
        snapshot, nodes=tuple(n for n in snapshot.nodes if n.usable_ms == 0),
        pending=tuple(replace(g, limit_ms=g.limit_ms or 90_000) for g in snapshot.pending),
        running=tuple(replace(r, ends_by_ms=r.ends_by_ms or NOW_MS + 45_000) for r in snapshot.running))
    now_ms, promised = NOW_MS, {}
    while True:
        made = plan(world, policy, now_ms)
        assert check(world, made) == ()
        for reservation in made.reservations:
            assert reservation.at_ms <= promised.get(reservation.gang, reservation.at_ms)
            promised[reservation.gang] = reservation.at_ms
        for placement in made.placements:
            assert now_ms <= promised.get(placement.gang, now_ms)
        world = commit(world, made, now_ms)
        if not world.running:
            assert {w.code for w in made.waiting} <= {"never", "unavailable"}
            return
        now_ms = min(r.ends_by_ms for r in world.running)
        world = advance(world, now_ms)


def _placed_nodes(snapshot: Snapshot, gang: str) -> int:
    return sum(len(p.nodes) for p in plan(snapshot, Policy(), NOW_MS).placements if p.gang == gang)


def _ends_before(gang: PendingGang, at_ms: int | None) -> bool:
    return gang.limit_ms is not None and at_ms is not None and NOW_MS + gang.limit_ms <= at_ms


def _serves(snapshot: Snapshot, gang: PendingGang, node: NodeState) -> bool:
    rdma = {p.name for p in snapshot.pools if p.rdma and p.fabric}
    return (gang.zone in (None, node.zone) and gang.pool in (None, node.pool) and not node.gone
            and node.name not in gang.exclude and (not gang.rdma or node.pool in rdma))


def _enough(gang: PendingGang, node: NodeState) -> list[bool]:
    return [a.type == node.gpu.type and a.count <= len(node.free_gpus) for r in gang.roles for a in r.asks]


# The subtrees in the words of the design; a test oracle of its own.
_SUBTREES: tuple[Callable[[NodeState], object], ...] = (
    lambda n: (n.emulated, n.zone, n.fabric, n.path) if n.path else n.name,
    lambda n: (n.emulated, n.zone, n.fabric, n.path[:-1] or n.path) if n.path else n.name,
    lambda n: (n.emulated, n.zone, n.fabric) if n.fabric else _SUBTREES[1](n),
    lambda n: (n.emulated, n.zone),
    lambda n: n.emulated,
)


def _widest(gang: PendingGang) -> int:
    within = {"leaf": 0, "spine": 1, "fabric": 2, None: 4}[gang.within]
    return min(within, 2) if gang.rdma else within


def _fits_within(snapshot: Snapshot, gang: PendingGang, level: int) -> bool:
    """Whether some subtree of the level has free whole nodes for every role, by search."""
    groups: dict[object, list[NodeState]] = {}
    for node in snapshot.nodes:
        if node.usable and node.whole and _serves(snapshot, gang, node):
            groups.setdefault(_SUBTREES[level](node), []).append(node)
    return any(_fill(gang, 0, nodes) for nodes in groups.values())


def _fill(gang: PendingGang, at: int, nodes: list[NodeState]) -> bool:
    if at == len(gang.roles):
        return True
    role = gang.roles[at]
    for ask in role.asks:
        # Any `size` of equals are as good as any other; only the node's own size makes a difference.
        fitting = sorted((n for n in nodes if n.gpu.type == ask.type and n.gpu.count >= ask.count),
                         key=lambda n: n.gpu.count)
        for first in range(len(fitting) - role.size + 1):
            chosen = fitting[first:first + role.size]
            if _fill(gang, at + 1, [n for n in nodes if n not in chosen]):
                return True
    return False
