"""Committing plans, fresh and stale."""

from __future__ import annotations

from service_world import World, greedy, spec

from gangline.model.fleet import Fleet
from gangline.model.gpu import GpuAsk
from gangline.model.states import GangState
from gangline.plan.outcome import NodeChoice, Placement, Plan, Release
from gangline.service import feasible, loop, nodes, submit, views
from gangline.service import fleet as fleet_service


def choice(node: str, gpus: tuple[int, ...] = (0, 1), ask: str = "H100", count: int = 2) -> NodeChoice:
    return NodeChoice(node=node, gpus=gpus, ask=GpuAsk(ask, count))


def placement(gang: str, *choices: NodeChoice) -> Plan:
    return Plan(base=0, placements=(Placement(gang=gang, nodes=choices, zone="z", fabric="ib"),))


def commit(world: World, plan: Plan) -> loop.Committed:
    return loop.commit_plan(world.store, plan, now_ms=world.now_ms)


def test_a_stale_plan_places_only_what_still_holds(world: World) -> None:
    first, second = world.submit("a"), world.submit("b")
    stale = greedy(loop.snapshot(world.store, world.fleet, now_ms=world.now_ms))
    broken = stale.placements[0].nodes[1].node
    nodes.drain(world.store, broken, "me", "", now_ms=world.now_ms)
    done = commit(world, stale)
    assert done.accepted == (second,)
    assert [gang for gang, _ in done.refused] == [first]
    assert not done
    assert world.view(first).state == GangState.QUEUED
    with world.store.transaction() as tx:
        assert tx.leases.open_of(first) == ()


def test_a_plan_is_committed_once(world: World) -> None:
    gang = world.submit()
    plan = greedy(loop.snapshot(world.store, world.fleet, now_ms=world.now_ms))
    assert commit(world, plan)
    assert commit(world, plan).refused == ((gang, "it does not wait any more"),)


def test_two_placements_never_share_a_gpu(world: World) -> None:
    first, second = world.submit("a", size=1), world.submit("b", size=1)
    plan = Plan(base=0, placements=(
        *placement(first, choice("p-1")).placements, *placement(second, choice("p-1")).placements))
    done = commit(world, plan)
    assert done.accepted == (first,)
    assert "p-1 is held by" in done.refused[0][1]


def test_fractions_of_a_node_go_to_several_gangs(world: World) -> None:
    first = world.submit("a", size=1, gpu="H100:1")
    second = world.submit("b", size=1, gpu="H100:1")
    assert commit(world, placement(first, choice("p-1", (0,), count=1)))
    assert commit(world, placement(second, choice("p-1", (1,), count=1)))
    view = views.nodes(world.store)[0]
    assert view.free_gpus == ()
    assert view.gangs == tuple(sorted((first, second)))


def test_a_placement_of_the_wrong_shape_is_refused(world: World) -> None:
    gang = world.submit()
    for bad in (
        (choice("p-1"),),
        (choice("p-1"), choice("p-1")),
        (choice("p-1"), choice("p-2", (0,))),
        (choice("p-1"), choice("p-2", (0, 7))),
        (choice("p-1"), choice("p-2", ask="B300")),
        (choice("p-1"), choice("p-9")),
        (choice("p-1"), choice("p-2")._replace(role="trainer")),
    ):
        assert not commit(world, placement(gang, *bad))
    assert world.view(gang).state == GangState.QUEUED


def test_a_cancelled_gang_is_not_placed(world: World) -> None:
    gang = world.submit()
    plan = greedy(loop.snapshot(world.store, world.fleet, now_ms=world.now_ms))
    submit.cancel(world.store, gang, None, "no", now_ms=world.now_ms)
    assert commit(world, plan).accepted == ()


def test_a_gang_in_repair_gives_back_what_the_plan_releases(world: World) -> None:
    gang = world.submit(retries={"user": 1})
    world.run(gang)
    world.fail(gang)
    held = [share.node for share in world.view(gang).attempts[0].nodes]
    commit(world, Plan(base=0, releases=(Release(gang=gang, nodes=(held[0],)),)))
    with world.store.transaction() as tx:
        assert [lease.node for lease in tx.leases.open_of(gang)] == held[1:]


def test_held_leases_the_plan_does_not_use_are_closed(world: World) -> None:
    gang = world.submit(retries={"user": 1})
    world.run(gang)
    world.fail(gang)
    old = {share.node for share in world.view(gang).attempts[0].nodes}
    others = [node.node for node in views.nodes(world.store) if node.node not in old]
    assert commit(world, placement(gang, *(choice(node) for node in others)))
    with world.store.transaction() as tx:
        assert {lease.node for lease in tx.leases.open_of(gang)} == set(others)


def test_rdma_on_emulated_nodes_is_requested_and_not_proved(world: World) -> None:
    gang = world.submit(rdma=True)
    world.plan()
    proof = world.view(gang).attempts[0].rdma
    assert (proof.requested, proof.proved, proof.emulated) == (True, False, True)


def test_rdma_on_real_nodes_is_refused_at_once_and_not_waited_for_in_vain(world: World) -> None:
    real = Fleet.parse({"pools": [{"name": "real", "gpu": "H100:8", "fabric": "ib", "min": 4,
                                   "rdma": {"kind": "infiniband", "gbps": 400}}]})
    fleet_service.sync_fleet(world.store, real, now_ms=world.now_ms)
    refusal = feasible.judge(lambda: loop.snapshot(world.store, real, now_ms=world.now_ms), real)
    wrong = refusal(spec(gpu="H100:8", rdma=True))
    assert wrong is not None
    assert str(wrong) == "rdma: rdma cannot be proved on real nodes yet (leave it out)"
    assert refusal(spec(gpu="H100:8")) is None


def test_listeners_hear_of_gangs_and_nodes_after_the_commit(world: World) -> None:
    told: list[tuple[set[str], set[str]]] = []
    world.store.on_commit.append(lambda gangs, nodes: told.append((gangs, nodes)))
    gang = world.submit()
    world.plan()
    assert told[0] == ({gang}, set())
    assert told[1] == ({gang}, {"p-1", "p-2"})
