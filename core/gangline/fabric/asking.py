"""What a pod, an sbatch script or a Ray actor must ask for so that RDMA works inside it. Pure data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gangline.fabric.finding import Finding, Level, finding
from gangline.fabric.profiles import Catalogue, Profile
from gangline.model.base import Wire

_DEVICES = "/dev/infiniband"
_PAGE_BYTES = 2 << 20


class Ask(Wire):
    """Everything one node's part of a gang needs from whoever starts it."""

    profile: str
    gpu_resource: str
    resources: dict[str, str] = {}
    claims: dict[str, int] = {}
    annotations: dict[str, str] = {}
    host_network: bool = False
    compute_domain: bool = False
    capabilities: tuple[str, ...] = ()
    ulimits: dict[str, str] = {}
    devices: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    hugepages_bytes: int = 0
    shm_bytes: int = 0
    daemons: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def ask_of(profile: Profile) -> Ask:
    """What a profile's machines want."""
    pod = profile.kubernetes
    return Ask(
        profile=profile.name, gpu_resource=pod.gpu_resource, resources=pod.resources, claims=pod.claims,
        annotations=pod.annotations, host_network=pod.host_network, compute_domain=pod.compute_domain,
        capabilities=profile.capabilities, ulimits=profile.ulimits, devices=profile.devices, modules=profile.modules,
        hugepages_bytes=profile.hugepages_2mib * _PAGE_BYTES, shm_bytes=profile.shm_bytes, daemons=profile.daemons,
        notes=pod.notes)


def pod_parts(ask: Ask, gang: str, nodes: int, gpus: int) -> dict[str, Any]:
    """What to merge into each pod of a gang (`metadata`, `spec`, `container`), and `objects` to make before.

    A pod with huge pages must say how much memory it wants; that is for the caller.
    """
    container: dict[str, Any] = {
        "resources": {"limits": {ask.gpu_resource: str(gpus), **ask.resources}},
        "securityContext": {"capabilities": {"add": list(ask.capabilities)}},
        "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}]}  # noqa: S108 - a pod's shared memory
    spec: dict[str, Any] = {
        "volumes": [{"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": f"{ask.shm_bytes >> 30}Gi"}}]}
    if ask.host_network:
        spec |= {"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet"}
        spec["volumes"].append({"name": "rdma", "hostPath": {"path": _DEVICES}})
        container["volumeMounts"].append({"name": "rdma", "mountPath": _DEVICES})
    objects, claims = _claimed(ask, gang, nodes)
    if claims:
        spec["resourceClaims"] = [{"name": name, "resourceClaimTemplateName": f"{gang}-{name}"} for name in claims]
        container["resources"]["claims"] = [{"name": name} for name in claims]
    return {"objects": objects, "metadata": {"annotations": ask.annotations}, "spec": spec, "container": container}


def _claimed(ask: Ask, gang: str, nodes: int) -> tuple[list[dict[str, Any]], list[str]]:
    """Templates of claims (dynamic resource allocation, Kubernetes 1.34), and the names of the claims."""
    objects: list[dict[str, Any]] = []
    claims: list[str] = []
    for number, (device_class, count) in enumerate(ask.claims.items()):
        name = f"rdma-{number}"
        request = {"name": "nics", "exactly": {"deviceClassName": device_class, "count": count}}
        objects.append({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate",
                        "metadata": {"name": f"{gang}-{name}"}, "spec": {"spec": {"devices": {"requests": [request]}}}})
        claims.append(name)
    if ask.compute_domain:
        # NVIDIA's DRA driver makes the template of this name itself.
        objects.append({"apiVersion": "resource.nvidia.com/v1beta1", "kind": "ComputeDomain",
                        "metadata": {"name": f"{gang}-nvlink"},
                        "spec": {"numNodes": nodes, "channel": {"resourceClaimTemplate": {"name": f"{gang}-nvlink"}}}})
        claims.append("nvlink")
    return objects, claims


def sbatch_lines(ask: Ask, nodes: int, gpus: int) -> tuple[str, ...]:
    """The lines of a batch script: whole nodes, and a first step that fails where the limits are wrong."""
    lines = [f"#SBATCH --nodes={nodes}", "#SBATCH --ntasks-per-node=1", f"#SBATCH --gres=gpu:{gpus}",
             "#SBATCH --exclusive",
             "#SBATCH --propagate=NONE"]  # else the limits of the shell that submits hold on the nodes
    if ask.ulimits.get("memlock") == "unlimited":
        told = 'echo "$(hostname): locked memory is limited: set LimitMEMLOCK=infinity for slurmd" >&2'
        lines.append(f"""srun bash -c 'test "$(ulimit -l)" = unlimited || {{ {told}; exit 1; }}'""")
    return (*lines, *(f"srun bash -c 'ls {device} >/dev/null'" for device in ask.devices))


def ray_options(ask: Ask, nodes: int, gpus: int, environment: Mapping[str, str]) -> dict[str, Any]:
    """Ray's own words: a placement group of whole nodes, one actor in each, and how raylets must have been started."""
    return {
        "placement_group": {"strategy": "STRICT_SPREAD", "bundles": [{"GPU": gpus}] * nodes},
        "actor": {"num_gpus": gpus, "runtime_env": {"env_vars": dict(environment)}},
        "raylet": {"ulimits": ask.ulimits, "devices": list(ask.devices), "capabilities": list(ask.capabilities),
                   "shm_bytes": ask.shm_bytes, "host_network": True}}


def discovered(profile: Profile, allocatable: Mapping[str, str], catalogue: Catalogue) -> dict[str, str] | Finding:
    """The RDMA resources to ask for on a node that offers `allocatable`: the profile's, else by their beginnings.

    All of a resource is asked for when the profile does not name it: a gang takes whole nodes.
    """
    named = {name: count for name, count in profile.kubernetes.resources.items() if not name.startswith("hugepages-")}
    if named and all(_number(allocatable.get(name, "0")) >= _number(count) for name, count in named.items()):
        return named
    found = {name: count for name, count in allocatable.items()
             if any(name.startswith(prefix) for prefix in catalogue.resource_prefixes) and _number(count)}
    if len(found) == 1:
        return found
    what = f"{', '.join(sorted(found))} are offered" if found else "nothing of the kind is offered"
    return finding("resource-missing", Level.FAIL, "",
                   f"the node does not offer {' and '.join(named) or 'an RDMA resource'}; {what}",
                   "install the device plugin or the network operator, or name the resource in an own profile")


def _number(text: str) -> int:
    return int(text) if text.isdecimal() else 0
