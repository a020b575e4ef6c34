"""A connection to one cluster with the watches that the engine lives on."""

from __future__ import annotations

from collections.abc import Callable, Collection

from gangline.engines.kubernetes import names
from gangline.engines.kubernetes.access import Access
from gangline.engines.kubernetes.api import Api, Object, resource
from gangline.engines.kubernetes.cache import Cache
from gangline.engines.kubernetes.manifests import GROUPS, JOBS, JOBSETS
from gangline.engines.kubernetes.seen import (
    Node,
    Pod,
    Workload,
    keep_foreign,
    keep_node,
    keep_pod,
    keep_workload,
)
from gangline.model.errors import Rejected

PATHS = {"Job": (JOBS, "jobs"), "JobSet": (JOBSETS, "jobsets"), "Service": ("v1", "services"),
         "Secret": ("v1", "secrets"), "PodGroup": (GROUPS, "podgroups")}
_ON_NODES = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"


class Cluster:
    """Lists and watches nodes, pods of others that hold `resources`, and the fleet's own pods and jobs.

    `has_groups` says whether its scheduler knows of gangs.

    Raises:
        Rejected: a kind of job is wanted that the cluster has not got.
        Unavailable: it does not answer.
    """

    def __init__(self, access: Access, namespace: str, fleet: str, resources: Collection[str], *, jobsets: bool,
                 changed: Callable[[], None]) -> None:
        self.api = Api(access)
        self._namespace = namespace
        try:
            self.has_groups = self._has(*PATHS["PodGroup"])
            if jobsets and not self._has(*PATHS["JobSet"]):
                raise Rejected("the cluster has no JobSet", field="kubernetes.job_kind",
                               fix="install JobSet there, or write job_kind: job")
        except Exception:
            self.api.release()
            raise
        ours = {"labelSelector": f"{names.FLEET}={fleet}"}
        self.nodes: Cache[Node] = Cache(self.api, resource("v1", "nodes"), {}, keep_node, changed)
        self.foreign: Cache[Pod] = Cache(self.api, resource("v1", "pods"), {"fieldSelector": _ON_NODES},
                                         lambda item: keep_foreign(item, resources, fleet), changed)
        self.pods: Cache[Pod] = Cache(self.api, resource("v1", "pods", namespace), ours, keep_pod, changed)
        self.workloads: dict[str, Cache[Workload]] = {
            kind: Cache(self.api, resource(*PATHS[kind], namespace), ours, keep_workload, changed)
            for kind in (("Job", "JobSet") if jobsets else ("Job",))}
        for cache in self.caches:
            cache.start()

    @property
    def caches(self) -> tuple[Cache[Node] | Cache[Pod] | Cache[Workload], ...]:
        return (self.nodes, self.foreign, self.pods, *self.workloads.values())

    def close(self) -> None:
        """End the watches and the connection."""
        self.api.close()
        for cache in self.caches:
            cache.close()
        self.api.release()

    def put(self, item: Object) -> None:
        """Take in a workload, a node or anything else as the server has just answered it."""
        kind = item.get("kind")
        if kind == "Node":
            self.nodes.put(item)
        elif kind in self.workloads:
            self.workloads[kind].put(item)

    def path(self, kind: str, name: str | None = None) -> str:
        """Where the objects of a kind are, or one of them."""
        return resource(*PATHS[kind], self._namespace, name)

    def _has(self, group_version: str, plural: str) -> bool:
        found = self.api.get(f"/apis/{group_version}")
        return found is not None and any(entry["name"] == plural for entry in found.get("resources") or ())
