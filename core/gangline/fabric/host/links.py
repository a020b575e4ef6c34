"""Network interfaces from /sys/class/net, and which of them carries the default route."""

from __future__ import annotations

from gangline.fabric.host.pci import read_path
from gangline.fabric.host.tree import Tree
from gangline.fabric.host.values import Interface

CLASS = "sys/class/net"
MOST_MBPS = 10**9  # beyond it the file is broken
_UP = 0x1  # RTF_UP
_ZEROS = "0" * 32


def read_interfaces(tree: Tree) -> tuple[Interface, ...]:
    """Every interface of this network namespace but the loopback."""
    default = _default_routes(tree)
    return tuple(_interface(tree, name, name in default) for name in tree.names(CLASS)
                 if name not in ("lo", "bonding_masters"))


def _interface(tree: Tree, name: str, default_route: bool) -> Interface:
    base = f"{CLASS}/{name}"
    path = read_path(tree, f"{base}/device")
    driver = tree.target(f"{base}/device/driver")
    master = tree.target(f"{base}/master")
    bond = master.rsplit("/", 1)[-1] if master else None
    if bond is not None and not tree.exists(f"{CLASS}/{bond}/bonding"):
        bond = None  # a bridge or a virtual router
    speed = _number(tree, f"{base}/speed")
    return Interface(
        name=name, state=tree.text(f"{base}/operstate"),
        speed_gbps=speed / 1000 if speed is not None and 0 < speed < MOST_MBPS else None,
        mtu_bytes=tree.number(f"{base}/mtu"), carrier_changes=tree.number(f"{base}/carrier_changes"),
        driver=driver.rsplit("/", 1)[-1] if driver else None, pci=path[-1] if path else None, bond=bond,
        is_bond=tree.exists(f"{base}/bonding"), default_route=default_route,
        lower=tuple(name.removeprefix("lower_") for name in tree.names(base) if name.startswith("lower_")))


def _number(tree: Tree, path: str) -> int | None:
    """A number that the kernel refuses to tell while the link is down."""
    text = tree.text(path, quiet=True)
    try:
        return int(text) if text else None
    except ValueError:
        tree.doubt(path, f"holds {str(text)[:40]!r}, not a number")
        return None


def _default_routes(tree: Tree) -> set[str]:
    """Interfaces with the lowest metric among the default routes; IPv4 counts before IPv6."""
    found: list[tuple[int, str]] = []
    for line in (tree.text("proc/net/route") or "").splitlines()[1:]:
        part = line.split()
        if len(part) > 7 and part[1] == part[7] == "00000000" and _flag(part[3]):
            found.append((int(part[6]) if part[6].isdecimal() else 0, part[0]))
    if not found:
        for line in (tree.text("proc/net/ipv6_route") or "").splitlines():
            part = line.split()
            if len(part) > 9 and part[0] == _ZEROS and part[1] == "00" and part[9] != "lo" and _flag(part[8]):
                found.append((int(part[5], 16) if _is_hex(part[5]) else 0, part[9]))
    least = min(found, default=(0, ""))[0]
    return {name for metric, name in found if metric == least}


def _flag(text: str) -> bool:
    return _is_hex(text) and bool(int(text, 16) & _UP)


def _is_hex(text: str) -> bool:
    try:
        return int(text, 16) >= 0
    except ValueError:
        return False
