"""What every port is for, and whether traffic can pass: compute is told from storage, management and the rest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from gangline.fabric.detection.faults import fault_of, interface_fault
from gangline.fabric.detection.gids import choose_gid
from gangline.fabric.detection.kinds import compute_gpus, port_kind, state_is_constant
from gangline.fabric.detection.values import Nic, Role
from gangline.fabric.host.pci import Distance, distance
from gangline.fabric.host.values import Gpu, Hca, Host, Interface, Port
from gangline.fabric.profiles.values import Catalogue, Kind, Profile

_Told = tuple[Role, str] | None


@dataclass(frozen=True, slots=True)
class _Seen:
    """A port, with what the rules about it need to know."""

    hca: Hca
    port: Port
    kind: Kind | None
    constant: bool
    distance: Distance | None
    near: tuple[Gpu, ...]

    @property
    def active(self) -> bool:
        return self.constant or self.port.state == "ACTIVE"


@dataclass(frozen=True, slots=True)
class _Around:
    """What the other ports and the host are like."""

    host: Host
    profile: Profile
    best_gbps: float
    bonds_lead: bool  # bonds carry more than everything else
    some_near: bool
    all_near: bool  # every GPU has a NIC behind its switch
    slots: frozenset[str]


def sort_nics(host: Host, profile: Profile, catalogue: Catalogue) -> tuple[Nic, ...]:
    """Every port with its role and the reason, in the order of PCI addresses."""
    if profile.kind == "tcpx":
        return data_interfaces(host, profile)
    gpus = compute_gpus(host, catalogue)
    seen = [_see(hca, port, gpus, catalogue) for hca in host.hcas for port in hca.ports]
    near = {gpu.pci for one in seen if one.distance is not None and one.distance <= Distance.PXB for gpu in one.near}
    around = _Around(
        host=host, profile=profile,
        best_gbps=max((one.port.rate_gbps or 0 for one in seen if one.active), default=0),
        bonds_lead=_bonds_lead(seen, host), some_near=bool(near), all_near={gpu.pci for gpu in gpus} <= near,
        slots=frozenset(hca.pci for hca in host.hcas if hca.pci is not None))
    nics = [_nic(one, around) for one in seen]
    return tuple(sorted(_one_kind(nics, profile), key=lambda nic: (nic.pci is None, nic.pci or "", nic.port)))


def data_interfaces(host: Host, profile: Profile) -> tuple[Nic, ...]:
    """The interfaces that carry data where there are no RDMA devices: of the known sets the one that is there."""
    counts = [sum(host.interface(name) is not None for name in names) for names in profile.data_interfaces]
    if not any(counts):
        return ()
    names = profile.data_interfaces[counts.index(max(counts))]
    return tuple(_data_nic(interface) for name in names if (interface := host.interface(name)) is not None)


def _data_nic(interface: Interface) -> Nic:
    fault = interface_fault(interface)
    return Nic(device=interface.name, port=0, kind="tcpx", role=Role.COMPUTE, why="the profile names it",
               up=fault is None, fault=fault, gbps=interface.speed_gbps, pci=interface.pci,
               interfaces=(interface.name,))


def _see(hca: Hca, port: Port, gpus: tuple[Gpu, ...], catalogue: Catalogue) -> _Seen:
    ways = [(distance(hca.pci_path, gpu.pci_path, hca.numa_node, gpu.numa_node), gpu) for gpu in gpus]
    known = [(way, gpu) for way, gpu in ways if way is not None]
    nearest = min((way for way, _ in known), default=None)
    return _Seen(hca=hca, port=port, kind=port_kind(hca, port, catalogue), constant=state_is_constant(hca, catalogue),
                 distance=nearest, near=tuple(gpu for way, gpu in known if way == nearest))


def _nic(seen: _Seen, around: _Around) -> Nic:
    role, why = next(told for rule in _RULES if (told := rule(seen, around)) is not None)
    gid = None
    if seen.kind == "roce":
        names = {interface.name for interface in around.host.interfaces}
        gid = choose_gid(seen.port, wanted_family=around.profile.address_family, interfaces=names)
    fault = fault_of(seen.hca, seen.port, seen.kind, gid, constant=seen.constant)
    bus = seen.near if seen.distance is not None and seen.distance <= Distance.NODE else ()
    return Nic(device=seen.hca.name, port=seen.port.number, kind=seen.kind, role=role, why=why, up=fault is None,
               fault=fault, gbps=seen.port.rate_gbps if seen.active else None, pci=seen.hca.pci,
               numa_node=seen.hca.numa_node, interfaces=seen.hca.interfaces, vf=seen.hca.vf,
               distance=seen.distance.name if seen.distance is not None else None,
               near=tuple(gpu.pci for gpu in bus), gid=gid)


def _by_profile(seen: _Seen, around: _Around) -> _Told:
    if any(fnmatchcase(seen.hca.name, pattern) for pattern in around.profile.not_compute):
        return Role.MANAGEMENT, f"on {around.profile.name} a device of this name is not for RDMA"
    return None


def _default_route(seen: _Seen, around: _Around) -> _Told:
    route = around.host.route
    if route is not None and around.host.beneath(route.name) & set(seen.hca.interfaces):
        return Role.MANAGEMENT, f"it carries the default route ({route.name})"
    return None


def _bond(seen: _Seen, around: _Around) -> _Told:
    if _bonded(seen.hca, around.host) and not around.bonds_lead:
        return Role.MANAGEMENT, "it is part of a bond, and devices that are not carry more"
    return None


def _bonds_lead(seen: Sequence[_Seen], host: Host) -> bool:
    rates = {True: 0.0, False: 0.0}
    for one in seen:
        if one.active:
            rates[_bonded(one.hca, host)] += one.port.rate_gbps or 0
    return rates[True] >= rates[False]


def _bonded(hca: Hca, host: Host) -> bool:
    links = [interface for name in hca.interfaces if (interface := host.interface(name)) is not None]
    return "bond" in hca.name or any(link.bond is not None or link.is_bond for link in links)


def _virtual(seen: _Seen, around: _Around) -> _Told:
    if seen.hca.vf and seen.hca.pf_pci in around.slots:
        return Role.OTHER, f"it is a virtual function of {seen.hca.pf_pci}, which is here too"
    return None


def _unread(seen: _Seen, around: _Around) -> _Told:
    if seen.kind is None:
        return Role.UNKNOWN, f"its link layer is {seen.port.link_layer or 'not told'}"
    return None


def _slow(seen: _Seen, around: _Around) -> _Told:
    rate = seen.port.rate_gbps
    if seen.active and rate is not None and rate * 2 < around.best_gbps:
        return Role.OTHER, f"{rate:g} Gbps is less than half of the fastest here ({around.best_gbps:g})"
    return None


def _by_distance(seen: _Seen, around: _Around) -> _Told:
    # Virtual machines hide the bus; where no NIC is behind a GPU's switch, distance tells nothing.
    if seen.kind not in ("infiniband", "roce") or not around.some_near or seen.distance is None:
        return None
    if seen.distance <= Distance.PXB:
        return Role.COMPUTE, f"it is behind the same switch as a GPU ({seen.distance.name})"
    if seen.kind == "infiniband" and not around.all_near:
        return None
    if seen.distance is Distance.SYS and seen.kind == "roce":
        return Role.MANAGEMENT, "no GPU is on its NUMA node, and others are behind a GPU's switch"
    return Role.STORAGE, f"it is {seen.distance.name} to the GPUs, and others are behind a GPU's switch"


def _else(seen: _Seen, around: _Around) -> _Told:
    return Role.COMPUTE, f"nothing speaks against it ({seen.kind})"


_RULES: tuple[Callable[[_Seen, _Around], _Told], ...] = (
    _by_profile, _default_route, _bond, _virtual, _unread, _slow, _by_distance, _else)


def _one_kind(nics: list[Nic], profile: Profile) -> list[Nic]:
    """NCCL must not mix InfiniBand and Ethernet: the profile's kind stays, else the one that carries more."""
    totals: dict[Kind, float] = {}
    for nic in nics:
        if nic.role is Role.COMPUTE and nic.kind is not None:
            totals[nic.kind] = totals.get(nic.kind, 0) + (nic.gbps or 0)
    if len(totals) < 2:
        return nics
    kept = profile.kind if profile.kind in totals else max(totals, key=lambda kind: totals[kind])
    return [nic.model_copy(update={"role": Role.STORAGE, "why": f"the compute network is {kept}, this is {nic.kind}"})
            if nic.role is Role.COMPUTE and nic.kind != kept else nic for nic in nics]
