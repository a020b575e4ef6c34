"""What the Ray engine makes of Ray's tables and what it would ask Ray for, without a Ray."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gangline.engines.base import Job, JobNode, JobStatus, NodeStatus, job_name
from gangline.engines.ray.cluster import bundle_of
from gangline.engines.ray.endings import Ending, Endings
from gangline.engines.ray.engine import RayEngine
from gangline.engines.ray.sight import seen_job, seen_node
from gangline.engines.ray.tables import named_nodes
from gangline.engines.ray.wire import BundleAsk, JobFacts, NodeFacts
from gangline.engines.supervision import Supervision
from gangline.model.errors import Rejected
from gangline.model.fleet import Pool

TOTAL = {"GPU": 8.0, "CPU": 96.0, "rdma": 8.0}


def pool(name: str = "ray", gpu: str = "H100:8", **ray: Any) -> Pool:
    return Pool.model_validate({"name": name, "engine": "ray", "gpu": gpu, "ray": {"address": "127.0.0.1:6379", **ray}})


def engine(home: Path, *pools: Pool) -> RayEngine:
    return RayEngine(pools or (pool(),), Supervision(server_url="http://10.0.0.1:7077"), home, "00c0ffee")


def facts(**changes: Any) -> NodeFacts:
    node = NodeFacts(name="n1", id="a" * 56, address="10.0.0.11", alive=True, head=False, draining=False, death="",
                     labels={}, total=TOTAL, foreign={}, holders=[])
    node.update(changes)  # type: ignore[typeddict-item]
    return node


def job(*nodes: JobNode, pool: str = "ray", title: str = "sft") -> Job:
    return Job(name=job_name("00c0ffee", "g-abc", 2), gang="g-abc", attempt=2, pool=pool, slot="daily/train",
               tenant="research", title=title, nodes=nodes or (JobNode(node="n1", gpus=8, whole=True),))


# -- nodes -------------------------------------------------------------------------------------------


def test_a_node_is_in_the_first_pool_whose_labels_it_carries() -> None:
    pools = [pool("fast", labels={"net": "ib", "rack": "r1"}), pool("slow", labels={"net": "eth"}), pool("rest")]

    def where(**labels: str) -> str:
        node = seen_node(facts(labels=labels), pools)
        assert node is not None
        return node.pool

    assert (where(net="ib", rack="r1"), where(net="ib"), where(net="eth")) == ("fast", "rest", "slow")
    assert seen_node(facts(labels={"net": "ib"}), pools[:2]) is None


def test_a_head_without_gpus_is_no_node_of_a_pool_with_gpus() -> None:
    head = facts(head=True, total={"CPU": 4.0})
    assert seen_node(head, [pool()]) is None
    cpu = seen_node(head, [pool(gpu="cpu:4")])
    assert cpu is not None
    assert (cpu.gpu_type, cpu.gpu_count) == ("cpu", 4)


def test_labels_say_where_a_node_is_and_what_it_has() -> None:
    node = seen_node(facts(labels={
        "gangline/leaf": "leaf3", "gangline/core": "c1", "gangline/spine": "s2", "ray.io/availability-zone": "eu-1a",
        "gangline/fabric": "ib-1", "ray.io/gpu-domain": "nvl-7", "ray.io/accelerator-type": "H100"}), [pool()])
    assert node is not None
    assert node.path == ("c1", "s2", "leaf3")
    assert (node.zone, node.fabric, node.domain, node.gpu_type) == ("eu-1a", "ib-1", "nvl-7", "H100")


@pytest.mark.parametrize(("changes", "status"), [
    ({}, NodeStatus.READY), ({"draining": True}, NodeStatus.DRAINED), ({"alive": False}, NodeStatus.DOWN)])
def test_what_a_node_is_like(changes: dict[str, Any], status: NodeStatus) -> None:
    node = seen_node(facts(**changes), [pool()])
    assert node is not None
    assert node.status is status


@pytest.mark.parametrize(("foreign", "gpus"), [
    ({}, 0), ({"GPU": 2.0, "CPU": 9.0}, 2), ({"GPU": 0.25}, 1), ({"CPU": 1.0}, 1), ({"GPU": 7.5}, 8)])
def test_whatever_others_hold_counts_as_at_least_one_gpu(foreign: dict[str, float], gpus: int) -> None:
    node = seen_node(facts(foreign=foreign), [pool()])
    assert node is not None
    assert node.foreign_gpus == gpus


def row(name: str, alive: bool = True, *, id_: str = "", reason: int = 0, **labels: str) -> dict[str, Any]:
    return {"NodeID": (id_ or name[:1]) * 56, "NodeName": name, "Alive": alive, "NodeManagerAddress": "10.0.0.1",
            "DeathReason": reason, "Labels": {key.replace("_", "/"): value for key, value in labels.items()}}


def test_nodes_go_by_their_label_or_their_name_and_else_by_rays_id() -> None:
    named = named_nodes([row("n1"), row("x", gangline_node="n2"), row("what a name"), row("twin", id_="c"),
                         row("twin", id_="d")])
    assert set(named) == {"n1", "n2", "ray-" + "w" * 16, "ray-" + "c" * 16, "ray-" + "d" * 16}


def test_a_dead_node_gives_way_and_one_taken_away_on_purpose_is_not_there() -> None:
    named = named_nodes([row("n1", id_="b"), row("n1", False, id_="a"), row("n2", False), row("n3", False, reason=1),
                         row("n4", False, reason=4), row("n5", False, reason=2), row("n6", False, reason=99)])
    assert {name: node["Alive"] for name, node in named.items()} == {
        "n1": True, "n2": False, "n5": False, "n6": False}


# -- jobs --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("state", "status"), [
    ("PENDING", JobStatus.WAITING), ("CREATED", JobStatus.RUNNING), ("RESCHEDULING", JobStatus.RUNNING),
    ("REMOVED", JobStatus.ENDED), ("INVENTED_IN_RAY_9", JobStatus.UNKNOWN)])
def test_what_has_become_of_a_job(state: str, status: JobStatus) -> None:
    seen = seen_job(JobFacts(name="j", id="1f", state=state, nodes=["n1"], text=""))
    assert seen.status is status


def ask(**changes: Any) -> BundleAsk:
    return BundleAsk(**{"node": "n1", "unit": "GPU", "counted": 2, "whole": False, "extra": {}, **changes})


def test_a_whole_node_is_all_that_others_could_be_given() -> None:
    assert bundle_of(ask(counted=8, whole=True, extra={"rdma": 1.0}), TOTAL) == {"GPU": 8, "CPU": 96, "rdma": 1}
    assert bundle_of(ask(unit="CPU", counted=4, whole=True), {"CPU": 96.0}) == {"CPU": 96}


def test_processors_go_along_with_gpus() -> None:
    assert bundle_of(ask(counted=2), TOTAL) == {"GPU": 2, "CPU": 24}
    assert bundle_of(ask(counted=1), {"GPU": 8.0, "CPU": 4.0}) == {"GPU": 1}
    assert bundle_of(ask(unit="CPU", counted=3), {"CPU": 8.0}) == {"CPU": 3}


@pytest.mark.parametrize("changes", [{"counted": 9}, {"extra": {"rdma": 9.0}}, {"extra": {"tape": 1.0}}])
def test_more_than_a_node_ever_has_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(Rejected, match="node n1 has"):
        bundle_of(ask(**changes), TOTAL)


def test_what_is_asked_for_holds_nothing_that_users_wrote(tmp_path: Path) -> None:
    request = engine(tmp_path).prepare(job(title="$(reboot)\n"))
    assert "reboot" not in request.text + json.dumps(request.body)


@pytest.mark.parametrize("wrong", [
    job(pool="another"), job(JobNode(node="n1", gpus=0, whole=True)),
    job(JobNode(node="n1", gpus=8, whole=True), JobNode(node="n1", gpus=8, whole=True))])
def test_a_job_that_could_never_be_asked_for_is_refused(tmp_path: Path, wrong: Job) -> None:
    with pytest.raises(Rejected):
        engine(tmp_path).prepare(wrong)


def test_what_ray_cannot_do_is_refused(tmp_path: Path) -> None:
    mine = engine(tmp_path)
    for wish in (lambda: mine.drain("n1", "ecc"), lambda: mine.reboot("n1")):
        with pytest.raises(Rejected, match="Ray cannot"):
            wish()
    mine.resume("n1")


# -- the way in --------------------------------------------------------------------------------------


@pytest.mark.parametrize("address", ["10.0.0.1", "10.0.0.1:", ":6379", "ray://10.0.0.1:10001", "auto"])
def test_an_address_is_a_host_and_a_port(tmp_path: Path, address: str) -> None:
    with pytest.raises(Rejected, match="HOST:PORT"):
        engine(tmp_path, pool(address=address, token_file="/etc/ray/token"))


@pytest.mark.parametrize("address", ["10.0.0.1:6379", "head.example:6379", "localhost.example:6379"])
def test_a_head_that_others_reach_needs_a_token(tmp_path: Path, address: str) -> None:
    with pytest.raises(Rejected, match="RAY_AUTH_MODE=token"):
        engine(tmp_path, pool(address=address))
    engine(tmp_path, pool(address=address, token_file="/etc/ray/token"))


def test_nothing_of_ray_is_imported_where_the_engine_is() -> None:
    code = ("import sys, gangline.engines.ray.engine, gangline.engines.ray.envoy, gangline.engines.ray.cluster; "
            "sys.exit('ray' in sys.modules)")
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# -- what is remembered ------------------------------------------------------------------------------


def test_the_latest_ends_are_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gangline.engines.ray.endings._KEPT", 2)
    endings = Endings(tmp_path / "jobs")
    for number in range(5):
        endings.put(f"j{number}", Ending(id=str(number), nodes=["n1"], text="", log="größe\n"))
    assert [endings.get(f"j{number}") is not None for number in range(5)] == [False, False, False, True, True]
    assert endings.get("j4") == Ending(id="4", nodes=["n1"], text="", log="größe\n")
    (tmp_path / "jobs" / "j4.json").write_text("{half")
    assert endings.get("j4") is None
