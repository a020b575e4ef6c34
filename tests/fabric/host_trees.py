"""Builds the sysfs, procfs and /dev of hosts that we do not have, from nothing but the fields that are read."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

UNLIMITED = "unlimited"
Chain = tuple[str, ...]
GPU_IDS = {"A100": "20b2", "H100": "2330", "H200": "2335", "B200": "2901", "GB200": "2941", "B300": "3182",
           "GB300": "31c2"}


def rail(number: int, leaf: int) -> Chain:
    """The way to a device behind a PCI switch of its own rail: leaf 0 for the GPU, others for NICs."""
    bus = 0x10 + number * 0x10
    return (f"pci0000:{bus:02x}", f"0000:{bus:02x}:01.0", f"0000:{bus + 1:02x}:00.0",
            f"0000:{bus + 2:02x}:{leaf:02x}.0", f"0000:{bus + 3 + leaf:02x}:00.0")


def flat(number: int) -> Chain:
    """The way to a device of a virtual machine that hides its bus."""
    return ("pci0000:00", f"0000:00:{number:02x}.0")


def apart(number: int, function: int = 0) -> Chain:
    """The way to a device behind a root port of its own, of a host bridge without GPUs."""
    return ("pci0000:00", f"0000:00:{number:02x}.0", f"0000:{number:02x}:00.{function}")


def ipv4(last: int) -> str:
    """A GID with an IPv4 address."""
    return f"0000:0000:0000:0000:0000:ffff:0a00:{last:04x}"


ROCE_TABLE = ((0, "fe80:0000:0000:0000:0000:0000:0000:{:04x}", "IB/RoCE v1"),
              (1, "fe80:0000:0000:0000:0000:0000:0000:{:04x}", "RoCE v2"),
              (2, "0000:0000:0000:0000:0000:ffff:0a00:{:04x}", "IB/RoCE v1"),
              (3, "0000:0000:0000:0000:0000:ffff:0a00:{:04x}", "RoCE v2"))
IB_TABLE = ((0, "fe80:0000:0000:0000:0002:c903:0000:{:04x}", "IB/RoCE v1"),)


class HostTree:
    """A healthy machine with one front interface; calls add to it or break it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._uverbs = 0
        self._serial = 0
        self.write("proc/sys/kernel/osrelease", "6.8.0-generic")
        self.memlock(UNLIMITED)
        self.write("proc/self/status", "Name:\tpython\nCapEff:\t0000000000000000")
        self.modules("ib_core", "ib_uverbs", "mlx5_core", "mlx5_ib", "nvidia", "nvidia_peermem")
        self.write("proc/driver/nvidia/version",
                   "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15\nGCC version: 12")
        self.library("usr/lib/x86_64-linux-gnu/libibverbs.so.1")
        self.write("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "5120")
        self.interface("lo", driver=None)
        self.interface("eth0", driver="virtio_net", gbps=25)
        self.route("eth0")

    def write(self, path: str, text: str | bytes) -> None:
        """Write a file as the kernel would, with its newline."""
        full = self.root / path
        full.parent.mkdir(parents=True, exist_ok=True)
        full.write_bytes(text if isinstance(text, bytes) else text.encode() + b"\n")

    def link(self, path: str, target: str) -> None:
        """Make a relative link, as sysfs does."""
        full = self.root / path
        full.parent.mkdir(parents=True, exist_ok=True)
        (self.root / target).mkdir(parents=True, exist_ok=True)
        full.symlink_to(os.path.relpath(self.root / target, full.parent), target_is_directory=True)

    def dmi(self, **fields: str) -> None:
        for name, text in fields.items():
            self.write(f"sys/class/dmi/id/{name}", text)

    def modules(self, *names: str) -> None:
        self.write("proc/modules", "\n".join(f"{name} 16384 0 - Live 0x0000000000000000" for name in names))

    def memlock(self, limit: str) -> None:
        self.write("proc/self/limits", "Limit                     Soft Limit           Hard Limit           Units\n"
                   f"Max locked memory         {limit:<20} {limit:<20} bytes")

    def library(self, path: str) -> None:
        self.write(path, "ELF")

    def route(self, interface: str) -> None:
        self.write("proc/net/route", "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\n"
                   f"{interface}\t00000000\t010200C0\t0003\t0\t0\t100\t00000000\n"
                   f"{interface}\t000200C0\t00000000\t0001\t0\t0\t100\t00FFFFFF")

    def interface(self, name: str, *, driver: str | None, chain: Chain | None = None, gbps: float = 0,
                  mtu: int = 9000, state: str = "up", bond: str | None = None, over: Sequence[str] = ()) -> None:
        """A network interface: of a PCI device, else a virtual one, which may run over others (bond: a bond's own)."""
        where = f"sys/devices/{'/'.join(chain)}" if chain else "sys/devices/virtual"
        base = f"{where}/net/{name}"
        for file, value in (("operstate", state), ("mtu", str(mtu)), ("carrier_changes", "2"),
                            ("speed", str(int(gbps * 1000)) if gbps else "-1")):
            self.write(f"{base}/{file}", value)
        self.link(f"sys/class/net/{name}", base)
        if driver is not None:
            if chain is None:
                chain = flat(0x1F)
                where = f"sys/devices/{'/'.join(chain)}/virtio{self._next()}"
            self.link(f"{base}/device", where)
            if not (self.root / where / "driver").exists():
                self.link(f"{where}/driver", f"sys/bus/pci/drivers/{driver}")
        if bond is not None:
            self.write(f"{base}/bonding/mode", bond)
        for lower in over:
            self.link(f"{base}/lower_{lower}", os.path.relpath((self.root / f"sys/class/net/{lower}").resolve(),
                                                               self.root.resolve()))
            if bond is not None:
                self.link(f"sys/class/net/{lower}/master", base)

    def gpu(self, kind: str, chain: Chain, *, numa: int = 0, model: bool = True, vendor: str = "10de",
            device: str | None = None) -> None:
        slot = chain[-1]
        self._pci(chain, vendor, device or GPU_IDS[kind], 0x030200, numa)
        if model:
            self.write(f"proc/driver/nvidia/gpus/{slot}/information", f"Model: \t\t NVIDIA {kind} 80GB HBM3\nIRQ: 1")

    def hca(self, name: str, chain: Chain, *, link: str = "InfiniBand", gbps: float = 400, state: str = "4: ACTIVE",
            phys: str = "5: LinkUp", vendor: str = "15b3", device: str = "1021", driver: str = "mlx5_core",
            firmware: str = "28.42.1000", guid: str | None = None, numa: int = 0,
            gids: Iterable[tuple[int, str, str]] | None = None, interface: str | None = None, mtu: int = 9000,
            vf_of: Chain | None = None, pkeys: Sequence[str] = ("0xffff", "0x8001"), char: bool = True,
            ports: int = 1, p2p: str | None = None, rate: str | None = None) -> None:
        """An RDMA device with its PCI device, its ports and, with `interface`, its network interface."""
        number = self._next()
        where = self._pci(chain, vendor, device, 0x020700, numa)
        base = f"{where}/infiniband/{name}"
        self.link(f"sys/class/infiniband/{name}", base)
        self.link(f"{base}/device", where)
        if not (self.root / where / "driver").exists():
            self.link(f"{where}/driver", f"sys/bus/pci/drivers/{driver}")
        if vf_of is not None:
            self.link(f"{where}/physfn", f"sys/devices/{'/'.join(vf_of)}")
        if p2p is not None:
            self.write(f"{where}/p2p", p2p)
        self.write(f"{base}/fw_ver", firmware)
        self.write(f"{base}/node_guid", guid or f"0002:c903:0000:{number:04x}")
        if char:
            self.write(f"sys/class/infiniband_verbs/uverbs{self._uverbs}/ibdev", name)
            self.write(f"dev/infiniband/uverbs{self._uverbs}", "")
            self._uverbs += 1
        if interface is not None:
            self.interface(interface, driver=driver, chain=chain, gbps=gbps, mtu=mtu)
        table = gids if gids is not None else IB_TABLE if link == "InfiniBand" else ROCE_TABLE
        for port in range(1, ports + 1):
            self._port(f"{base}/ports/{port}", link, rate or f"{gbps:g} Gb/sec (4X NDR)", state, phys, pkeys)
            for index, value, kind in table:
                self.gid(name, index, value.format(number), kind, interface, port=port)

    def gid(self, name: str, index: int, value: str, kind: str, interface: str | None = None, *, port: int = 1) -> None:
        base = f"sys/class/infiniband/{name}/ports/{port}"
        self.write(f"{base}/gids/{index}", value)
        self.write(f"{base}/gid_attrs/types/{index}", kind)
        if interface is not None:
            self.write(f"{base}/gid_attrs/ndevs/{index}", interface)

    def efa(self, name: str, chain: Chain, *, gbps: float, device: str = "efa2", numa: int = 0) -> None:
        """An EFA device, with the constants its driver shows."""
        self.hca(name, chain, link="Unknown", gbps=gbps, vendor="1d0f", device=device, driver="efa", firmware="0.0.0.0",
                 numa=numa, gids=((0, "fe80:0000:0000:0000:0000:0000:0000:{:04x}", "IB/RoCE v1"),), p2p="NVIDIA")

    def _port(self, base: str, link: str, rate: str, state: str, phys: str, pkeys: Sequence[str]) -> None:
        for file, value in (("state", state), ("phys_state", phys), ("rate", rate), ("link_layer", link),
                            ("counters/port_xmit_data", "1000"), ("counters/link_downed", "255"),
                            ("hw_counters/lifespan", "10")):
            self.write(f"{base}/{file}", value)
        for index, key in enumerate(pkeys):
            self.write(f"{base}/pkeys/{index}", key)

    def _pci(self, chain: Chain, vendor: str, device: str, kind: int, numa: int) -> str:
        where = f"sys/devices/{'/'.join(chain)}"
        slot = chain[-1]
        for file, value in (("vendor", f"0x{vendor}"), ("device", f"0x{device}"), ("class", f"{kind:#08x}"),
                            ("numa_node", str(numa)), ("uevent", f"DRIVER=x\nPCI_SLOT_NAME={slot}")):
            self.write(f"{where}/{file}", value)
        if not (self.root / "sys/bus/pci/devices" / slot).exists():
            self.link(f"sys/bus/pci/devices/{slot}", where)
        return where

    def _next(self) -> int:
        self._serial += 1
        return self._serial
