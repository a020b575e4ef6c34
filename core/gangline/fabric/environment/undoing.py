"""Whether a user's own value undoes what rdma promises."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase

from gangline.fabric.detection import Detection
from gangline.fabric.detection.gids import is_routable


def undone_by(name: str, value: str, found: Detection) -> str | None:
    """Why a value undoes it, or None."""
    rule = _RULES.get(name)
    told = rule(value, found) if rule is not None else None
    if told is not None:
        return told
    return next((row.why for row in found.row.undoes if row.name == name and row.hits(value)), None)


def _network(value: str, found: Detection) -> str | None:
    accepted = (found.row.network, *found.row.accepts)
    if any(fnmatchcase(value.lower(), pattern.lower()) for pattern in accepted):
        return None
    return f"the transport of {found.profile} is {found.row.network}"


def _hcas(value: str, found: Detection) -> str | None:
    if not found.row.verbs:
        return None
    taken = selected(value, found)
    compute = {nic.name for nic in found.compute}
    if not taken:
        return "it names no port of this host, so NCCL finds no device"
    wrong = sorted(taken - compute)
    if wrong:
        return f"it takes in {', '.join(wrong[:4])}, which {'is' if len(wrong) == 1 else 'are'} not for compute"
    return None


def selected(value: str, found: Detection) -> set[str]:
    """The ports an NCCL_IB_HCA takes in, read as NCCL does: ^ excludes, = means whole names, else beginnings."""
    exclude, rest = value.startswith("^"), value.removeprefix("^")
    exact, rest = rest.startswith("="), rest.removeprefix("=")
    terms = [term.split(":") for term in rest.split(",") if term]
    taken = set()
    for nic in found.nics:
        hit = any((nic.device == term[0] if exact else nic.device.startswith(term[0]))
                  and (len(term) == 1 or term[1] == str(nic.port)) for term in terms)
        if hit != exclude:
            taken.add(nic.name)
    return taken


def _gid_index(value: str, found: Detection) -> str | None:
    if found.kind != "roce" or value.strip() == "-1":
        return None
    ports = {f"{hca.name}:{port.number}": port for hca in found.host.hcas for port in hca.ports}
    bad = [nic.name for nic in found.compute
           if not any(str(gid.index) == value.strip() and is_routable(gid) for gid in ports[nic.name].gids)]
    if not bad:
        return None
    return f"on {', '.join(bad[:4])} that entry is not RoCE v2 with a routable address"


def _socket(value: str, found: Detection) -> str | None:
    """NCCL reads a name without = as a beginning, others as a whole name; a name that fits neither way is wrong."""
    if value.startswith("^"):
        return None
    names = [name for name in value.removeprefix("=").split(",") if name]
    here = [interface.name for interface in found.host.interfaces] + ["lo"]
    if any(one.startswith(name) for name in names for one in here):
        return None
    return "no interface of this host is called so: ranks will not meet"


def _plugin(value: str, found: Detection) -> str | None:
    needs = any(library.prepend for library in found.row.libraries)
    return "the transport comes from a plugin" if needs and value.lower() == "none" else None


_RULES: Mapping[str, Callable[[str, Detection], str | None]] = {
    "NCCL_NET": _network, "NCCL_IB_HCA": _hcas, "NCCL_IB_GID_INDEX": _gid_index, "NCCL_NET_PLUGIN": _plugin,
    **dict.fromkeys(("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME"), _socket),
}
