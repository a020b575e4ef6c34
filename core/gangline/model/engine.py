"""What a fleet file says of the engine behind a pool: one block of settings for each kind of engine."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from gangline.model.base import Wire

LOCAL: Literal["local"] = "local"
EngineName = Literal["local", "slurm", "ray", "kubernetes"]


def _plain(value: str) -> str:
    """Text that is an argument of its own whatever reads it: no control characters, no leading dash."""
    if not value or value.startswith("-") or re.search(r"[\x00-\x1f\x7f]", value):
        raise ValueError(f"{value!r} is not plain text; write it without line breaks and not beginning with '-'")
    return value


def _absolute(value: str) -> str:
    if not value.startswith("/"):
        raise ValueError(f"{value!r} is not an absolute path")
    return _plain(value)


Plain = Annotated[str, AfterValidator(_plain), Field(max_length=1024)]
Absolute = Annotated[str, AfterValidator(_absolute), Field(max_length=1024)]
Labels = dict[Plain, Annotated[str, Field(max_length=1024, pattern=r"^[^\x00-\x1f\x7f]*$")]]


class Slurm(Wire):
    """A partition of a Slurm cluster, driven by its command line programs."""

    partition: Plain
    conf: Absolute | None = Field(default=None, description="slurm.conf [default: SLURM_CONF, else Slurm's own]")
    bin: Absolute | None = Field(default=None, description="folder of sbatch and the others [default: PATH]")
    account: Plain | None = None
    qos: Plain | None = None
    reservation: Plain | None = None
    constraint: Plain | None = None
    log_dir: Absolute | None = Field(
        default=None, description="folder of job logs that every node can write to [default: in the server's home]")


class Ray(Wire):
    """Nodes of a Ray cluster: those that carry all these labels."""

    address: Plain = Field(description="host:port of the head's GCS")
    labels: Labels = {}
    token_file: Absolute | None = Field(
        default=None, description="with Ray's own token; needed unless the head is on loopback")
    custom_resources: dict[Plain, Annotated[float, Field(gt=0)]] = Field(
        default={}, description="asked for on each node beside GPUs, such as {rdma: 1}")


class Kubernetes(Wire):
    """Nodes of a Kubernetes cluster: those that carry all these labels."""

    image: Plain = Field(description="of the supervisor and of user code: Python with gangline in it")
    labels: Labels = {}
    namespace: Plain = "default"
    kubeconfig: Absolute | None = Field(
        default=None, description="[default: the service account of the server's own pod, else KUBECONFIG]")
    context: Plain | None = None
    gpu_resource: Plain = "nvidia.com/gpu"
    resources: Labels = Field(default={}, description="asked for in each pod beside GPUs, such as {rdma/hca: '1'}")
    claims: Labels = Field(default={}, description="devices by ResourceClaimTemplate, such as {nics: efa-template}")
    secrets: tuple[Plain, ...] = Field(
        default=(), description="Secrets whose entries user code finds as variables; pods refer to them by name")
    user: int = Field(default=1000, ge=1, lt=2**31, description="number of the user, and group, that runs everything")
    capabilities: tuple[Literal["IPC_LOCK", "SYS_NICE"], ...] = Field(
        default=(), description="kept though all others are dropped; some RDMA drivers need IPC_LOCK")
    host_network: bool = False
    runtime_class: Plain | None = None
    service_account: Plain | None = None
    priority_class: Plain | None = None
    queue: Plain | None = Field(default=None, description="Kueue's LocalQueue; needed where the mode is delegated")
    tolerations: tuple[Labels, ...] = ()
    volume_claim: Plain | None = Field(default=None, description="the claim that holds the fleet's volumes")
    volume_path: Absolute = Field(default="/volumes", description="where it is in the pods: the fleet's `volumes`")
    job_kind: Literal["job", "jobset"] = "job"
