"""Everything that is sent to a cluster, checked strictly by the schemas of two Kubernetes versions and of JobSet."""

from __future__ import annotations

from typing import Any

import jsonschema
import kubernetes_validate
import pytest
from kube_rig import kube_pool, shipped
from kube_toy.checking import check_schema

from gangline.engines.base import Job, JobNode
from gangline.engines.kubernetes import names
from gangline.engines.kubernetes.manifests import Manifests, manifests, owned_by, token_secret
from gangline.engines.supervision import Supervision
from gangline.model.errors import Rejected
from gangline.model.fleet import Pool

OLDEST, NEWEST = "1.29.0", "1.37.0"
FULL = {
    "resources": {"rdma/ib": "1", "hugepages-2Mi": "5120Mi", "memory": "1800Gi"}, "claims": {"nics": "efa"},
    "secrets": ["hub-token"], "capabilities": ["IPC_LOCK"], "host_network": True, "runtime_class": "nvidia",
    "service_account": "trainer", "priority_class": "high", "volume_claim": "volumes", "queue": "team-a",
    "tolerations": [{"key": "dedicated", "operator": "Equal", "value": "training", "effect": "NoSchedule"}],
}
POOLS = {
    "plain": {}, "full": FULL, "delegated": {**FULL, "mode": "delegated"}, "cpu": {"gpu": "cpu:4"},
    "jobset": {"job_kind": "jobset"}, "full jobset": {**FULL, "job_kind": "jobset"},
    "delegated jobset": {**FULL, "job_kind": "jobset", "mode": "delegated"},
}
SUPERVISION = Supervision(server_url="http://10.0.0.1:7070")


def job(count: int = 4, gpus: int = 4, **changes: Any) -> Job:
    nodes = tuple(JobNode(node=f"node-{index}", gpus=gpus, whole=gpus == 4) for index in range(count))
    fields = {"name": "gangline-00c0ffee-abcdefghjkmn-1", "gang": "g-abcdefghjkmn", "attempt": 1, "pool": "h100",
              "slot": "daily/train", "tenant": "research", "title": "sft", "nodes": nodes, "limit_s": 3600.5}
    return Job(**{**fields, **changes})


def asked(pool: Pool, job: Job) -> Manifests:
    return manifests(pool, job, SUPERVISION, "00c0ffee")


def pods(made: Manifests) -> list[dict[str, Any]]:
    workload = made.workload
    if workload["kind"] == "Job":
        return [workload["spec"]["template"]["spec"]]
    return [part["template"]["spec"]["template"]["spec"] for part in workload["spec"]["replicatedJobs"]]


def everything(made: Manifests) -> list[dict[str, Any]]:
    owner = {**made.workload, "metadata": {**made.workload["metadata"], "uid": "0-1"}}
    return [made.workload, *(owned_by(item, owner) for item in (*made.owned, token_secret(made.workload, "t")))]


def inner(made: Manifests) -> list[dict[str, Any]]:
    """The Jobs that a JobSet's controller would make of it, which its own schema does not look into."""
    if made.workload["kind"] == "Job":
        return []
    return [{"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": part["name"]}, **part["template"]}
            for part in made.workload["spec"]["replicatedJobs"]]


@pytest.mark.parametrize("name", POOLS)
@pytest.mark.parametrize("count", [1, 4])
def test_the_newest_version_takes_all_of_it(name: str, count: int) -> None:
    made = asked(kube_pool(**POOLS[name]), job(count))
    for item in (*everything(made), *inner(made)):
        check_schema(item, NEWEST)


@pytest.mark.parametrize("name", POOLS)
def test_the_oldest_version_takes_it_without_the_group(name: str) -> None:
    settings = {key: value for key, value in POOLS[name].items() if key != "claims"}
    made = asked(kube_pool(**settings), job()).without_group()
    assert "PodGroup" not in {item["kind"] for item in everything(made)}
    for item in (*everything(made), *inner(made)):
        check_schema(item, OLDEST)


def test_the_check_sees_what_is_not_in_a_schema() -> None:
    made = asked(kube_pool(), job())
    for version in (OLDEST, NEWEST):
        with pytest.raises(kubernetes_validate.ValidationError):
            check_schema({**made.workload, "spec": {**made.workload["spec"], "complections": 4}}, version)
    made = asked(kube_pool(job_kind="jobset"), job())
    with pytest.raises(jsonschema.ValidationError):
        check_schema({**made.workload, "spec": {**made.workload["spec"], "replicas": 4}}, NEWEST)
    with pytest.raises(kubernetes_validate.ValidationError):
        check_schema(asked(kube_pool(), job()).workload, OLDEST)  # it has a group


def test_what_is_shipped_fits_both_versions() -> None:
    kinds = set()
    for item in shipped():
        kinds.add(item["kind"])
        for version in (OLDEST, NEWEST):
            check_schema(item, version)
    assert {"Deployment", "ClusterRole", "Role", "RoleBinding", "ServiceAccount"} <= kinds


