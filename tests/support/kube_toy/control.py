"""What Kubernetes' controllers and its scheduler do for jobs, as far as this engine meets it.

Everything is level-triggered: after each change all of it is looked at again, until nothing changes any more.
"""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Callable, Iterable

from kube_toy.store import (
    ALL,
    FOREGROUND,
    GROUPS,
    JOBS,
    JOBSETS,
    NODES,
    PODS,
    SERVICES,
    Kind,
    Object,
    Store,
    now,
    owner,
)

_OVER = ("Succeeded", "Failed")
_INDEX = "batch.kubernetes.io/job-completion-index"


class Controllers:
    """Runs in a thread of its own. Waiting times of the cluster are shortened by `hurry`."""

    def __init__(self, store: Store, hurry: float = 0.02) -> None:
        self._store, self._hurry, self._closing = store, hurry, False
        self._lost_s: dict[str, float] = {}  # since when a node is tainted
        self._thread = threading.Thread(target=self._run, name="toy-controllers", daemon=True)
        self._thread.start()

    def close(self) -> None:
        with self._store.changed:
            self._closing = True
            self._store.changed.notify_all()
        self._thread.join()

    def _run(self) -> None:
        duties: tuple[Callable[[Store], None], ...] = (
            run_jobsets, run_jobs, self._evict, collect_garbage, schedule)
        store = self._store
        while not self._closing:
            with store.changed:
                version = store.version
                for duty in duties:
                    duty(store)
                if version == store.version and not self._closing:
                    store.changed.wait(0.1 if self._lost_s else None)

    def _evict(self, store: Store) -> None:
        """Pods on a tainted node are deleted when they tolerate it no longer."""
        nodes = {node["metadata"]["name"]: node for node in store.list(NODES)}
        lost = {name for name, node in nodes.items()
                if any(taint["effect"] == "NoExecute" for taint in node["spec"].get("taints", ()))}
        self._lost_s = {name: self._lost_s.get(name, time.monotonic()) for name in lost}
        for pod in store.list(PODS):
            name = pod["spec"].get("nodeName")
            if name in lost and "deletionTimestamp" not in pod["metadata"]:
                keys = {taint["key"] for taint in nodes[name]["spec"]["taints"]}
                tolerated_s = min((toleration.get("tolerationSeconds", 1e9) for toleration in pod["spec"].get(
                    "tolerations", ()) if toleration.get("key") in keys and toleration["effect"] == "NoExecute"),
                    default=0)
                if time.monotonic() - self._lost_s[name] >= tolerated_s * self._hurry:
                    store.delete(PODS, pod["metadata"]["namespace"], pod["metadata"]["name"])


def run_jobs(store: Store) -> None:
    for job in store.list(JOBS):
        pods = owned(store, PODS, job)
        if _condition(job, "Complete", "Failed") or "deletionTimestamp" in job["metadata"]:
            _release(store, job, pods)
            continue
        if job["spec"].get("suspend"):
            for pod in pods:
                store.delete(PODS, pod["metadata"]["namespace"], pod["metadata"]["name"])
            continue
        _start_pods(store, job, pods)
        _settle(store, job, owned(store, PODS, job))


def _start_pods(store: Store, job: Object, pods: list[Object]) -> None:
    with store.changing(JOBS, job) as held:
        held.setdefault("status", {}).setdefault("startTime", now())
    if _condition(job, "FailureTarget"):
        return
    present = {pod["metadata"]["labels"][_INDEX] for pod in pods}
    for index in range(job["spec"]["parallelism"]):
        if str(index) not in present:
            template = copy.deepcopy(job["spec"]["template"])
            labels = {**template.get("metadata", {}).get("labels", {}), _INDEX: str(index),
                      "batch.kubernetes.io/job-name": job["metadata"]["name"]}
            meta = {"generateName": f"{job['metadata']['name']}-{index}-", "labels": labels,
                    "ownerReferences": [owner(JOBS, job)]}
            store.create(PODS, job["metadata"]["namespace"],
                         {"metadata": meta, "spec": template["spec"], "status": {"phase": "Pending"}})


