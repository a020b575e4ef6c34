"""The engine on the toy cluster where the conformance suite does not look: crashes, rights, states, other clients."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hub import Hub
from kube_rig import NODE_NAMES, KubeRig, shipped_rights
from kube_toy.rights import Act
from kube_toy.serving import Ask
from kube_toy.store import GROUPS, JOBS, JOBSETS, NODES, PODS, SECRETS, SERVICES, Kind, Problem
from rig import Run, ask, look, until

from gangline.engines.base import JobStatus, NodeStatus
from gangline.engines.kubernetes import names
from gangline.model.errors import GanglineError, NotFound, Rejected, Unavailable

pytestmark = pytest.mark.slow

OWNED = (SECRETS, SERVICES, GROUPS)


@pytest.fixture(scope="module")
def hub() -> Iterator[Hub]:
    hub = Hub()
    yield hub
    hub.close()


@pytest.fixture
def program(tmp_path: Path) -> str:
    """What stands in for the supervisor: it says hello in its log and stays."""
    path = tmp_path / "supervisor"
    path.write_text("#!/bin/sh\necho welcomed\nexec sleep 1000\n")
    path.chmod(0o755)
    return str(path)


@pytest.fixture
def make(tmp_path: Path, hub: Hub, program: str) -> Iterator[Callable[..., KubeRig]]:
    made: list[KubeRig] = []

    def new(**settings: Any) -> KubeRig:
        made.append(KubeRig(tmp_path, hub, **{"python": program, **settings}))
        return made[-1]
    yield new
    for rig in made:
        rig.close()


@pytest.fixture
def rig(make: Callable[..., KubeRig]) -> KubeRig:
    return make()


def refuse(rig: KubeRig, verb: str, kind: Kind, problem: Problem) -> None:
    def matches(ask: Ask) -> bool:
        return ask.verb == verb and ask.kind is kind
    rig.toy.api.faults.refusals.append((matches, problem))


def running(run: Run, rig: KubeRig) -> None:
    until(lambda: len(_pods(rig, "Running")) == len(run.job.nodes), "its pods to run", lambda: _pods(rig))


def _pods(rig: KubeRig, phase: str | None = None) -> list[dict[str, Any]]:
    return [pod for pod in rig.toy.store.list(PODS, "gangline") if phase in (None, pod["status"].get("phase"))]


def nothing_left(rig: KubeRig) -> bool:
    return not any(rig.toy.store.list(kind, "gangline") for kind in (JOBS, JOBSETS, PODS, *OWNED))


# -- crashes -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("verb", "kind"), [("create", SECRETS), ("create", SERVICES), ("create", GROUPS),
                                            ("patch", JOBS)])
def test_a_crash_between_any_two_calls_leaves_one_job_that_is_seen_and_can_be_finished(
        rig: KubeRig, verb: str, kind: Kind) -> None:
    run = ask(rig, rig.nodes[:2])
    refuse(rig, verb, kind, Problem(403, "Forbidden", "here the server died"))
    with pytest.raises(Rejected, match="here the server died"):
        run.launch()
    seen = next(job for job in rig.engine.observe().jobs if job.name == run.name)
    assert seen.status is JobStatus.WAITING
    assert _pods(rig) == []
    again = rig.again()
    assert run.launch(again) == seen.id
    running(run, rig)
    assert len(rig.toy.store.list(JOBS)) == 1


@pytest.mark.parametrize("verb", ["create", "patch"])
def test_a_lost_answer_ends_with_one_job(rig: KubeRig, verb: str) -> None:
    run = ask(rig, rig.nodes[:2])
    rig.toy.api.faults.losses.append(lambda asked: asked.verb == verb and asked.kind is JOBS)
    run.launch()
    running(run, rig)
    job, = rig.toy.store.list(JOBS)
    assert job["metadata"]["uid"] == run.id


def test_what_was_begun_and_given_up_can_be_stopped_and_leaves_nothing(rig: KubeRig) -> None:
    run = ask(rig, rig.nodes[:2])
    refuse(rig, "patch", JOBS, Problem(403, "Forbidden", "here the server died"))
    with pytest.raises(Rejected):
        run.launch()
    rig.again().stop(run.name, 5.0)
    until(lambda: nothing_left(rig), "all to be gone")


def test_all_that_is_made_goes_with_the_job(rig: KubeRig) -> None:
    run = ask(rig, rig.nodes[:2])
    run.launch()
    running(run, rig)
    for kind in OWNED:
        item, = rig.toy.store.list(kind, "gangline")
        assert item["metadata"]["ownerReferences"][0]["uid"] == run.id
    rig.engine.stop(run.name, 5.0)
    until(lambda: nothing_left(rig), "all to be gone")


def test_the_token_is_in_the_secret_alone(rig: KubeRig) -> None:
    run = ask(rig, rig.nodes[:2])
    run.launch()
    running(run, rig)
    rest = json.dumps([rig.toy.store.list(kind) for kind in (JOBS, PODS, SERVICES, GROUPS, NODES)])
    assert run.guest.token not in rest
    assert all(run.guest.token not in repr(asked) for asked in rig.toy.api.asked)


def test_a_new_token_does_not_reach_a_job_that_runs(rig: KubeRig) -> None:
    run = ask(rig, rig.nodes[:1])
    run.launch()
    running(run, rig)
    before = rig.toy.store.list(SECRETS)
    assert rig.engine.launch(rig.engine.prepare(run.job), "another") == run.id
    assert rig.toy.store.list(SECRETS) == before


# -- rights --------------------------------------------------------------------------------------------------


def test_every_right_that_is_shipped_is_needed_and_no_other(make: Callable[..., KubeRig]) -> None:
    used: set[Act] = set()
    for kind in ("job", "jobset"):
        rig = make(job_kind=kind)
        run = ask(rig, rig.nodes[:2])
        store = JOBS if kind == "job" else JOBSETS
        refuse(rig, "patch", store, Problem(403, "Forbidden", "crash"))
        with pytest.raises(Rejected, match="crash"):
            run.launch()
        run.launch()
        running(run, rig)
        until(lambda rig=rig, run=run: rig.engine.logs(run.name), "a log")  # type: ignore[misc]
        rig.engine.drain(rig.nodes[0], "test")
        rig.engine.resume(rig.nodes[0])
        rig.engine.stop(run.name, 1.0)
        until(lambda rig=rig: nothing_left(rig), "all to be gone")  # type: ignore[misc]
        used |= rig.rights.used
        rig.toy.close()
    assert used == shipped_rights().granted()


def test_without_the_right_to_cordon_all_else_works(rig: KubeRig, monkeypatch: pytest.MonkeyPatch) -> None:
    run = ask(rig, rig.nodes[:1])
    allow = rig.rights.allow
    monkeypatch.setattr(rig.rights, "allow", lambda act: act.verb != "patch" or act.resource != "nodes"
                        if act.resource == "nodes" else allow(act))
    with pytest.raises(Rejected, match="deploy/kubernetes"):
        rig.engine.drain(rig.nodes[0], "test")
    run.launch()
    running(run, rig)


# -- nodes ---------------------------------------------------------------------------------------------------


def node_with(rig: KubeRig, *, ready: str | None = "True", taint: str | None = None, effect: str = "NoSchedule",
              allocatable: int = 4) -> Any:
    with rig.toy.store.changing(NODES, rig.toy.store.get(NODES, "", NODE_NAMES[0])) as held:
        held["status"]["conditions"] = [] if ready is None else [
            {"type": "Ready", "status": ready, "reason": "KubeletReady", "message": "told so"}]
        held["status"]["allocatable"]["nvidia.com/gpu"] = str(allocatable)
        held["spec"]["taints"] = [] if taint is None else [{"key": taint, "effect": effect}]
    return look(rig, NODE_NAMES[0])


@pytest.mark.parametrize(("state", "expected"), [
    ({}, NodeStatus.READY),
    ({"ready": "False"}, NodeStatus.DOWN),
    ({"ready": "Unknown"}, NodeStatus.DOWN),
    ({"ready": "Perhaps"}, NodeStatus.UNKNOWN),
    ({"ready": None}, NodeStatus.BOOTING),
    ({"taint": "node.kubernetes.io/unreachable", "effect": "NoExecute"}, NodeStatus.DOWN),
    ({"taint": "node.kubernetes.io/not-ready"}, NodeStatus.DOWN),
    ({"taint": "node.cloudprovider.kubernetes.io/uninitialized"}, NodeStatus.BOOTING),
    ({"taint": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}, NodeStatus.DOWN),
    ({"taint": "ToBeDeletedByClusterAutoscaler"}, NodeStatus.DRAINED),
    ({"taint": "dedicated"}, NodeStatus.DRAINED),
    ({"taint": "dedicated", "effect": "PreferNoSchedule"}, NodeStatus.READY),
    ({"taint": "nvidia.com/gpu"}, NodeStatus.READY),
    ({"ready": "Unknown", "taint": "dedicated"}, NodeStatus.DOWN),
])
def test_what_a_node_says_has_one_meaning(rig: KubeRig, state: dict[str, Any], expected: NodeStatus) -> None:
    node = node_with(rig, **state)
    assert node.status is expected
    assert bool(node.text) is (expected is not NodeStatus.READY)
    assert node.empty is ("out-of-service" in (state.get("taint") or ""))


def test_gpus_that_a_node_lost_are_not_offered(rig: KubeRig) -> None:
    node = node_with(rig, allocatable=3)
    assert (node.status, node.gpu_count) == (NodeStatus.READY, 3)
    assert "1 of nvidia.com/gpu not allocatable" in node.text


def test_taints_that_the_pool_tolerates_are_no_drain(make: Callable[..., KubeRig]) -> None:
    rig = make(tolerations=[{"key": "dedicated", "operator": "Exists"}])
    assert node_with(rig, taint="dedicated").status is NodeStatus.READY
    assert node_with(rig, taint="other").status is NodeStatus.DRAINED


def test_nodes_of_other_pools_and_without_gpus_are_left_out(rig: KubeRig) -> None:
    rig.toy.add_node("elsewhere", 4, {"pool": "b300"})
    rig.toy.add_node("control-plane", 0, {"pool": "h100"})
    with rig.toy.store.changing(NODES, rig.toy.store.get(NODES, "", "control-plane")) as held:
        for sizes in (held["status"]["capacity"], held["status"]["allocatable"]):
            del sizes["nvidia.com/gpu"]
    assert {node.name for node in rig.engine.observe().nodes} == set(NODE_NAMES)


def test_only_gpus_of_others_are_foreign_load(rig: KubeRig) -> None:
    node = NODE_NAMES[0]
    rig.toy.add_pod("web", node, 0)
    daemon = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "exporter", "uid": "0-1"}
    rig.toy.add_pod("exporter", node, 1, ownerReferences=[daemon])
    with rig.toy.store.changed:
        rig.toy.add_pod("done", node, 2)
        with rig.toy.store.changing(PODS, rig.toy.store.get(PODS, "others", "done")) as held:
            held["status"]["phase"] = "Succeeded"
    assert look(rig, node).foreign_gpus == 0
    rig.toy.add_pod("notebook", node, 2)
    rig.toy.add_pod("notebook", node, 1, namespace="team-b")
    seen = look(rig, node)
    assert (seen.foreign_gpus, seen.foreign) == (3, ("others/notebook", "team-b/notebook"))
    assert seen.status is NodeStatus.READY


# -- drains --------------------------------------------------------------------------------------------------


def test_a_drain_that_meets_other_writers_is_made_in_the_end(rig: KubeRig) -> None:
    for _ in range(3):
        refuse(rig, "patch", NODES, Problem(409, "Conflict", "somebody was faster"))
    rig.engine.drain(NODE_NAMES[0], "ecc")
    seen = look(rig, NODE_NAMES[0])
    assert (seen.status, seen.text) == (NodeStatus.DRAINED, "gangline: ecc")
    for _ in range(20):
        refuse(rig, "patch", NODES, Problem(409, "Conflict", "somebody was faster"))
    with pytest.raises(Unavailable, match="others keep changing"):
        rig.engine.resume(NODE_NAMES[0])


def test_another_fleets_drain_is_not_ours_to_lift(rig: KubeRig) -> None:
    rig.other_fleet().drain(NODE_NAMES[0], "theirs")
    rig.engine.drain(NODE_NAMES[0], "ours too")
    rig.engine.resume(NODE_NAMES[0])
    seen = look(rig, NODE_NAMES[0])
    assert (seen.status, seen.text) == (NodeStatus.DRAINED, "drained by fleet 0ddba115: theirs")


def test_what_was_there_beside_a_drain_is_kept(rig: KubeRig) -> None:
    before = rig.toy.store.get(NODES, "", NODE_NAMES[0])
    rig.engine.drain(NODE_NAMES[0], "ecc")
    rig.engine.resume(NODE_NAMES[0])
    after = rig.toy.store.get(NODES, "", NODE_NAMES[0])
    assert (after["spec"], after["metadata"]["labels"]) == (before["spec"], before["metadata"]["labels"])
    assert not after["metadata"].get("annotations")


def test_nodes_that_are_not_there_and_what_cannot_be_done(rig: KubeRig) -> None:
    for call in (lambda: rig.engine.drain("nowhere", "x"), lambda: rig.engine.resume("nowhere")):
        with pytest.raises(NotFound):
            call()
    with pytest.raises(Rejected):
        rig.engine.reboot(NODE_NAMES[0])


# -- jobs ----------------------------------------------------------------------------------------------------


def test_a_pod_that_fails_ends_the_whole_job_and_is_named(make: Callable[..., KubeRig], tmp_path: Path) -> None:
    program = tmp_path / "fails"
    program.write_text("#!/bin/sh\ncase $GANGLINE_NODE in node-b) echo no such disk; exit 76;; esac\nexec sleep 1000\n")
    program.chmod(0o755)
    rig = make(python=str(program))
    run = ask(rig, rig.nodes[:3])
    run.launch()
    seen = run.wait_status(JobStatus.ENDED)
    assert "BackoffLimitExceeded" in seen.text or "76" in seen.text
    assert rig.engine.logs(run.name).startswith("node-b:\nno such disk")
    rig.engine.stop(run.name, 1.0)
    assert run.wait_status(JobStatus.ENDED).id == run.id  # what has ended is remembered
    assert run.launch() == run.id


def test_pods_without_their_job_are_shown_while_they_run(rig: KubeRig) -> None:
    run = ask(rig, rig.nodes[:1])
    run.launch()
    running(run, rig)
    pod, = _pods(rig)
    with rig.toy.store.changed:
        with rig.toy.store.changing(PODS, pod) as held:
            held["metadata"]["ownerReferences"] = []
        rig.toy.store.remove(JOBS, rig.toy.store.list(JOBS)[0])
    seen = next(job for job in rig.engine.observe().jobs if job.name == run.name)
    assert (seen.status, seen.id, seen.nodes) == (JobStatus.RUNNING, "", rig.nodes[:1])


def test_without_gang_scheduling_parts_may_start_and_the_rest_waits(make: Callable[..., KubeRig]) -> None:
    rig = make(groups=False)
    end = rig.occupy(rig.nodes[0], rig.gpus)
    run = ask(rig, rig.nodes[:2])
    run.launch()
    assert run.wait_status(JobStatus.RUNNING).nodes == rig.nodes[1:2]
    end()
    until(lambda: (seen := run.seen()) and len(seen.nodes) == 2, "both pods to run", run.seen)
    assert rig.toy.store.list(GROUPS) == []


def test_a_delegated_job_is_started_by_its_queue(make: Callable[..., KubeRig]) -> None:
    rig = make(mode="delegated", queue="team-a")
    run = ask(rig, rig.nodes[:2])
    run.launch()
    seen = run.seen()
    assert seen is not None
    assert (seen.status, seen.text) == (JobStatus.WAITING, "it is suspended")
    with rig.toy.store.changing(JOBS, rig.toy.store.list(JOBS)[0]) as held:  # as Kueue does
        assert held["metadata"]["labels"][names.KUEUE_QUEUE] == "team-a"
        held["spec"]["suspend"] = False
    running(run, rig)


def test_each_index_of_a_jobset_runs_on_its_own_node(make: Callable[..., KubeRig]) -> None:
    rig = make(job_kind="jobset")
    nodes = (rig.nodes[2], rig.nodes[0], rig.nodes[1])
    run = ask(rig, nodes)
    run.launch()
    running(run, rig)
    until(lambda: (seen := run.seen()) and seen.nodes == nodes, "the nodes in their order", run.seen)
    pod = _pods(rig)[0]
    rig.toy.store.delete(PODS, "gangline", pod["metadata"]["name"])  # one is lost: all end
    run.wait_status(JobStatus.ENDED)


def test_a_cluster_without_jobset_says_so(make: Callable[..., KubeRig], monkeypatch: pytest.MonkeyPatch) -> None:
    rig = make(job_kind="jobset")
    rig.toy.api.kinds = tuple(kind for kind in rig.toy.api.kinds if kind is not JOBSETS)
    with pytest.raises(Rejected, match="no JobSet"):
        rig.again().observe()


def test_a_server_that_is_not_there_is_unavailable(rig: KubeRig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gangline.engines.kubernetes.api.PATIENCE_S", 0.2)
    rig.toy.api.close()
    with pytest.raises(Unavailable):
        rig.again()._cluster()


def test_news_come_without_asking(rig: KubeRig) -> None:
    import threading

    news = threading.Event()
    rig.engine.on_change(news.set)
    rig.engine.observe()
    news.clear()
    rig.toy.add_pod("notebook", NODE_NAMES[0], 1)
    assert news.wait(20)


def test_no_gang_costs_a_question_of_its_own(rig: KubeRig) -> None:
    runs = [ask(rig, rig.nodes[index:index + 1]) for index in range(4)]
    for run in runs:
        run.launch()
    rig.engine.observe()
    before = len(rig.toy.api.asked)
    for _ in range(20):
        rig.engine.observe()
        rig.engine.poll_many([run.name for run in runs])
    assert len(rig.toy.api.asked) == before


def test_a_closed_engine_answers_so_and_leaves_no_thread(rig: KubeRig) -> None:
    import threading

    engine = rig.again()
    engine.observe()
    before = threading.active_count()
    engine.close()
    assert threading.active_count() < before
    with pytest.raises(GanglineError):
        engine.poll_many([])


# -- another client ------------------------------------------------------------------------------------------


@pytest.fixture
def kubectl(rig: KubeRig) -> Callable[..., str]:
    """The real one, on the toy."""
    program = Path(sys.executable).with_name("kubectl")

    def call(*argv: str, stdin: str = "") -> str:
        done = subprocess.run([str(program), f"--kubeconfig={rig.toy.kubeconfig()}", *argv], input=stdin, text=True,
                              capture_output=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout
    return call


def test_kubectl_sees_what_we_make_and_we_see_what_it_does(rig: KubeRig, kubectl: Callable[..., str]) -> None:
    run = ask(rig, rig.nodes[:2])
    run.launch()
    running(run, rig)
    jobs = json.loads(kubectl("get", "jobs", "-n", "gangline", "-l", f"{names.GANG}={run.job.gang}", "-o", "json"))
    assert [item["metadata"]["name"] for item in jobs["items"]] == [run.name]
    assert "welcomed" in kubectl("logs", "-n", "gangline", _pods(rig)[0]["metadata"]["name"])
    kubectl("cordon", NODE_NAMES[3])
    assert look(rig, NODE_NAMES[3]).status is NodeStatus.DRAINED
    rig.engine.resume(NODE_NAMES[3])
    assert look(rig, NODE_NAMES[3]).status is NodeStatus.DRAINED  # it is not ours
    kubectl("uncordon", NODE_NAMES[3])
    assert look(rig, NODE_NAMES[3]).status is NodeStatus.READY
    kubectl("delete", "job", "-n", "gangline", run.name, "--wait=false")
    run.wait_over()


def test_kubectl_takes_the_text_of_a_request(rig: KubeRig, kubectl: Callable[..., str]) -> None:
    run = ask(rig, rig.nodes[:2])
    kubectl("create", "--validate=false", "-f", "-", stdin=rig.engine.prepare(run.job).text)
    job, = rig.toy.store.list(JOBS)
    assert job["spec"]["suspend"] is True
    run.launch()
    running(run, rig)


def test_what_is_shipped_can_be_built(kubectl: Callable[..., str]) -> None:
    built = kubectl("kustomize", str(Path(__file__).parents[2] / "deploy/kubernetes"))
    assert "gangline-fleet-" in built
    assert "kind: Deployment" in built
