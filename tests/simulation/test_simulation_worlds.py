"""Fleets to replay on: from fleet files, thought up beside them, and from lists of hosts and switches."""

from __future__ import annotations

from pathlib import Path

import pytest
from replays import fleet, job, run

from gangline.model.errors import Rejected
from gangline.model.fleet import Fleet
from gangline.model.gpu import GpuAsk
from gangline.simulation.metrics import metrics
from gangline.simulation.world import read_topology, resized, single_pool, world_of

DECLARED = Fleet.parse({
    "pools": [{"name": "a", "gpu": "H100:8", "min": 3, "max": 6, "boot": "2m", "idle": "1h", "spares": 1},
              {"name": "b", "gpu": "cpu", "min": 1}],
    "nodes": [{"name": "a1", "pool": "a", "path": ["s1", "l1"]}, {"name": "a2", "pool": "a", "path": ["s1", "l1"]},
              {"name": "a3", "pool": "a", "path": ["s1", "l2"], "state": "draining"},
              {"name": "a4", "pool": "a", "path": ["s1", "l2"], "state": "booting"},
              {"name": "a5", "pool": "a", "state": "gone"}],
    "tenants": [{"name": "t", "weight": 2, "quota": {"H100": 8}}]})


def test_a_fleet_file_as_a_world() -> None:
    world = world_of(DECLARED)
    assert {node.name: (node.usable, node.usable_ms) for node in world.nodes} == {
        "a1": (True, 0), "a2": (True, 0), "a3": (False, 0), "a4": (False, 120_000), "b-1": (True, 0)}
    pool = world.pools[0]
    assert (pool.nodes, pool.most, pool.least, pool.idle_ms, pool.spares) == (4, 6, 3, 3_600_000, 1)
    assert (world.tenants[0].weight, world.tenants[0].quota) == (2, (("H100", 8),))
    assert world.whole_asks() == (GpuAsk("H100", 8),)  # jobs of a GPU trace do not run on processors


def test_a_pool_thought_up_smaller_or_larger() -> None:
    assert [node.name for node in resized(DECLARED, {"a": 2}).all_nodes()] == ["a1", "a2", "b-1"]
    more = resized(DECLARED, {"a": 8})
    assert [(node.name, node.path) for node in more.nodes[5:]] == [
        ("a-more-1", ()), ("a-more-2", ()), ("a-more-3", ())]  # the last declared node hangs nowhere
    placed = Fleet.parse({**DECLARED.wire(), "nodes": [node.wire() for node in DECLARED.nodes[:4]]})
    assert [(node.name, node.path) for node in resized(placed, {"a": 7}).nodes[4:]] == [
        ("a-more-1", ("s1", "a-more-leaf-1")), ("a-more-2", ("s1", "a-more-leaf-1")),
        ("a-more-3", ("s1", "a-more-leaf-2"))]
    assert resized(fleet(4), {"p": 6}).pools[0].min == 6
    with pytest.raises(Rejected, match="has no pool 'c'"):
        resized(DECLARED, {"c": 1})


def test_hosts_and_switches(tmp_path: Path) -> None:
    path = tmp_path / "topo.csv"
    path.write_text("ip,DSW,PSW,ASW\nh1,G1,P1,S1\nh2,G1,P1,S1\nh3,G1,P1,S2\nh4,G1,P2,S1\n")
    world = read_topology(path, GpuAsk("H800", 8))
    assert [(node.name, node.path) for node in world.nodes] == [
        ("h1", ("G1", "P1", "S1")), ("h2", ("G1", "P1", "S1")), ("h3", ("G1", "P1", "S2")), ("h4", ("G1", "P2", "S1"))]
    # Two nodes fit one leaf and get it; three take two leaves at best; two more are then left on two leaves.
    tight = metrics(run([job(0, 2, 10)], "submit-order", world))
    assert tight["leaves_over_minimum"] == 1.0
    both = metrics(run([job(0, 1, 100), job(1, 1, 100), job(2, 2, 10)], "submit-order", world))
    assert both["leaves_over_minimum"] == 1.0  # singles keep away from the leaf that holds two
    loose = metrics(run([job(0, 2, 100), job(1, 2, 10)], "submit-order", world))
    assert loose["leaves_over_minimum"] == 1.5


@pytest.mark.parametrize(("text", "message"), [
    ("ip,DSW,PSW\n", "has no column ASW"),
    ("ip,DSW,PSW,ASW\n", "holds no host"),
    ("ip,DSW,PSW,ASW\nh1,G,P,\n", "line 2: leaves a host or a switch without a name"),
    ("ip,DSW,PSW,ASW\nh1,G,P,S\nh1,G,P,S\n", "line 3: host h1 is there twice"),
])
def test_a_wrong_list_of_hosts(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "topo.csv"
    path.write_text(text)
    with pytest.raises(Rejected, match=message):
        read_topology(path, GpuAsk("H800", 8))


def test_a_fleet_of_one_pool() -> None:
    world = single_pool(3, GpuAsk("A100", 8))
    assert (world.node_count, world.gpus_per_node) == (3, 8)