def _settle(store: Store, job: Object, pods: list[Object]) -> None:
    """With backoffLimit 0 the first failed pod, or one that is being deleted, fails the whole job."""
    terminal = [pod for pod in pods if pod["status"].get("phase") in _OVER]
    failed = [pod for pod in pods if pod["status"].get("phase") == "Failed" or (
        "deletionTimestamp" in pod["metadata"] and pod["status"].get("phase") != "Succeeded")]
    succeeded = {pod["metadata"]["labels"][_INDEX] for pod in terminal if pod["status"]["phase"] == "Succeeded"}
    gone = _condition(job, "FailureTarget")
    if failed or gone:
        _set_condition(store, JOBS, job, "FailureTarget", "BackoffLimitExceeded",
                       "Job has reached the specified backoff limit")
        for pod in pods:
            if pod not in terminal:
                store.delete(PODS, pod["metadata"]["namespace"], pod["metadata"]["name"])
        if all(pod in terminal for pod in pods):
            _set_condition(store, JOBS, job, "Failed", "BackoffLimitExceeded",
                           "Job has reached the specified backoff limit")
    elif len(succeeded) == job["spec"]["completions"]:
        _set_condition(store, JOBS, job, "Complete", "CompletionsReached", "Reached expected number of succeeded pods")


def _release(store: Store, job: Object, pods: list[Object]) -> None:
    if _condition(job, "Failed"):
        for pod in pods:
            if pod["status"].get("phase") not in _OVER:
                store.delete(PODS, pod["metadata"]["namespace"], pod["metadata"]["name"])


def run_jobsets(store: Store) -> None:
    for jobset in store.list(JOBSETS):
        meta, spec = jobset["metadata"], jobset["spec"]
        if _condition(jobset, "Completed", "Failed") or "deletionTimestamp" in meta:
            continue
        children = {child["metadata"]["name"]: child for child in owned(store, JOBS, jobset)}
        _ensure_service(store, jobset)
        for part in spec["replicatedJobs"]:
            name = f"{meta['name']}-{part['name']}-0"
            if name not in children:
                body = {"metadata": {"name": name, "ownerReferences": [owner(JOBSETS, jobset)]},
                        "spec": {**copy.deepcopy(part["template"]["spec"]), "suspend": spec.get("suspend", False)}}
                children[name] = store.create(JOBS, meta["namespace"], body)
            with store.changing(JOBS, children[name]) as held:
                held["spec"]["suspend"] = spec.get("suspend", False)
        if any(_condition(child, "FailureTarget", "Failed") for child in children.values()):
            _set_condition(store, JOBSETS, jobset, "Failed", "FailedJobs",
                           "jobset failed due to one or more job failures")
            for child in children.values():
                if not _condition(child, "Complete", "Failed"):
                    store.delete(JOBS, meta["namespace"], child["metadata"]["name"], foreground=True)
        elif all(_condition(child, "Complete") for child in children.values()):
            _set_condition(store, JOBSETS, jobset, "Completed", "AllJobsCompleted", "jobset completed successfully")


def _ensure_service(store: Store, jobset: Object) -> None:
    name, space = jobset["spec"]["network"]["subdomain"], jobset["metadata"]["namespace"]
    if (space, name) not in store.objects[SERVICES]:
        store.create(SERVICES, space, {"metadata": {"name": name, "ownerReferences": [owner(JOBSETS, jobset)]},
                                       "spec": {"clusterIP": "None"}})


def collect_garbage(store: Store) -> None:
    """What has lost its owner goes; an owner that is deleted in the foreground goes after what it blocks on."""
    alive = {item["metadata"]["uid"] for kind in ALL for item in store.list(kind)}
    for kind in ALL:
        for item in store.list(kind):
            meta = item["metadata"]
            references = meta.get("ownerReferences") or ()
            if references and not any(reference["uid"] in alive for reference in references):
                store.delete(kind, meta.get("namespace", ""), meta["name"])
            elif FOREGROUND in meta.get("finalizers", ()):
                blocking = [(child_kind, child) for child_kind in (PODS, JOBS)
                            for child in owned(store, child_kind, item)]
                for child_kind, child in blocking:
                    store.delete(child_kind, child["metadata"]["namespace"], child["metadata"]["name"],
                                 foreground=child_kind is JOBS)
                if not blocking:
                    store.remove(kind, item)


def schedule(store: Store) -> None:
    """Binds pods that fit somewhere; those of a PodGroup all at once or not at all."""
    waiting = [pod for pod in store.list(PODS)
               if not pod["spec"].get("nodeName") and "deletionTimestamp" not in pod["metadata"]
               and not pod["spec"].get("schedulingGates")]
    groups: dict[str, list[Object]] = {}
    for pod in waiting:
        group = pod["spec"].get("schedulingGroup", {}).get("podGroupName")
        groups.setdefault(f"group {group}" if group else pod["metadata"]["uid"], []).append(pod)
    for pods in groups.values():
        _bind(store, pods)


