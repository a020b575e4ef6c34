"""What is asked of the cluster for a job: one workload that owns all the rest, so that all goes with it."""

from __future__ import annotations

import base64
import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass

import yaml

from gangline.engines.base import Job
from gangline.engines.kubernetes import names
from gangline.engines.kubernetes.api import Object
from gangline.engines.kubernetes.inventory import kubernetes
from gangline.engines.kubernetes.pod import TOKEN_FILE, pod_spec
from gangline.engines.supervision import Supervision
from gangline.model.engine import Kubernetes
from gangline.model.errors import Rejected
from gangline.model.fleet import Pool

JOBS, JOBSETS, GROUPS = "batch/v1", "jobset.x-k8s.io/v1alpha2", "scheduling.k8s.io/v1beta1"
KEPT_S = 3600  # how long the cluster remembers a job that has ended
_PYTHON = "python"  # of the image; the server's own interpreter is not in it


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifests:
    """A suspended Job or JobSet, and what it owns: made before it may start."""

    workload: Object
    owned: tuple[Object, ...]
    queued: bool  # Kueue starts it, not we

    def without_group(self) -> Manifests:
        """The same for a cluster that has no PodGroup."""
        workload = copy.deepcopy(self.workload)
        for template in _templates(workload):
            template["spec"].pop("schedulingGroup", None)
        owned = tuple(item for item in self.owned if item["kind"] != "PodGroup")
        return Manifests(workload=workload, owned=owned, queued=self.queued)

    def __str__(self) -> str:
        return yaml.safe_dump_all([self.workload, *self.owned], sort_keys=False)


def manifests(pool: Pool, job: Job, supervision: Supervision, fleet: str) -> Manifests:
    """All that a job needs but its token.

    Raises:
        Rejected: the pool's settings cannot hold for such a job.
    """
    settings = kubernetes(pool)
    queued = pool.mode == "delegated"
    if queued and settings.queue is None:
        raise Rejected("jobs of a delegated pool need a queue of Kueue to wait in",
                       field=f"pools.{pool.name}.kubernetes.queue", fix="name a LocalQueue")
    if len(job.nodes) > 1 and not all(part.whole for part in job.nodes):
        raise Rejected("a job on several nodes takes whole ones", field=job.name)
    known = pool if pool.python else pool.model_copy(update={"python": _PYTHON})
    argv = supervision.argv(known, job, token_file=TOKEN_FILE)
    labels, nodes = _labels(job, fleet), [] if queued else [part.node for part in job.nodes]
    owned: list[Object] = []
    if settings.job_kind == "jobset":  # which makes a headless service of its own
        workload = _jobset(job, [
            _template({**labels, names.INDEX: str(index)}, pod_spec(pool, settings, job, argv, nodes[index:index + 1]))
            for index in range(len(job.nodes))])
    else:
        workload = _job(job, _template(labels, pod_spec(pool, settings, job, argv, nodes)))
        owned.append(_service(job, settings.namespace, labels))
    queue = {names.KUEUE_QUEUE: settings.queue} if queued and settings.queue else {}
    workload["metadata"] = {"name": job.name, "namespace": settings.namespace, "labels": {**labels, **queue},
                            "annotations": {names.SLOT: job.slot, names.TENANT: job.tenant, names.TITLE: job.title}}
    if len(job.nodes) > 1:
        owned.append(_grouped(workload, job, settings, labels))
    return Manifests(workload=workload, owned=tuple(owned), queued=queued)


def token_secret(workload: Object, token: str) -> Object:
    """The Secret with the token of a job's supervisors."""
    meta = workload["metadata"]
    return {"apiVersion": "v1", "kind": "Secret", "type": "Opaque",
            "metadata": {key: meta[key] for key in ("name", "namespace", "labels")},
            "data": {"token": base64.b64encode(token.encode()).decode()}}


def owned_by(item: Object, owner: Object) -> Object:
    """The same object, ending with its owner, which the server has made."""
    reference = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": owner["metadata"]["name"],
                 "uid": owner["metadata"]["uid"]}
    return {**item, "metadata": {**item["metadata"], "ownerReferences": [reference]}}


def _labels(job: Job, fleet: str) -> dict[str, str]:
    return {names.MANAGED_BY: names.GANGLINE, names.FLEET: fleet, names.JOB: job.name, names.GANG: job.gang,
            names.ATTEMPT: str(job.attempt), names.TENANT: names.label_value(job.tenant),
            names.SLOT: names.label_value(job.slot)}


def _template(labels: dict[str, str], spec: Object) -> Object:
    return {"metadata": {"labels": labels}, "spec": spec}


def _job_spec(job: Job, template: Object, count: int) -> Object:
    spec: Object = {
        "completionMode": "Indexed", "completions": count, "parallelism": count,
        # One failed pod ends all. A pod that is being deleted has failed: on a lost node it stays so for ever, and
        # a podFailurePolicy, which goes with the other way of counting only, would wait for it.
        "backoffLimit": 0, "podReplacementPolicy": "TerminatingOrFailed",
        "template": template,
    }
    if job.limit_s is not None:
        spec["activeDeadlineSeconds"] = max(1, math.ceil(job.limit_s))
    return spec


def _job(job: Job, template: Object) -> Object:
    return {"apiVersion": JOBS, "kind": "Job", "metadata": {},
            "spec": {"suspend": True, "ttlSecondsAfterFinished": KEPT_S,
                     **_job_spec(job, template, len(job.nodes))}}


def _jobset(job: Job, templates: Sequence[Object]) -> Object:
    """A Job of one pod for each node: only so has each index a node of its own."""
    replicated = [{"name": f"n{index}", "replicas": 1,
                   "template": {"spec": _job_spec(job, template, 1)}}
                  for index, template in enumerate(templates)]
    network = {"enableDNSHostnames": True, "subdomain": job.name, "publishNotReadyAddresses": True}
    return {"apiVersion": JOBSETS, "kind": "JobSet", "metadata": {},
            "spec": {"suspend": True, "ttlSecondsAfterFinished": KEPT_S, "failurePolicy": {"maxRestarts": 0},
                     "network": network, "replicatedJobs": replicated}}


def _service(job: Job, namespace: str, labels: dict[str, str]) -> Object:
    """Headless: gives every pod of the job a name, before it is ready too."""
    return {"apiVersion": "v1", "kind": "Service",
            "metadata": {"name": job.name, "namespace": namespace, "labels": labels},
            "spec": {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": {names.JOB: job.name}}}


def _grouped(workload: Object, job: Job, settings: Kubernetes, labels: dict[str, str]) -> Object:
    """A group that the workload's pods now belong to: all are started or none, and all are disrupted together."""
    for template in _templates(workload):
        template["spec"]["schedulingGroup"] = {"podGroupName": job.name}
    spec: Object = {"schedulingPolicy": {"gang": {"minCount": len(job.nodes)}}, "disruptionMode": {"all": {}}}
    if settings.priority_class is not None:
        spec["priorityClassName"] = settings.priority_class
    return {"apiVersion": GROUPS, "kind": "PodGroup",
            "metadata": {"name": job.name, "namespace": settings.namespace, "labels": labels}, "spec": spec}


def _templates(workload: Object) -> list[Object]:
    if workload["kind"] == "Job":
        return [workload["spec"]["template"]]
    return [part["template"]["spec"]["template"] for part in workload["spec"]["replicatedJobs"]]
