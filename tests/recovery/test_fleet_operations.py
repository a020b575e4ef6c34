"""An operator's day on a running fleet: drains, sizes, a changed file, an import, and what dies meanwhile."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fleet_world import PATIENCE_S, World, fleet_world

from gangline.cli.app import run_cli
from gangline.model.node import NodeView
from gangline.model.states import GangState, NodeLifecycle

HEAD = """# Four pretended nodes.
pools:
  - {name: a, gpu: "H100:8", fabric: ib-1, zone: z1, min: 1, max: 5, emulated: true}  # room for five
nodes:
"""
FOUR = "".join(f"  - {{name: a-{i}, pool: a, path: [spine, leaf-{(i + 1) // 2}]}}\n" for i in range(1, 5))


@pytest.fixture
def fleet(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    with fleet_world(monkeypatch, HEAD + FOUR) as made:
        yield made


Gl = Callable[..., tuple[int, str, str]]


@pytest.fixture
def gl(capsys: pytest.CaptureFixture[str]) -> Gl:
    def run(*argv: str) -> tuple[int, str, str]:
        capsys.readouterr()
        status = run_cli(argv)
        said = capsys.readouterr()
        return status, said.out, said.err

    return run


def without(node: str) -> str:
    """The fleet file that does not name a node."""
    return "".join(line for line in (HEAD + FOUR).splitlines(True) if f"name: {node}," not in line)


def until(world: World, done: Callable[[dict[str, NodeView]], bool]) -> dict[str, NodeView]:
    """The nodes as soon as `done` holds for them."""
    deadline = time.monotonic() + PATIENCE_S
    while not done(nodes := {node.node: node for node in world.client.nodes()}):
        assert time.monotonic() < deadline, nodes
        time.sleep(0.05)
    return nodes


def serving(nodes: dict[str, NodeView]) -> list[str]:
    return [name for name, node in nodes.items() if node.takes_work and node.incarnation is not None]


def running(world: World, slot: str, size: int) -> tuple[str, list[str]]:
    """A gang that runs until the file `go` is there, and its nodes."""
    gang = world.start("hold", slot, size=size).gang
    view = world.until(gang, lambda v: v.state is GangState.RUNNING, "running")
    return gang, [share.node for share in view.attempts[-1].nodes]


def finish(world: World, *gangs: str) -> None:
    (world.marks / "go").touch()
    for gang in gangs:
        assert world.until_final(gang).state is GangState.SUCCEEDED
    (world.marks / "go").unlink()


def test_a_drained_node_finishes_its_gang_and_gets_nothing_new(fleet: World, gl: Gl) -> None:
    gang, on = running(fleet, "test:drain", 2)
    assert gl("fleet", "drain", on[0], "--owner", "alice", "--reason", "NIC")[0] == 0
    wide = fleet.start("hold", "test:wide", size=5).gang  # the pool adds a fifth, if that is enough
    assert fleet.until(wide, lambda v: v.wait is not None, "told why it waits").state is GangState.QUEUED
    finish(fleet, gang)
    view = fleet.until(wide, lambda v: v.wait is not None and v.wait.code == "unavailable", "short of a node")
    assert view.state is GangState.QUEUED
    assert gl("fleet", "undrain", on[0], "--owner", "alice")[0] == 0
    fleet.until(wide, lambda v: v.state is GangState.RUNNING, "running")
    finish(fleet, wide)


def test_a_pool_shrinks_and_grows_around_running_gangs(fleet: World, gl: Gl) -> None:
    first, kept = running(fleet, "test:first", 2)
    second, lost = running(fleet, "test:second", 2)
    status, out, _ = gl("fleet", "scale", "a", "2", "--json")
    assert status == 0
    assert sorted(json.loads(out)["leaving"]) == sorted(max(kept, lost)), "all of one gang, nothing of the other"
    assert sorted(serving(until(fleet, lambda nodes: len(serving(nodes)) == 2))) == sorted(min(kept, lost))
    more = fleet.start("hold", "test:more", size=1).gang
    assert fleet.until(more, lambda v: v.wait is not None, "told why it waits").state is GangState.QUEUED
    os.kill(fleet.server(), signal.SIGKILL)  # the size is remembered
    assert sorted(serving(until(fleet, lambda nodes: len(nodes) == 4))) == sorted(min(kept, lost))
    os.kill(fleet.supervisors()[max(kept, lost)[0]], signal.SIGKILL)  # what is to leave does not come back
    view = fleet.until(second, lambda v: v.attempts[0].end is not None, "hurt")
    assert view.state is not GangState.FAILED
    left = until(fleet, lambda nodes: len(nodes) < 4)
    assert fleet.client.observe(first).state is GangState.RUNNING
    fleet.client.cancel(second)
    fleet.until_final(second)
    finish(fleet, first, more)
    left = until(fleet, lambda nodes: len(nodes) == 2)
    assert sorted(left) == sorted(min(kept, lost))
    assert gl("fleet", "reload")[0] == 0
    assert len(fleet.client.nodes()) == 2, "the file alone brings nothing back"
    assert gl("fleet", "scale", "a", "5")[0] == 0
    back = until(fleet, lambda nodes: len(serving(nodes)) == 5)
    assert [back[f"a-{i}"].path for i in range(1, 5)] == [("spine", f"leaf-{(i + 1) // 2}") for i in range(1, 5)]
    whole, on = running(fleet, "test:whole", 5)
    assert len(set(on)) == 5
    finish(fleet, whole)
    assert gl("fleet", "scale", "a", "9") == (
        2, "", "error: nodes: pool a has between 1 and 5 nodes, not 9 "
               "(change min or max in the fleet file, then: gangline fleet reload)\n")


def test_an_operator_s_drain_survives_everything(fleet: World, gl: Gl) -> None:
    assert gl("fleet", "drain", "a-2", "--owner", "alice", "--reason", "disk")[0] == 0
    gang, on = running(fleet, "test:survive", 3)
    assert "a-2" not in on

    def still(what: str) -> None:
        drain = until(fleet, lambda nodes: "a-2" in nodes)["a-2"].drain
        assert drain is not None, what
        assert (drain.owner, drain.reason) == ("alice", "disk"), what

    old = fleet.client.nodes()[1].incarnation
    os.kill(fleet.supervisors()["a-2"], signal.SIGKILL)
    until(fleet, lambda nodes: nodes["a-2"].incarnation not in (None, old) and nodes["a-2"].healthy)
    still("its supervisor died and came back")
    os.kill(fleet.server(), signal.SIGKILL)
    still("the server died and came back")
    assert gl("fleet", "reload")[0] == 0
    still("a reload")
    for size in ("1", "5", "auto"):
        assert gl("fleet", "scale", "a", size)[0] == 0
        still(f"scale {size}")
    (fleet.home / "fleet.yaml").write_text(without("a-2"))
    assert gl("fleet", "reload")[0] == 0
    until(fleet, lambda nodes: "a-2" not in nodes)
    (fleet.home / "fleet.yaml").write_text(HEAD + FOUR)
    assert gl("fleet", "reload")[0] == 0
    still("dropped from the file and named again")
    assert gl("fleet", "undrain", "a-2", "--owner", "bob")[0] == 2
    still("somebody else's undrain")
    os.kill(fleet.supervisors()[on[0]], signal.SIGKILL)  # the gang is repaired, and not on a-2
    view = fleet.until(gang, lambda v: len(v.attempts) == 2 and v.state is GangState.RUNNING, "repaired")
    assert "a-2" not in {share.node for share in view.attempts[1].nodes}
    still("a repair")
    finish(fleet, gang)


def test_a_busy_node_dropped_from_the_file_leaves_after_its_gang_and_may_come_back(fleet: World, gl: Gl) -> None:
    file = fleet.home / "fleet.yaml"
    gang, on = running(fleet, "test:drop", 2)
    gone = on[0]
    file.write_text(without(gone))
    status, out, err = gl("fleet", "reload", "--dry-run")
    assert (status, out, err) == (0, f"- 1 leaving when idle: {gone}\n", f"{file} would be followed\n")
    assert all(node.drain is None for node in fleet.client.nodes())
    os.kill(fleet.server(), signal.SIGHUP)
    nodes = until(fleet, lambda nodes: nodes[gone].drain is not None)
    assert nodes[gone].drain is not None
    assert nodes[gone].drain.reason == "no longer in the fleet file"
    assert fleet.client.observe(gang).state is GangState.RUNNING
    finish(fleet, gang)
    until(fleet, lambda nodes: gone not in nodes)
    whole = file.read_text()
    file.write_text(HEAD.replace("max: 5", "max: 2") + FOUR)
    status, out, err = gl("fleet", "reload")
    assert (status, out) == (2, "")
    assert err == f"error: {file}: pool a declares 4 nodes, more than its max of 2\n"
    assert file.read_text() != whole
    assert gone not in {node.node for node in fleet.client.nodes()}, "a file with a fault changes nothing"
    file.write_text(HEAD + FOUR)
    assert gl("fleet", "reload")[1] == f"+ 1 added: {gone}\n"
    until(fleet, lambda nodes: len(serving(nodes)) == 4)
    again, _ = running(fleet, "test:again", 4)
    finish(fleet, again)
    file.write_text(without("a-1"))
    os.kill(fleet.server(), signal.SIGKILL)  # between the file and the reload: the next server follows it
    until(fleet, lambda nodes: "a-1" not in nodes)


def test_an_import_is_followed_at_once_or_not_written(fleet: World, gl: Gl, tmp_path: Path) -> None:
    file = fleet.home / "fleet.yaml"
    conf = tmp_path / "topology.conf"
    conf.write_text("SwitchName=top Switches=l[1-2]\nSwitchName=l1 Nodes=a-[1-3]\nSwitchName=l2 Nodes=a-4,b1\n")
    before = file.read_text()
    status, _, err = gl("fleet", "import", str(conf), "--pool", "new", "--gpu", "H100:8")
    assert status == 2
    assert err.startswith("error: node_url: the nodes of pool new must reach this server over the network")
    assert file.read_text() == before, "the server was asked first"
    status, out, err = gl("fleet", "import", str(conf), "--pool", "new", "--gpu", "H100:8", "--emulated")
    assert status == 0, err
    assert err == f"wrote {file}; the running server follows it\n"
    assert "+ b1  pool new  top/l2" in out
    assert "# room for five" in file.read_text()
    nodes = until(fleet, lambda nodes: len(serving(nodes)) == 5)
    assert {name: node.path[-1] for name, node in nodes.items()} == {
        "a-1": "l1", "a-2": "l1", "a-3": "l1", "a-4": "l2", "b1": "l2"}
    assert nodes["b1"].lifecycle is NodeLifecycle.READY
    other = tmp_path / "other.yaml"
    other.write_text(HEAD.replace("nodes:\n", ""))
    assert "so it was not told" in gl("fleet", "import", str(conf), "--fleet", str(other))[2]