def test_a_pod_may_go_to_the_planned_nodes_and_shares_none_with_its_like() -> None:
    pod, = pods(asked(kube_pool(), job()))
    terms = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert [term["matchFields"] for term in terms] == [
        [{"key": "metadata.name", "operator": "In", "values": [f"node-{index}"]}] for index in range(4)]
    apart, = pod["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert apart["topologyKey"] == "kubernetes.io/hostname"
    assert apart["namespaceSelector"] == {}
    assert pod["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "4"
    assert pod["containers"][0]["command"][-4:] == ["--node", "$(GANGLINE_NODE)", "--address", "$(GANGLINE_ADDRESS)"]


def test_a_part_of_a_node_keeps_nobody_away() -> None:
    pod, = pods(asked(kube_pool(), job(1, gpus=1)))
    assert "podAntiAffinity" not in pod["affinity"]
    assert pod["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "1"


def test_in_a_jobset_each_index_has_a_node_of_its_own() -> None:
    made = asked(kube_pool(job_kind="jobset"), job())
    named = [pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
             for pod in pods(made)]
    assert [[term["matchFields"][0]["values"] for term in terms] for terms in named] == [
        [[f"node-{index}"]] for index in range(4)]
    assert made.workload["spec"]["failurePolicy"] == {"maxRestarts": 0}


def test_one_lost_pod_ends_the_job() -> None:
    spec = asked(kube_pool(), job()).workload["spec"]
    assert (spec["backoffLimit"], spec["podReplacementPolicy"]) == (0, "TerminatingOrFailed")
    assert "podFailurePolicy" not in spec  # it would wait for pods that a lost node never ends
    assert (spec["completionMode"], spec["completions"], spec["parallelism"]) == ("Indexed", 4, 4)
    assert (spec["suspend"], spec["activeDeadlineSeconds"]) == (True, 3601)
    assert spec["ttlSecondsAfterFinished"] > 0
    lost = [entry for entry in spec["template"]["spec"]["tolerations"] if entry["effect"] == "NoExecute"]
    assert {entry["key"] for entry in lost} == {"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"}
    assert all(entry["tolerationSeconds"] <= 30 for entry in lost)


def test_pods_fit_the_restricted_profile() -> None:
    pod, = pods(asked(kube_pool(), job()))
    container, = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] > 0
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"], "add": []}
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert pod["automountServiceAccountToken"] is False
    assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys()
    assert all({"secret", "emptyDir", "persistentVolumeClaim"} & volume.keys() for volume in pod["volumes"])


def test_what_a_pool_says_is_in_the_pods() -> None:
    pod, = pods(asked(kube_pool(**FULL), job()))
    container, = pod["containers"]
    assert container["resources"]["limits"] | {"rdma/ib": "1", "hugepages-2Mi": "5120Mi"} == container[
        "resources"]["limits"]
    assert container["resources"]["claims"] == [{"name": "nics"}]
    assert container["envFrom"] == [{"secretRef": {"name": "hub-token"}}]
    assert container["securityContext"]["capabilities"]["add"] == ["IPC_LOCK"]
    assert (pod["hostNetwork"], pod["runtimeClassName"], pod["priorityClassName"], pod["serviceAccountName"]) == (
        True, "nvidia", "high", "trainer")
    assert pod["nodeSelector"] == {"pool": "h100"}
    assert FULL["tolerations"][0] in pod["tolerations"]
    assert {"name": "volumes", "persistentVolumeClaim": {"claimName": "volumes"}} in pod["volumes"]
    assert names.KUEUE_QUEUE not in asked(kube_pool(**FULL), job()).workload["metadata"]["labels"]


def test_a_delegated_job_waits_in_its_queue_for_any_node_of_the_pool() -> None:
    made = asked(kube_pool(mode="delegated", queue="team-a"), job())
    assert made.queued
    assert made.workload["metadata"]["labels"][names.KUEUE_QUEUE] == "team-a"
    assert "nodeAffinity" not in pods(made)[0]["affinity"]
    with pytest.raises(Rejected, match="queue"):
        asked(kube_pool(mode="delegated"), job())


@pytest.mark.parametrize("text", ["", "a\nb", "$(touch x)", "größe ☃", "x" * 10_000, "-", "half \ud83d", "a\0b"])
def test_what_users_write_is_whole_in_annotations_and_safe_in_labels(text: str) -> None:
    made = asked(kube_pool(), job(slot=text, tenant=text, title=text))
    notes = made.workload["metadata"]["annotations"]
    assert (notes[names.SLOT], notes[names.TENANT], notes[names.TITLE]) == (text, text, text)
    check_schema(made.workload, NEWEST)
    for value in made.workload["metadata"]["labels"].values():
        assert len(value) <= 63
        assert value == names.label_value(value)
    command = pods(made)[0]["containers"][0]["command"]
    assert not text or text == "-" or text not in " ".join(command)


def test_values_that_differ_have_labels_that_differ() -> None:
    texts = ["a b", "a\nb", "a-b", "x" * 100, "x" * 101, "", " "]
    assert len({names.label_value(text) for text in texts}) == len(texts)


def test_nothing_in_an_argument_stands_for_a_variable() -> None:
    pool = kube_pool(python="/opt/$(GANGLINE_NODE)/python$$")
    command = pods(asked(pool, job()))[0]["containers"][0]["command"]
    assert command[0] == "/opt/$$(GANGLINE_NODE)/python$$$$"


def test_several_nodes_by_parts_are_refused() -> None:
    with pytest.raises(Rejected, match="whole"):
        asked(kube_pool(), job(2, gpus=1))
