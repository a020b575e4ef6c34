"""Why a port passes no traffic now, and what to do about it."""

from __future__ import annotations

from gangline.fabric.finding import Finding, Level, finding
from gangline.fabric.host.values import Gid, Hca, Interface, Port
from gangline.fabric.profiles.values import Kind

_LINK_UP = "LinkUp"


def fault_of(hca: Hca, port: Port, kind: Kind | None, gid: Gid | None, *, constant: bool) -> Finding | None:
    """What stops this port, or None. How heavily it weighs depends on the others, so that is decided later."""
    where = f"{hca.name}:{port.number}"
    if hca.vf and hca.node_guid is not None and not hca.node_guid.strip("0:"):
        return _fail("guid-zero", where, "the virtual function has no node GUID",
                     "give it one on the host (ip link set DEV vf N node_guid …), or let the SR-IOV plugin do it")
    if constant:
        return None
    if port.state is None:
        return finding("state-unknown", Level.UNKNOWN, where, "its state cannot be read",
                       f"read /sys/class/infiniband/{hca.name}/ports/{port.number}/state as this user")
    if port.state != "ACTIVE":
        return _not_active(hca, port, where)
    if port.phys_state not in (None, _LINK_UP):
        return _fail("port-down", where, f"it is ACTIVE but its link is {port.phys_state}",
                     "check the cable and the switch port")
    if kind == "roce" and gid is None:
        return _no_gid(port, where)
    return None


def interface_fault(interface: Interface) -> Finding | None:
    """What stops an interface that carries data without RDMA devices, or None."""
    if interface.state in ("up", "unknown"):  # some drivers never say more than unknown
        return None
    if interface.state is None:
        return finding("state-unknown", Level.UNKNOWN, interface.name, "its state cannot be read",
                       f"read /sys/class/net/{interface.name}/operstate as this user")
    return _fail("port-down", interface.name, f"the interface is {interface.state}",
                 "bring it up; if it will not, replace the machine")


def _not_active(hca: Hca, port: Port, where: str) -> Finding:
    state, link = port.state, port.phys_state
    if state == "INIT":
        return _fail("port-init", where, "the link is up but the port is INIT: no subnet manager has configured it",
                     "start a subnet manager, or ask the provider; check the port's partition")
    if link == "Disabled":
        return _fail("port-disabled", where, "the port is switched off",
                     f"switch it on (ip link set up, or rdma link / ibportstate for {hca.name})")
    if link == _LINK_UP and hca.vf:
        return _fail("vf-down", where, f"the link is up but the port is {state}",
                     "set the virtual function's link state to auto on the host")
    if link == _LINK_UP:
        return _fail("port-down", where, f"the link is up but the port is {state}", "check the kernel's log")
    if link == "Polling":
        return _fail("port-down", where, f"the port is {state} and looks for a partner",
                     "check the cable, the optic and the switch port; the machine may have to be replaced")
    return _fail("port-down", where, f"the port is {state}" + (f" ({link})" if link else ""),
                 "check the cable, the switch port and the interface's state")


def _no_gid(port: Port, where: str) -> Finding:
    kinds = sorted({gid.kind or "of unknown kind" for gid in port.gids})
    have = f"it has {len(port.gids)} GIDs ({', '.join(kinds)})" if port.gids else "its GID table is empty"
    return _fail("gid-none", where, f"no GID is RoCE v2, routable and of this network namespace: {have}",
                 "give the NIC's interface an address, in the pod too; or leave the NIC out in an own profile")


def _fail(code: str, where: str, text: str, fix: str) -> Finding:
    return finding(code, Level.FAIL, where, text, fix)
