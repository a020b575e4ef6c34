"""`KubernetesEngine`: the engine protocol on a Kubernetes cluster."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from gangline.engines.base import Job, Request, SeenJob, Sight, parse_job_name
from gangline.engines.kubernetes import names
from gangline.engines.kubernetes.access import Access, find_access
from gangline.engines.kubernetes.api import Exists, Object, Stale, resource
from gangline.engines.kubernetes.cluster import Cluster
from gangline.engines.kubernetes.inventory import kubernetes, seen_nodes
from gangline.engines.kubernetes.jobs import seen_jobs
from gangline.engines.kubernetes.manifests import Manifests, manifests, owned_by, token_secret
from gangline.engines.kubernetes.pod import CONTAINER, GRACE_S
from gangline.engines.kubernetes.seen import keep_node, keep_workload
from gangline.engines.supervision import Supervision
from gangline.model.errors import NotFound, Rejected, Unavailable
from gangline.model.fleet import Pool
from gangline.model.node import NodeView

LOG_BYTES = 64 * 1024
_LOG_PODS = 16  # of a log of hundreds there would be a line of each
_LOG_LINES = "1000"
_HEAD_BYTES = 300  # a node's name and what is around it
_TRIES = 5


class KubernetesEngine:
    """Runs each attempt as an Indexed Job, or a JobSet where the pool says so, of one pod per node.

    All its pools are of one cluster and namespace. What it tells comes from a handful of watches, which begin with
    the first question; no gang costs a call of its own.
    """

    name = "kubernetes"

    def __init__(self, pools: tuple[Pool, ...], supervision: Supervision, home: Path, fleet: str,
                 access: Callable[[], Access] | None = None) -> None:
        self._pools = {pool.name: pool for pool in pools}
        self._supervision, self._fleet = supervision, fleet
        self._settings = kubernetes(pools[0])
        self._access = access or (lambda: find_access(self._settings))
        self._lock = threading.Lock()
        self._connected: Cluster | None = None
        self._callbacks: list[Callable[[], None]] = []
        self._closed = False

    def observe(self) -> Sight:
        """Nodes and jobs as the watches have told of them."""
        cluster = self._cluster()
        nodes = cluster.nodes.items()
        return Sight(nodes=seen_nodes(tuple(self._pools.values()), nodes, cluster.foreign.items(),
                                     self._fleet),
                     jobs=self._jobs(cluster))

    def poll_many(self, names: Collection[str]) -> Mapping[str, SeenJob]:
        """Those of the jobs that the cluster has."""
        wanted = set(names)
        return {job.name: job for job in self._jobs(self._cluster()) if job.name in wanted}

    def prepare(self, job: Job) -> Request:
        """The manifests of the job, but for the Secret with its token; pure."""
        asked = manifests(self._pools[job.pool], job, self._supervision, self._fleet)
        return Request(job=job, text=str(asked), body=asked)

    def launch(self, request: Request, token: str) -> str:
        """Makes the workload suspended, then what it owns, then lets it start.

        The first of these steps alone decides whether there is a job; whoever asks again does what is left of them.
        """
        assert isinstance(request.body, Manifests)
        cluster = self._cluster()
        asked = request.body if cluster.has_groups else request.body.without_group()
        kind, name = asked.workload["kind"], request.job.name
        made = self._made_or_found(cluster, asked.workload)
        seen = keep_workload(made)
        if seen.ended is None and not seen.ending:
            owner = {**asked.workload, "metadata": made["metadata"]}
            for item in (token_secret(asked.workload, token), *asked.owned):
                self._own(cluster, owned_by(item, owner), anew=seen.suspended)
            if seen.suspended and not asked.queued:
                made = cluster.api.patch(cluster.path(kind, name), {"spec": {"suspend": False}}) or made
        cluster.put(made)
        return seen.uid

    def stop(self, name: str, grace_s: float) -> None:
        """Deletes the workload with its pods, which get SIGTERM now and SIGKILL after the grace, at most 60 s.

        The cluster shows it until its last pod is gone. What has ended already stays until its time is up.
        """
        cluster = self._cluster()
        for kind in cluster.workloads:
            found = cluster.api.get(cluster.path(kind, name))
            if found is None or keep_workload(found).ended is not None:
                continue
            # Its pods go first and it shows what is left of them; a workload that is deleted makes no new ones.
            ending = cluster.api.delete(cluster.path(kind, name), {"propagationPolicy": "Foreground"})
            if ending is not None:
                cluster.put(ending)
            if grace_s < GRACE_S:
                # Not 0: that takes a pod from the books while its processes may still run.
                cluster.api.delete(resource("v1", "pods", self._settings.namespace),
                                   {"gracePeriodSeconds": max(1, math.ceil(grace_s))},
                                   {"labelSelector": f"{names.JOB}={name}"})

    def logs(self, name: str) -> str:
        """The last words of the job's pods, first of those that failed."""
        cluster = self._cluster()
        pods = sorted((pod for pod in cluster.pods.items() if pod.job == name and pod.node),
                      key=lambda pod: (not pod.failed, pod.index))[:_LOG_PODS]
        told = []
        for pod in pods:
            path = resource("v1", "pods", pod.namespace, pod.name, "log")
            text = cluster.api.text(path, {"container": CONTAINER, "tailLines": _LOG_LINES})
            if text:
                last = text.encode()[-(LOG_BYTES // len(pods) - _HEAD_BYTES):].decode(errors="ignore")
                told.append(f"{pod.node}:\n{last}\n")
        return "".join(told)

    def provision(self, nodes: Collection[NodeView]) -> None:
        """Nothing: the cluster's autoscaler adds nodes for pods that wait, which only jobs of delegated pools do."""

    def release(self, nodes: Collection[NodeView]) -> None:
        """Nothing: the cluster's autoscaler takes back nodes that idle."""

    def drain(self, node: str, reason: str) -> None:
        """Cordons the node, with a note that it was this fleet; what runs there is not evicted."""
        self._change(node, lambda item: None if keep_node(item).unschedulable else {
            "metadata": {"annotations": {names.DRAINED_BY: self._fleet, names.DRAIN_REASON: reason}},
            "spec": {"unschedulable": True}})

    def resume(self, node: str) -> None:
        """Uncordons the node where the note says that it was this fleet."""
        self._change(node, lambda item: None if keep_node(item).drained_by != self._fleet else {
            "metadata": {"annotations": {names.DRAINED_BY: None, names.DRAIN_REASON: None}},
            "spec": {"unschedulable": None}})

    def reboot(self, node: str) -> None:
        """Raises `Rejected`: Kubernetes has no such thing."""
        raise Rejected("Kubernetes reboots no nodes", field=node, fix="reboot it with the tools of its cloud")

    def on_change(self, callback: Callable[[], None]) -> None:
        """Calls back whenever a watch has told something new."""
        self._callbacks.append(callback)

    def close(self) -> None:
        """End the watches."""
        with self._lock:
            self._closed, cluster = True, self._connected
            self._connected = None
        if cluster is not None:
            cluster.close()

    def _cluster(self) -> Cluster:
        with self._lock:
            if self._closed:
                raise Unavailable("the engine is closed")
            if self._connected is None:
                blocks = [kubernetes(pool) for pool in self._pools.values()]
                self._connected = Cluster(
                    self._access(), self._settings.namespace, self._fleet, {block.gpu_resource for block in blocks},
                    jobsets=any(block.job_kind == "jobset" for block in blocks), changed=self._changed)
            return self._connected

    def _changed(self) -> None:
        for callback in self._callbacks:
            callback()

    def _jobs(self, cluster: Cluster) -> tuple[SeenJob, ...]:
        answering = {node.name for node in cluster.nodes.items() if node.ready == "True"}
        workloads = [workload for cache in cluster.workloads.values() for workload in cache.items()]
        seen = seen_jobs(workloads, cluster.pods.items(), answering)
        return tuple(job for job in seen if (parsed := parse_job_name(job.name)) and parsed[0] == self._fleet)

    def _made_or_found(self, cluster: Cluster, workload: Object) -> Object:
        kind = workload["kind"]
        try:
            return cluster.api.create(cluster.path(kind), workload)
        except Exists:
            found = cluster.api.get(cluster.path(kind, workload["metadata"]["name"]))
        if found is None:
            raise Unavailable("a job of that name has just ended", field=workload["metadata"]["name"])
        return found

    def _own(self, cluster: Cluster, item: Object, *, anew: bool) -> None:
        """Makes it; `anew` puts it right where it is there already, which may be what was left half done."""
        try:
            cluster.api.create(cluster.path(item["kind"]), item)
        except Exists:
            if anew:
                cluster.api.patch(cluster.path(item["kind"], item["metadata"]["name"]), item)

    def _change(self, name: str, change: Callable[[Object], Object | None]) -> None:
        """Merges what `change` makes of the node into it, again if somebody else was faster."""
        cluster = self._cluster()
        path = resource("v1", "nodes", name=name)
        for _ in range(_TRIES):
            node = cluster.api.get(path)
            if node is None:
                raise NotFound("the cluster has no such node", field=name)
            body = change(node)
            if body is None:
                return
            body["metadata"]["resourceVersion"] = node["metadata"]["resourceVersion"]
            try:
                cluster.put(cluster.api.patch(path, body) or node)
                return
            except Stale:
                continue
        raise Unavailable("others keep changing the node", field=name)
