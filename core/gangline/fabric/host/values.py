"""What a host's files say of its network, as they say it. Nothing here is judged."""

from __future__ import annotations

from fnmatch import fnmatchcase

from gangline.model.base import Wire


class Unread(Wire):
    """A file that is there and could not be used."""

    path: str
    why: str


class Gid(Wire):
    """One address of a port. `kind` is as the kernel names it: "RoCE v2" or "IB/RoCE v1"."""

    index: int
    value: str
    kind: str | None = None
    interface: str | None = None


class Port(Wire):
    """A port of an HCA, its state in the kernel's words such as "ACTIVE" and "LinkUp"; None is not known."""

    number: int
    state: str | None = None
    phys_state: str | None = None
    link_layer: str | None = None
    rate_gbps: float | None = None
    gids: tuple[Gid, ...] = ()
    pkeys: tuple[int, ...] = ()
    counters: dict[str, int] = {}  # since the driver was loaded; only differences mean something


class Hca(Wire):
    """An RDMA device. `pci_path` runs from the root complex to the device itself, empty when it is hidden."""

    name: str
    vendor_id: str | None = None
    device_id: str | None = None
    driver: str | None = None
    firmware: str | None = None
    board_id: str | None = None
    node_guid: str | None = None
    pci: str | None = None
    pci_path: tuple[str, ...] = ()
    numa_node: int | None = None
    vf: bool = False
    pf_pci: str | None = None  # of a VF: its physical function
    vfs: int = 0  # of a physical function: how many are enabled
    interfaces: tuple[str, ...] = ()
    uverbs: str | None = None
    peer_memory: str | None = None  # what the driver says of GPU memory (EFA's p2p attribute)
    ports: tuple[Port, ...] = ()


class Interface(Wire):
    """A network interface. `bond` is the bond it belongs to, `lower` what it runs on: members, a VLAN's parent."""

    name: str
    state: str | None = None
    speed_gbps: float | None = None
    mtu_bytes: int | None = None
    carrier_changes: int | None = None
    driver: str | None = None
    pci: str | None = None
    bond: str | None = None
    is_bond: bool = False
    lower: tuple[str, ...] = ()
    default_route: bool = False


class Gpu(Wire):
    """A display or accelerator device of the PCI bus; `model` is what its driver calls it."""

    pci: str
    vendor_id: str | None = None
    device_id: str | None = None
    model: str | None = None
    pci_path: tuple[str, ...] = ()
    numa_node: int | None = None


class Memlock(Wire):
    """How much memory a process may lock. `bytes` is None when there is no limit."""

    bytes: int | None = None


class Host(Wire):
    """Everything that was read. `present` are the files, of those that profiles ask for, that are there."""

    root: str = "/"
    dmi: dict[str, str] = {}
    kernel: str | None = None
    modules: tuple[str, ...] | None = None
    memlock: Memlock | None = None
    capabilities: int | None = None  # effective, as a bit mask
    hugepages_2mib: int | None = None
    gpu_driver: str | None = None
    peer_memory_clients: tuple[str, ...] = ()
    imex_channels: int = 0
    nccl_conf: dict[str, str] = {}
    hcas: tuple[Hca, ...] = ()
    interfaces: tuple[Interface, ...] = ()
    gpus: tuple[Gpu, ...] = ()
    present: tuple[str, ...] = ()
    topology_slots: dict[str, tuple[str, ...]] = {}  # PCI addresses that a topology file names
    unread: tuple[Unread, ...] = ()

    def has(self, pattern: str) -> bool:
        """Whether a file that a profile asks for is there; the pattern may hold * and begin with /."""
        return bool(self.found(pattern))

    def found(self, pattern: str) -> tuple[str, ...]:
        """The files that are there, of those a pattern stands for."""
        wanted = pattern.lstrip("/")
        return tuple(path for path in self.present if fnmatchcase(path, wanted))

    def interface(self, name: str) -> Interface | None:
        """The interface of that name, or None."""
        return next((interface for interface in self.interfaces if interface.name == name), None)

    def beneath(self, name: str) -> frozenset[str]:
        """An interface and everything it runs on: a bridge over a VLAN over a bond over two ports."""
        found: set[str] = set()
        waiting = [name]
        while waiting:
            one = waiting.pop()
            link = self.interface(one)
            if link is not None and one not in found:
                found.add(one)
                waiting += link.lower
        return frozenset(found)

    @property
    def route(self) -> Interface | None:
        """The interface that carries the default route, or None."""
        return next((interface for interface in self.interfaces if interface.default_route), None)
