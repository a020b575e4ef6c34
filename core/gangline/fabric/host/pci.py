"""Where a device hangs on the PCI bus, and how far two devices are apart."""

from __future__ import annotations

import re
from enum import IntEnum

from gangline.fabric.host.tree import Tree

_BUS = re.compile(r"pci[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}")
_SLOT = re.compile(r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]")
_SAME_SWITCH = 2  # below the common bridge: at most a port of the switch and the device


class Distance(IntEnum):
    """How data gets from one PCI device to another; NCCL's words, the nearest first."""

    PIX = 0  # through one switch
    PXB = 1  # through several bridges, not the processor
    PHB = 2  # through one processor's host bridge
    NODE = 3  # between host bridges of one NUMA node
    SYS = 4  # between NUMA nodes


def is_slot(name: str) -> bool:
    """Whether a name is a PCI address such as 0000:18:00.0."""
    return _SLOT.fullmatch(name) is not None


def read_path(tree: Tree, device: str) -> tuple[str, ...]:
    """From the root complex to the device; only its own address when sysfs hides the way, else empty."""
    target = tree.target(device) or ""
    path = tuple(part for part in target.split("/") if _BUS.fullmatch(part) or _SLOT.fullmatch(part))
    if path and _SLOT.fullmatch(path[-1]):
        return path
    for line in (tree.text(f"{device}/uevent") or "").splitlines():
        name, _, value = line.partition("=")
        if name == "PCI_SLOT_NAME" and _SLOT.fullmatch(value):
            return (value,)
    return ()


def read_numa(tree: Tree, device: str) -> int | None:
    """The NUMA node; None when the platform does not say (the kernel writes -1)."""
    node = tree.number(f"{device}/numa_node")
    return node if node is not None and node >= 0 else None


def distance(a: tuple[str, ...], b: tuple[str, ...], a_numa: int | None, b_numa: int | None) -> Distance | None:
    """How far two paths are apart; None when it cannot be known."""
    if len(a) < 2 or len(b) < 2:
        return None
    common = 0
    while common < min(len(a), len(b)) and a[common] == b[common]:
        common += 1
    if common > 1:
        near = max(len(a), len(b)) - common <= _SAME_SWITCH
        return Distance.PIX if near else Distance.PXB
    if common == 1:
        return Distance.PHB
    if a_numa is None or b_numa is None:
        return None
    return Distance.NODE if a_numa == b_numa else Distance.SYS
