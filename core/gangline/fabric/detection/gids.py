"""Which GID of a RoCE port peers can reach."""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Iterable

from gangline.fabric.host.values import Gid, Port

ROCE_V2 = "RoCE v2"


def is_routable(gid: Gid) -> bool:
    """Whether an entry is RoCE v2 with an address that is not of this link only."""
    return gid.kind == ROCE_V2 and not ipaddress.IPv6Address(gid.value).is_link_local


def family(gid: Gid) -> str:
    """The address family of an entry, as NCCL_IB_ADDR_FAMILY names it."""
    return "AF_INET" if ipaddress.IPv6Address(gid.value).ipv4_mapped is not None else "AF_INET6"


def choose_gid(port: Port, *, wanted_family: str | None = None, addr_range: str | None = None,
               interfaces: Collection[str] = ()) -> Gid | None:
    """The best entry: of the wanted family and range, else IPv4 before IPv6; the lowest index of equals.

    An entry whose interface is not in this network namespace cannot be used from here.
    """
    usable = [gid for gid in port.gids if is_routable(gid) and (gid.interface is None or gid.interface in interfaces)]
    if addr_range is not None:
        usable = [gid for gid in usable if _within(gid, addr_range)]
    if wanted_family is not None:
        usable = [gid for gid in usable if family(gid) == wanted_family]
    return min(usable, key=lambda gid: (family(gid) != "AF_INET", gid.interface is None, gid.index), default=None)


def common_index(gids: Iterable[Gid | None]) -> int | None:
    """The index that all have in common, or None."""
    found = {gid.index if gid is not None else None for gid in gids}
    return found.pop() if len(found) == 1 else None


def _within(gid: Gid, addr_range: str) -> bool:
    try:
        network = ipaddress.ip_network(addr_range, strict=False)
    except ValueError:
        return True  # said elsewhere; it must not hide every address
    address = ipaddress.IPv6Address(gid.value)
    if isinstance(network, ipaddress.IPv4Network):
        return address.ipv4_mapped is not None and address.ipv4_mapped in network
    return address in network
