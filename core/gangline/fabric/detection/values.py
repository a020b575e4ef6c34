"""What was concluded of a host: its NICs by what they are for, its profile, and what is wrong."""

from __future__ import annotations

from enum import StrEnum

from gangline.fabric.finding import Finding, Verdict
from gangline.fabric.host.values import Gid, Host
from gangline.fabric.profiles.values import Kind, Profile
from gangline.model.base import Wire


class Role(StrEnum):
    """What a NIC is for."""

    COMPUTE = "compute"
    STORAGE = "storage"
    MANAGEMENT = "management"
    OTHER = "other"
    UNKNOWN = "unknown"


class Nic(Wire):
    """One port and what it is for. Without RDMA devices (kind "tcpx") `device` is an interface and `port` 0.

    `up` says whether traffic can pass now; `fault` why not. `near` are the PCI addresses of the GPUs that
    are nearest, `distance` how near (NCCL's words). `gid` is the address RoCE peers would use.
    """

    device: str
    port: int
    kind: Kind | None
    role: Role
    why: str
    up: bool
    fault: Finding | None = None
    gbps: float | None = None
    pci: str | None = None
    numa_node: int | None = None
    interfaces: tuple[str, ...] = ()
    vf: bool = False
    distance: str | None = None
    near: tuple[str, ...] = ()
    gid: Gid | None = None

    @property
    def name(self) -> str:
        """The port as NCCL writes it: mlx5_0:1."""
        return f"{self.device}:{self.port}" if self.port else self.device


class Fit(Wire):
    """A profile that fits a host, how well, and by what."""

    profile: str
    score: int
    reasons: tuple[str, ...]


class Detection(Wire):
    """The answer about one host. `verdict` is that of the heaviest finding."""

    profile: str
    provider: str
    kind: Kind | None
    why: tuple[str, ...]
    also_fits: tuple[str, ...] = ()
    verdict: Verdict
    gpu_types: tuple[str, ...] = ()
    gpus: int = 0
    gpu_direct: str | None = None
    socket_interface: str | None = None
    topology_file: str | None = None
    nics: tuple[Nic, ...] = ()
    findings: tuple[Finding, ...] = ()
    host: Host
    row: Profile

    @property
    def compute(self) -> tuple[Nic, ...]:
        """The NICs that carry a gang's traffic, by PCI address: those that are up."""
        return tuple(nic for nic in self.nics if nic.role is Role.COMPUTE and nic.up)

    @property
    def gbps(self) -> float | None:
        """What the compute NICs carry together; None when a rate is not known."""
        rates = [nic.gbps for nic in self.compute]
        known = [rate for rate in rates if rate is not None]
        return sum(known) if known and len(known) == len(rates) else None
