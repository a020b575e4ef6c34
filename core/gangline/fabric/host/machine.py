"""The machine around the network: firmware names, kernel, modules, limits, GPUs, NCCL's own file."""

from __future__ import annotations

import re
from collections.abc import Iterable

from gangline.fabric.host.pci import is_slot, read_numa, read_path
from gangline.fabric.host.tree import Tree
from gangline.fabric.host.values import Gpu, Memlock

_DMI = ("sys_vendor", "product_name", "chassis_asset_tag", "board_asset_tag", "board_vendor", "chassis_vendor")
_DRIVER = "proc/driver/nvidia"
_PCI = "sys/bus/pci/devices"
_SHOWS_OR_COMPUTES = (0x03, 0x12)  # PCI base classes of display controllers and of accelerators
_BUS_ID = re.compile(r"busid=\"([0-9a-fA-F:.]{7,20})\"")
_CONF = re.compile(r"([A-Z][A-Z0-9_]*)\s*=\s*(.*)")


def read_dmi(tree: Tree) -> dict[str, str]:
    """What the firmware says of the machine, of the fields that anybody may read."""
    found = {field: tree.text(f"sys/class/dmi/id/{field}") for field in _DMI}
    return {field: text for field, text in found.items() if text}


def read_modules(tree: Tree) -> tuple[str, ...] | None:
    """Kernel modules, those built in as far as they have parameters; None when neither list can be read."""
    loaded = [line.split()[0] for line in (tree.text("proc/modules") or "").splitlines() if line.split()]
    built = tree.names("sys/module")
    return tuple(sorted({*loaded, *built})) if loaded or built else None


def read_memlock(tree: Tree) -> Memlock | None:
    """The soft limit of this very process, which is what ranks inherit; None when it is not told."""
    for line in (tree.text("proc/self/limits") or "").splitlines():
        if line.startswith("Max locked memory"):
            soft = line.removeprefix("Max locked memory").split()
            if soft and (soft[0] == "unlimited" or soft[0].isdecimal()):
                return Memlock(bytes=None if soft[0] == "unlimited" else int(soft[0]))
            tree.doubt("proc/self/limits", f"holds {line!r}")
    return None


def read_capabilities(tree: Tree) -> int | None:
    """The effective capabilities of this process as a bit mask."""
    for line in (tree.text("proc/self/status") or "").splitlines():
        name, _, value = line.partition(":")
        if name == "CapEff":
            try:
                return int(value.strip(), 16)
            except ValueError:
                tree.doubt("proc/self/status", f"holds {line!r}")
    return None


def read_gpus(tree: Tree) -> tuple[Gpu, ...]:
    """GPUs and accelerators by PCI address, with the driver's name where one is loaded."""
    models = {slot: _model(tree, slot) for slot in tree.names(f"{_DRIVER}/gpus") if is_slot(slot)}
    found = []
    for slot in tree.names(_PCI):
        base = f"{_PCI}/{slot}"
        kind = tree.number(f"{base}/class", 16)
        if is_slot(slot) and kind is not None and kind >> 16 in _SHOWS_OR_COMPUTES:
            vendor, device = (tree.number(f"{base}/{name}", 16) for name in ("vendor", "device"))
            found.append(Gpu(pci=slot, vendor_id=None if vendor is None else f"{vendor:04x}",
                             device_id=None if device is None else f"{device:04x}", model=models.pop(slot, None),
                             pci_path=read_path(tree, base), numa_node=read_numa(tree, base)))
    # A sandbox may show the driver's list and hide the bus.
    return (*found, *(Gpu(pci=slot, model=model) for slot, model in models.items()))


def read_gpu_driver(tree: Tree) -> str | None:
    """The first line of the GPU driver's version; it says whether the kernel modules are the open ones."""
    return next(iter((tree.text(f"{_DRIVER}/version") or "").splitlines()), None)


def read_peer_memory_clients(tree: Tree) -> tuple[str, ...]:
    """Drivers that register GPU memory with the RDMA stack."""
    return tree.names("sys/kernel/mm/memory_peers")


def read_imex_channels(tree: Tree) -> int:
    """How many channels to memory of other nodes' GPUs this process may open."""
    return sum(name.startswith("channel") for name in tree.names("dev/nvidia-caps-imex-channels"))


def read_nccl_conf(tree: Tree) -> dict[str, str]:
    """What /etc/nccl.conf presets; NCCL takes the environment's value before it."""
    found: dict[str, str] = {}
    for line in (tree.text("etc/nccl.conf") or "").splitlines():
        match = _CONF.fullmatch(line.strip())
        if match is not None:
            found[match[1]] = match[2]
    return found


def read_topology_slots(tree: Tree, paths: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """The PCI addresses in each of the paths that is an XML file, which is how NCCL is told a hidden bus."""
    found = {path: tuple(_BUS_ID.findall(tree.text(path) or "")) for path in paths if path.endswith(".xml")}
    return {path: slots for path, slots in found.items() if slots}


def _model(tree: Tree, slot: str) -> str | None:
    for line in (tree.text(f"{_DRIVER}/gpus/{slot}/information") or "").splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "Model":
            return value.strip() or None
    return None
