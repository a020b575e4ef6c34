"""What is kept of the cluster's objects: the few fields that matter, of each node, pod and job."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from gangline.engines.kubernetes import names
from gangline.engines.kubernetes.api import Object

_OVER = ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Taint:
    """A mark on a node that keeps pods away which do not tolerate it."""

    key: str
    value: str
    effect: str

    def __str__(self) -> str:
        return f"{self.key}{f'={self.value}' if self.value else ''}:{self.effect}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node. `ready` is the status of its Ready condition as it is written there, "" without one.

    `problems` are other conditions that hold, as monitors of nodes report them.
    """

    name: str
    version: str
    labels: Mapping[str, str]
    drained_by: str | None
    drain_reason: str
    unschedulable: bool
    taints: tuple[Taint, ...]
    ready: str
    ready_text: str
    problems: tuple[str, ...]
    address: str
    capacity: Mapping[str, int]
    allocatable: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """A pod of ours, or of others where it holds GPUs. `job` is the job of ours it belongs to, "" for others.

    `over` says that its containers have ended, as the kubelet of its node reported.
    """

    name: str
    namespace: str
    job: str
    index: int
    node: str
    over: bool
    failed: bool
    resources: Mapping[str, int]
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A Job or JobSet of ours. `ended` is the type of the condition that ended it."""

    name: str
    uid: str
    suspended: bool
    ending: bool  # it has failed or been deleted, and its pods are being ended
    ended: str | None
    text: str


def keep_node(item: Object) -> Node:
    """A v1 Node."""
    meta, spec, status = item["metadata"], item.get("spec") or {}, item.get("status") or {}
    notes = meta.get("annotations") or {}
    ready = _condition(status, ("Ready",)) or {}
    address = next((entry["address"] for entry in status.get("addresses") or () if entry["type"] == "InternalIP"), "")
    return Node(
        name=meta["name"], version=meta["resourceVersion"], labels=meta.get("labels") or {},
        drained_by=notes.get(names.DRAINED_BY), drain_reason=notes.get(names.DRAIN_REASON, ""),
        unschedulable=bool(spec.get("unschedulable")), address=address, ready=ready.get("status", ""),
        ready_text=": ".join(filter(None, (ready.get("reason"), ready.get("message")))),
        problems=tuple(f"{entry['type']}: {entry.get('message') or entry.get('reason') or ''}"
                       for entry in status.get("conditions") or ()
                       if entry["type"] != "Ready" and entry["status"] == "True"),
        taints=tuple(Taint(key=taint["key"], value=taint.get("value") or "", effect=taint["effect"])
                     for taint in spec.get("taints") or ()),
        capacity=_counts(status.get("capacity") or {}), allocatable=_counts(status.get("allocatable") or {}))


def keep_foreign(item: Object, resources: Collection[str], fleet: str) -> Pod | None:
    """A v1 Pod, if it is not of this fleet, no part of a DaemonSet, and holds some of these resources on a node."""
    pod = keep_pod(item)
    meta = item["metadata"]
    ours = (meta.get("labels") or {}).get(names.FLEET) == fleet
    daemon = any(owner["kind"] == "DaemonSet" for owner in meta.get("ownerReferences") or ())
    return None if ours or daemon or pod.over or not pod.node or not pod.resources.keys() & set(resources) else pod


def keep_pod(item: Object) -> Pod:
    """A v1 Pod."""
    meta, spec, status = item["metadata"], item["spec"], item.get("status") or {}
    labels, phase = meta.get("labels") or {}, status.get("phase", "")
    index = labels.get(names.INDEX) or labels.get(names.COMPLETION_INDEX) or "0"
    return Pod(name=meta["name"], namespace=meta["namespace"], job=labels.get(names.JOB, ""), index=int(index),
               node=spec.get("nodeName") or "", over=phase in _OVER, failed=phase == "Failed",
               resources=_requests(spec), text=_pod_text(status))


def keep_workload(item: Object) -> Workload:
    """A batch/v1 Job or a JobSet."""
    meta, status = item["metadata"], item.get("status") or {}
    ended = _condition(status, ("Complete", "Failed", "Completed"), "True")
    failing = _condition(status, ("FailureTarget",), "True")
    told = ended or failing or {}
    return Workload(name=meta["name"], uid=meta["uid"], suspended=bool(item["spec"].get("suspend")),
                    ending=failing is not None or "deletionTimestamp" in meta, ended=ended["type"] if ended else None,
                    text=": ".join(filter(None, (told.get("reason"), told.get("message")))))


def _condition(status: Object, kinds: tuple[str, ...], value: str | None = None) -> Object | None:
    conditions: Iterable[Object] = status.get("conditions") or ()
    return next((entry for entry in conditions if entry["type"] in kinds and value in (None, entry["status"])), None)


def _pod_text(status: Object) -> str:
    """Why the pod waits or how it ended, in the cluster's words."""
    for container in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
        state = container.get("state") or {}
        if waits := state.get("waiting"):
            return ": ".join(filter(None, (waits.get("reason"), waits.get("message"))))
        if (ended := state.get("terminated")) and ended.get("exitCode"):
            return f"{ended.get('reason') or 'Error'}, exit status {ended['exitCode']}"
    unscheduled = _condition(status, ("PodScheduled",), "False") or {}
    return str(unscheduled.get("message") or status.get("message") or status.get("reason") or "")


def _requests(spec: Object) -> dict[str, int]:
    """The whole devices a pod holds: those of its containers together, or of one that runs before them."""
    total: dict[str, int] = {}
    for container in spec.get("containers") or ():
        for key, count in _counts(_asked(container)).items():
            total[key] = total.get(key, 0) + count
    for container in spec.get("initContainers") or ():
        for key, count in _counts(_asked(container)).items():
            total[key] = max(total.get(key, 0), count)
    return {key: count for key, count in total.items() if count}


def _asked(container: Mapping[str, Any]) -> Mapping[str, Any]:
    resources = container.get("resources") or {}
    return {**(resources.get("limits") or {}), **(resources.get("requests") or {})}


def _counts(quantities: Mapping[str, Any]) -> dict[str, int]:
    """Devices are counted in whole numbers; amounts such as 500m or 16Gi are no devices."""
    return {key: int(value) for key, value in quantities.items() if re.fullmatch(r"\d{1,9}", str(value))}
