"""What is known of a kind of machine: the rows of profiles.yaml as values."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Literal

from pydantic import Field

from gangline.model.base import Wire

Kind = Literal["infiniband", "roce", "efa", "tcpx"]
Version = tuple[int, ...]


class Match(Wire):
    """When a host is of this kind. Everything that is written must hold; `*` stands for anything."""

    dmi: dict[str, tuple[str, ...]] = {}
    files: tuple[str, ...] = Field(default=(), description="any of them is there")
    devices: tuple[str, ...] = Field(default=(), description="an RDMA device has one of these vendor:device ids")
    hcas: tuple[int, int] | None = Field(default=None, description="from so many to so many RDMA devices")
    link_layer: Literal["InfiniBand", "Ethernet"] | None = None
    interface_driver: str | None = None
    interfaces: tuple[int, int] | None = Field(default=None, description="how many interfaces have that driver")


class Setting(Wire):
    """A variable the environment gets. `must`: wrong or slow without; `tune`: the provider's advice;
    `advice`: told and not set, because it depends on `when`.
    """

    name: str
    value: str
    level: Literal["must", "tune", "advice"] = "tune"
    why: str
    source: str = ""
    when: str = ""
    since: str | None = Field(default=None, description="the first NCCL version that knows it")
    before: str | None = Field(default=None, description="the first NCCL version that does without")


class Avoid(Wire):
    """A variable that is not to be set: `leave` to the plugin, or `never` because it does harm."""

    name: str
    level: Literal["leave", "never"] = "leave"
    why: str


class Undoes(Wire):
    """Values of a variable that undo what rdma promises; patterns, and !pattern for all but that."""

    name: str
    values: tuple[str, ...]
    why: str

    def hits(self, value: str) -> bool:
        """Whether a value is one of them."""
        given = value.strip().lower()
        return any(not fnmatchcase(given, pattern[1:].lower()) if pattern.startswith("!")
                   else fnmatchcase(given, pattern.lower()) for pattern in self.values)


class Library(Wire):
    """A shared library that must be found: its file's name as a pattern, and the usual directories."""

    file: str
    directories: tuple[str, ...] = ()
    why: str = ""
    prepend: bool = Field(default=False, description="its directory goes first on the loader's path")


class Kubernetes(Wire):
    """What a pod must ask for."""

    gpu_resource: str = "nvidia.com/gpu"
    resources: dict[str, str] = {}
    annotations: dict[str, str] = {}
    claims: dict[str, int] = Field(default={}, description="device classes of dynamic allocation, and how many")
    host_network: bool = False
    compute_domain: bool = False
    notes: tuple[str, ...] = ()


class Profile(Wire):
    """One family of machines. Counts and rates that nobody has published are None and are read, not checked."""

    name: str
    provider: str
    title: str
    kind: Kind | None = Field(default=None, description="None: as the ports say")
    gpu_types: tuple[str, ...] = ()
    gpus: int | None = None
    nics: int | None = None
    nic_gbps: int | None = None
    match: Match | None = Field(default=None, description="None: only when it is named")
    network: str = Field(default="IB", description="what NCCL_NET says, so that nothing else can be taken")
    accepts: tuple[str, ...] = Field(default=(), description="other values of NCCL_NET that mean the same")
    libraries: tuple[Library, ...] = ()
    env: tuple[Setting, ...] = ()
    avoid: tuple[Avoid, ...] = ()
    undoes: tuple[Undoes, ...] = ()
    not_compute: tuple[str, ...] = Field(default=(), description="devices that look like RDMA and are not for it")
    expected_hcas: tuple[tuple[str, ...], ...] = Field(default=(), description="to compare with, never to set")
    data_interfaces: tuple[tuple[str, ...], ...] = Field(default=(), description="without RDMA devices: either set")
    gid_index: int | None = Field(default=None, description="pinned only where every port has it, and it is good")
    address_family: Literal["AF_INET", "AF_INET6"] | None = None
    tenant_pkey: bool = Field(default=False, description="a partition key of the tenant's own is needed")
    modules: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    capabilities: tuple[str, ...] = ()
    ulimits: dict[str, str] = {}
    hugepages_2mib: int = 0
    shm_bytes: int = 16 << 30
    topology_files: tuple[str, ...] = Field(default=(), description="any of them must be there")
    mtu_bytes: int | None = None
    nvlink_domain: bool = Field(default=False, description="NVLink reaches other nodes")
    gpu_direct: bool = True
    daemons: tuple[str, ...] = ()
    kubernetes: Kubernetes = Kubernetes()
    notes: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    checked: str = Field(description="when the sources were last read, such as 2026-09")
    unsure: tuple[str, ...] = Field(default=(), description="where sources contradict each other")

    @property
    def node_gbps(self) -> int | None:
        """What a node's network carries one way, in Gbps."""
        return None if self.nics is None or self.nic_gbps is None else self.nics * self.nic_gbps

    @property
    def verbs(self) -> bool:
        """Whether NCCL drives the devices itself, so that its own device list, GIDs and so on count."""
        return self.kind not in ("efa", "tcpx")

    def wanted(self) -> tuple[str, ...]:
        """Patterns of the files whose presence matters to this profile."""
        match = self.match.files if self.match is not None else ()
        # A device that a profile needs is asked for as well as shown in the list of all of them.
        return (*match, *self.devices, *self.topology_files,
                *(f"{folder}/{library.file}" for library in self.libraries
                  for folder in (*library.directories, *LIBRARY_DIRECTORIES)))


class NicKind(Wire):
    """A maker's devices: which kernel driver, and whether ports tell the truth about their state."""

    ids: tuple[str, ...]
    maker: str
    driver: str
    kind: Kind | None = None
    state_is_constant: bool = False


class Catalogue(Wire):
    """Every profile that is known here, and the ids by which devices are recognised."""

    profiles: tuple[Profile, ...]
    nics: tuple[NicKind, ...]
    gpu_ids: dict[str, str]
    gpu_vendors: tuple[str, ...]
    resource_prefixes: tuple[str, ...] = ()
    peer_memory_modules: tuple[str, ...] = ()

    def profile(self, name: str) -> Profile | None:
        """The profile of that name, or None."""
        return next((profile for profile in self.profiles if profile.name == name), None)

    def wanted(self) -> tuple[str, ...]:
        """Patterns of every file whose presence matters to some profile."""
        return tuple(dict.fromkeys(pattern for profile in self.profiles for pattern in profile.wanted()))


LIBRARY_DIRECTORIES = ("usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu", "usr/lib64", "usr/lib", "usr/local/lib",
                       "lib64", "lib/x86_64-linux-gnu")
