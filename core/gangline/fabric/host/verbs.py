"""RDMA devices from /sys/class/infiniband."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable

from gangline.fabric.host.pci import read_numa, read_path
from gangline.fabric.host.tree import Tree
from gangline.fabric.host.values import Gid, Hca, Port

CLASS = "sys/class/infiniband"
MOST_PORTS = 8
MOST_GIDS = 512  # mlx5 has 256 for each port
_RATE = re.compile(r"(\d+(?:\.\d+)?)\s*Gb/sec")
_STATE = re.compile(r"\s*\d+\s*:\s*(\w+)")
_UVERBS = "sys/class/infiniband_verbs"


def read_hcas(tree: Tree) -> tuple[Hca, ...]:
    """Every RDMA device, in the order of names."""
    uverbs = {tree.text(f"{_UVERBS}/{name}/ibdev"): name for name in tree.names(_UVERBS) if name.startswith("uverbs")}
    return tuple(_hca(tree, name, uverbs.get(name)) for name in tree.names(CLASS))


def _hca(tree: Tree, name: str, uverbs: str | None) -> Hca:
    base, device = f"{CLASS}/{name}", f"{CLASS}/{name}/device"
    path = read_path(tree, device)
    pf = tree.target(f"{device}/physfn")
    driver = tree.target(f"{device}/driver")
    return Hca(
        name=name, vendor_id=_hex(tree, f"{device}/vendor"), device_id=_hex(tree, f"{device}/device"),
        driver=driver.rsplit("/", 1)[-1] if driver else None, firmware=tree.text(f"{base}/fw_ver"),
        board_id=tree.text(f"{base}/board_id"), node_guid=tree.text(f"{base}/node_guid"),
        pci=path[-1] if path else None, pci_path=path, numa_node=read_numa(tree, device),
        vf=tree.exists(f"{device}/physfn"), pf_pci=pf.rsplit("/", 1)[-1] if pf else None,
        vfs=max(0, tree.number(f"{device}/sriov_numvfs") or 0),
        interfaces=tree.names(f"{device}/net"), uverbs=uverbs, peer_memory=tree.text(f"{device}/p2p", quiet=True),
        ports=tuple(_ports(tree, f"{base}/ports")))


def _ports(tree: Tree, base: str) -> Iterable[Port]:
    numbers = [int(name) for name in tree.names(base) if name.isdigit()]
    for number in numbers[:MOST_PORTS]:
        port = f"{base}/{number}"
        yield Port(
            number=number, state=_state(tree, f"{port}/state"), phys_state=_state(tree, f"{port}/phys_state"),
            link_layer=tree.text(f"{port}/link_layer"), rate_gbps=_rate_gbps(tree, f"{port}/rate"),
            gids=tuple(_gids(tree, port)), pkeys=tuple(_pkeys(tree, f"{port}/pkeys")),
            counters={**_counters(tree, f"{port}/counters"), **_counters(tree, f"{port}/hw_counters")})


def _state(tree: Tree, path: str) -> str | None:
    """The word of "4: ACTIVE"."""
    text = tree.text(path)
    if text is None:
        return None
    match = _STATE.fullmatch(text)
    if match is None:
        tree.doubt(path, f"holds {text[:40]!r}, not a state such as '4: ACTIVE'")
        return None
    return match[1]


def _rate_gbps(tree: Tree, path: str) -> float | None:
    """The number of "400 Gb/sec (4X NDR)"."""
    text = tree.text(path)
    if text is None:
        return None
    match = _RATE.match(text)
    if match is None or not 0 < float(match[1]) < 1e6:
        tree.doubt(path, f"holds {text[:40]!r}, not a rate such as '400 Gb/sec (4X NDR)'")
        return None
    return float(match[1])


def _gids(tree: Tree, port: str) -> Iterable[Gid]:
    """The entries in use. Reading the kind of an unused one is an error by design, so it is not asked for."""
    indices = [int(name) for name in tree.names(f"{port}/gids") if name.isdigit()]
    for index in indices[:MOST_GIDS]:
        value = tree.text(f"{port}/gids/{index}", quiet=True)
        if not value or not value.strip("0:"):
            continue
        try:
            ipaddress.IPv6Address(value)
        except ValueError:
            tree.doubt(f"{port}/gids/{index}", f"holds {value[:40]!r}, not a GID")
            continue
        yield Gid(index=index, value=value, kind=tree.text(f"{port}/gid_attrs/types/{index}", quiet=True) or None,
                  interface=tree.text(f"{port}/gid_attrs/ndevs/{index}", quiet=True) or None)


def _pkeys(tree: Tree, base: str) -> Iterable[int]:
    for name in tree.names(base)[:MOST_GIDS]:
        key = tree.number(f"{base}/{name}", 16)
        if key:
            yield key


def _counters(tree: Tree, base: str) -> dict[str, int]:
    found = {name: tree.number(f"{base}/{name}") for name in tree.names(base) if name != "lifespan"}
    return {name: value for name, value in found.items() if value is not None}


def _hex(tree: Tree, path: str) -> str | None:
    """A PCI id as four hex digits."""
    number = tree.number(path, 16)
    return f"{number:04x}" if number is not None and 0 <= number <= 0xFFFF else None
