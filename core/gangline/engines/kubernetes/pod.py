"""The pods of a job: the supervisor's container, what it may use, and how little it may do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gangline.engines.base import Job
from gangline.engines.kubernetes import names
from gangline.engines.kubernetes.api import Object
from gangline.model.engine import Kubernetes
from gangline.model.fleet import Pool
from gangline.model.gpu import CPU

CONTAINER = "supervisor"
TOKEN_MOUNT = "/var/run/gangline"  # noqa: S105 - a folder
TOKEN_FILE = f"{TOKEN_MOUNT}/token"
GRACE_S = 60  # between SIGTERM and SIGKILL, unless `stop` says less
LOST_S = 10  # a node that has not answered for the cluster's own grace (40 to 50 s) is lost so much later
_NODE, _ADDRESS = "GANGLINE_NODE", "GANGLINE_ADDRESS"


def pod_spec(pool: Pool, settings: Kubernetes, job: Job, argv: Sequence[str], nodes: Sequence[str]) -> Object:
    """A pod that may start on any of these nodes, or on any of the pool's where there are none.

    `argv` runs the supervisor; `--node` and `--address` are added, as the node it comes to tells them.
    """
    spec: Object = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": GRACE_S,
        "subdomain": job.name,
        "securityContext": {
            "runAsNonRoot": True, "runAsUser": settings.user, "runAsGroup": settings.user, "fsGroup": settings.user,
            "fsGroupChangePolicy": "OnRootMismatch", "seccompProfile": {"type": "RuntimeDefault"}},
        "affinity": _affinity(job, nodes),
        "tolerations": tolerations(settings),
        "containers": [_container(pool, settings, job, argv)],
        "volumes": _volumes(settings, job),
    }
    if settings.labels:
        spec["nodeSelector"] = dict(settings.labels)
    if settings.host_network:
        spec |= {"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet"}
    if settings.claims:
        spec["resourceClaims"] = [{"name": name, "resourceClaimTemplateName": template}
                                  for name, template in settings.claims.items()]
    named = {"runtimeClassName": settings.runtime_class, "serviceAccountName": settings.service_account,
             "priorityClassName": settings.priority_class}
    return spec | {key: value for key, value in named.items() if value is not None}


def tolerations(settings: Kubernetes) -> list[Object]:
    """Those of the pool, that of nodes with its GPUs, and a short one of lost nodes.

    A pod on a lost node is deleted when the last runs out, which ends its job; without it that takes 5 minutes.
    """
    lost = [{"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute",
             "tolerationSeconds": LOST_S} for key in ("not-ready", "unreachable")]
    gpus = {"key": settings.gpu_resource, "operator": "Exists", "effect": "NoSchedule"}
    return [*({**toleration} for toleration in settings.tolerations), gpus, *lost]


def _affinity(job: Job, nodes: Sequence[str]) -> Object:
    affinity: Object = {}
    if nodes:
        # By the node's name, which is unique, not by its hostname label; one term each, as a term takes one name.
        terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]} for node in nodes]
        affinity["nodeAffinity"] = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    if any(part.whole for part in job.nodes):
        # From all pods of Gangline, so from its own job's too: one per node. It holds both ways, so that no later
        # pod of ours comes to this one's node either.
        affinity["podAntiAffinity"] = {"requiredDuringSchedulingIgnoredDuringExecution": [{
            "topologyKey": names.HOSTNAME, "namespaceSelector": {},
            "labelSelector": {"matchLabels": {names.MANAGED_BY: names.GANGLINE}}}]}
    return affinity


def _container(pool: Pool, settings: Kubernetes, job: Job, argv: Sequence[str]) -> Object:
    resources = dict(settings.resources)
    if pool.ask.type != CPU:
        resources[settings.gpu_resource] = str(max(part.gpus for part in job.nodes))
    container: Object = {
        "name": CONTAINER,
        "image": settings.image,
        "command": [*map(names.literal, argv), "--node", f"$({_NODE})", "--address", f"$({_ADDRESS})"],
        "env": [
            {"name": _NODE, "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
            {"name": _ADDRESS, "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
            {"name": "HOME", "value": "/tmp"}],  # noqa: S108 - of the container; the image's own may not be writable
        "resources": {"limits": resources, "requests": resources},
        "securityContext": {
            "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "privileged": False,
            "capabilities": {"drop": ["ALL"], "add": list(settings.capabilities)}},
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": _mounts(settings),
    }
    if settings.secrets:
        container["envFrom"] = [{"secretRef": {"name": name}} for name in settings.secrets]
    if settings.claims:
        container["resources"]["claims"] = [{"name": name} for name in settings.claims]
    return container


def _volumes(settings: Kubernetes, job: Job) -> list[Object]:
    volumes: list[Object] = [
        {"name": "token", "secret": {"secretName": job.name, "defaultMode": 0o440}},
        {"name": "tmp", "emptyDir": {}},
        {"name": "shm", "emptyDir": {"medium": "Memory"}}]  # NCCL and data loaders need more than the usual 64 MB
    if settings.volume_claim is not None:
        volumes.append({"name": "volumes", "persistentVolumeClaim": {"claimName": settings.volume_claim}})
    return volumes


def _mounts(settings: Kubernetes) -> list[Mapping[str, object]]:
    mounts: list[Mapping[str, object]] = [
        {"name": "token", "mountPath": TOKEN_MOUNT, "readOnly": True},
        {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 - of the container
        {"name": "shm", "mountPath": "/dev/shm"}]  # noqa: S108 - of the container
    if settings.volume_claim is not None:
        mounts.append({"name": "volumes", "mountPath": settings.volume_path})
    return mounts