def _bind(store: Store, pods: list[Object]) -> None:
    group = pods[0]["spec"].get("schedulingGroup", {}).get("podGroupName")
    need = 1
    if group:
        found = store.objects[GROUPS].get((pods[0]["metadata"]["namespace"], group))
        if found is None or len(pods) < (need := found["spec"]["schedulingPolicy"]["gang"]["minCount"]):
            return  # its other pods, or it itself, are still to come
    placed = {pod["metadata"]["uid"]: pod for pod in store.list(PODS) if pod["spec"].get("nodeName")
              and pod["status"].get("phase") not in _OVER}
    chosen: list[tuple[Object, str]] = []
    reasons: dict[str, str] = {}
    for pod in pods:
        for node in store.list(NODES):
            why = unfit(pod, node, placed.values(), store)
            if why is None:
                chosen.append((pod, node["metadata"]["name"]))
                placed[pod["metadata"]["uid"]] = {**pod, "spec": {**pod["spec"], "nodeName": node["metadata"]["name"]}}
                break
            reasons[node["metadata"]["name"]] = why
    if len(chosen) < need:
        message = f"0/{len(store.list(NODES))} nodes are available: {', '.join(sorted(set(reasons.values())))}."
        for pod in pods:
            with store.changing(PODS, pod) as held:
                held["status"]["conditions"] = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
                                                 "message": message}]
        return
    for pod, name in chosen:
        with store.changing(PODS, pod) as held:
            held["spec"]["nodeName"] = name
            held["status"]["conditions"] = [{"type": "PodScheduled", "status": "True"}]


def unfit(pod: Object, node: Object, placed: Iterable[Object], store: Store) -> str | None:
    """Why the pod cannot go to the node, in the scheduler's words; None when it can."""
    spec, name, labels = pod["spec"], node["metadata"]["name"], node["metadata"].get("labels", {})
    affinity = spec.get("affinity", {})
    terms = affinity.get("nodeAffinity", {}).get("requiredDuringSchedulingIgnoredDuringExecution", {}).get(
        "nodeSelectorTerms")
    if terms is not None and not any(name in field["values"] for term in terms for field in term["matchFields"]):
        return "node(s) didn't match Pod's node affinity/selector"
    if any(labels.get(key) != value for key, value in spec.get("nodeSelector", {}).items()):
        return "node(s) didn't match Pod's node affinity/selector"
    if node["spec"].get("unschedulable"):
        return "node(s) were unschedulable"
    for taint in node["spec"].get("taints", ()):
        if taint["effect"] in ("NoSchedule", "NoExecute") and not _tolerates(spec, taint):
            return f"node(s) had untolerated taint {{{taint['key']}: }}"
    there = [other for other in placed if other["spec"]["nodeName"] == name]
    if any(_repels(one, other) or _repels(other, one) for other in there for one in (pod,)):
        return "node(s) didn't match pod anti-affinity rules"
    for resource, count in _requests(pod).items():
        held = sum(_requests(other).get(resource, 0) for other in there)
        if held + count > int(node["status"]["allocatable"].get(resource, 0)):
            return f"Insufficient {resource}"
    return None


def _repels(pod: Object, other: Object) -> bool:
    terms = pod["spec"].get("affinity", {}).get("podAntiAffinity", {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution", ())
    labels = other["metadata"].get("labels", {})
    return any(all(labels.get(key) == value for key, value in term["labelSelector"]["matchLabels"].items())
               for term in terms)


def _tolerates(spec: Object, taint: Object) -> bool:
    return any(toleration.get("key") in (None, taint["key"]) and toleration.get("effect") in (None, taint["effect"])
               and (toleration.get("operator") == "Exists" or toleration.get("value", "") == taint.get("value", ""))
               and "tolerationSeconds" not in toleration for toleration in spec.get("tolerations", ()))


def _requests(pod: Object) -> dict[str, int]:
    return {key: int(value) for container in pod["spec"]["containers"]
            for key, value in container.get("resources", {}).get("limits", {}).items() if "/" in key}


def owned(store: Store, kind: Kind, item: Object) -> list[Object]:
    uid = item["metadata"]["uid"]
    return [child for child in store.list(kind)
            if any(reference["uid"] == uid for reference in child["metadata"].get("ownerReferences") or ())]


def _condition(item: Object, *kinds: str) -> bool:
    return any(entry["type"] in kinds for entry in item.get("status", {}).get("conditions", ()))


def _set_condition(store: Store, kind: Kind, item: Object, name: str, reason: str, message: str) -> None:
    with store.changing(kind, item) as held:
        if held and not _condition(held, name):
            held.setdefault("status", {}).setdefault("conditions", []).append(
                {"type": name, "status": "True", "reason": reason, "message": message})
