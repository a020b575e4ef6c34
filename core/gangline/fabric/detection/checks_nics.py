"""What is wrong with the NICs as a set: how many, how fast, how alike, and reachable from here."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from gangline.fabric.detection.kinds import compute_gpus
from gangline.fabric.detection.values import Nic, Role
from gangline.fabric.finding import Finding, Level, finding
from gangline.fabric.host.values import Hca, Host
from gangline.fabric.profiles.values import Catalogue, Profile

MOST_NICS = 32  # NCCL's MAX_IB_DEVS
_DEFAULT_PKEYS = (0x7FFF, 0xFFFF)
_FULL_MEMBER = 0x8000


def nic_findings(host: Host, profile: Profile, catalogue: Catalogue, nics: Sequence[Nic]) -> Iterator[Finding]:
    """Every finding about NICs."""
    wanted = [nic for nic in nics if nic.role is Role.COMPUTE]
    up = [nic for nic in wanted if nic.up]
    yield from _none(host, profile, wanted)
    yield from _other_kind(profile, wanted)
    yield from _faults(profile, wanted, up)
    yield from _unknown(host, nics)
    yield from _count(host, profile, catalogue, wanted, up)
    yield from _rates(profile, up)
    by_name = {hca.name: hca for hca in host.hcas}
    hcas = [by_name[nic.device] for nic in up if nic.device in by_name]
    if profile.verbs:
        yield from _links(nics, wanted)
        yield from _names(host, profile, up)
        yield from _pkeys(host, profile, up)
        yield from _mtu(host, profile, up)
    yield from _alike(hcas)
    yield from _counters(host, up)


def _none(host: Host, profile: Profile, wanted: Sequence[Nic]) -> Iterator[Finding]:
    if wanted:
        return
    if profile.kind == "tcpx":
        names = " or ".join(", ".join(names) for names in profile.data_interfaces)
        yield finding("interfaces-missing", Level.FAIL, "", "none of the interfaces that carry data is there",
                      f"give the pod or the machine {names}")
    elif host.hcas:
        yield finding("no-compute", Level.FAIL, "", f"of {len(host.hcas)} RDMA devices none is for compute traffic",
                      "see what each was taken for; name a profile, or write an own one, if that is wrong")
    else:
        modules = ", ".join(profile.modules) or "the NIC's driver"
        yield finding("no-devices", Level.FAIL, "/sys/class/infiniband", "there are no RDMA devices",
                      f"load {modules}; in a container ask for the devices (gangline rdma profiles shows how)")


def _other_kind(profile: Profile, wanted: Sequence[Nic]) -> Iterator[Finding]:
    kinds = sorted({nic.kind for nic in wanted if nic.kind is not None})
    if profile.kind is not None and kinds and profile.kind not in kinds:
        yield finding("kind-differs", Level.FAIL, profile.name, f"its network is {profile.kind}, this host's is "
                      f"{' and '.join(kinds)}", "name the right profile, or write an own one")


def _faults(profile: Profile, wanted: Sequence[Nic], up: Sequence[Nic]) -> Iterator[Finding]:
    """Ports that should carry traffic and do not. Spare ones beyond what a machine has are only told of."""
    enough = profile.nics is not None and len(up) >= profile.nics
    cards = {_card(nic) for nic in up}
    for nic in wanted:
        if nic.fault is None:
            continue
        spare = enough or (profile.nics is None and bool(up) and _card(nic) in cards)
        level = Level.NOTE if spare else nic.fault.level
        if level is Level.FAIL and up:
            level = Level.DEGRADED
        yield nic.fault.model_copy(update={"level": level})


def _card(nic: Nic) -> str:
    """The card a port is on: its functions share all of the PCI address but the last digit."""
    return (nic.pci or nic.device).rsplit(".", 1)[0]


def _unknown(host: Host, nics: Sequence[Nic]) -> Iterator[Finding]:
    blind = [hca.name for hca in host.hcas if not hca.ports]
    if blind:
        yield finding("nic-unknown", Level.UNKNOWN, _some(blind), "its ports cannot be seen",
                      "read /sys/class/infiniband as this user; in a container mount /sys whole")
    for nic in nics:
        if nic.role is Role.UNKNOWN:
            yield finding("nic-unknown", Level.UNKNOWN, nic.name, f"what it is cannot be told: {nic.why}",
                          "read /sys/class/infiniband as this user; if it is no RDMA NIC, name it in an own profile")


def _count(host: Host, profile: Profile, catalogue: Catalogue, wanted: Sequence[Nic],
           up: Sequence[Nic]) -> Iterator[Finding]:
    if profile.nics is None or not wanted:
        return
    if len(wanted) < profile.nics:
        missing = profile.nics - len(wanted)
        lacking = _gpus_that_lack(host, catalogue, wanted)
        at = f"; these GPUs have fewer near them than the others: {', '.join(lacking)}" if lacking else ""
        yield finding("nic-missing", Level.DEGRADED, "",
                      f"{missing} of {profile.nics} compute NICs of {profile.name} {_be(missing)} not here{at}",
                      "in a container ask for all of them; on the host look at the kernel's log, replace the machine")
    if len(up) > profile.nics:
        yield finding("nic-surplus", Level.WARN, "", f"{len(up)} compute NICs were found, {profile.name} has "
                      f"{profile.nics}", "look at the roles below; leave devices out in an own profile")


def _gpus_that_lack(host: Host, catalogue: Catalogue, wanted: Sequence[Nic]) -> list[str]:
    counts = {gpu.pci: 0 for gpu in compute_gpus(host, catalogue)}
    for nic in wanted:
        for slot in nic.near if nic.distance in ("PIX", "PXB") else ():
            counts[slot] = counts.get(slot, 0) + 1
    most = max(counts.values(), default=0)
    return [slot for slot, count in counts.items() if count < most]


def _rates(profile: Profile, up: Sequence[Nic]) -> Iterator[Finding]:
    expected = profile.nic_gbps or max((nic.gbps or 0 for nic in up), default=0)
    for nic in up:
        if nic.gbps is None:
            # Many drivers of virtual interfaces tell no speed; an RDMA port always does.
            level = Level.NOTE if nic.kind == "tcpx" else Level.UNKNOWN
            yield finding("rate-unknown", level, nic.name, "its rate cannot be read",
                          "read the port's rate file as this user")
        elif nic.gbps < expected:
            yield finding("port-slow", Level.DEGRADED, nic.name, f"it runs at {nic.gbps:g} Gbps, not {expected:g}",
                          "reseat or replace cable and optic; check the switch port's speed")


def _links(nics: Sequence[Nic], wanted: Sequence[Nic]) -> Iterator[Finding]:
    kinds = {nic.kind for nic in wanted}
    others = [nic.name for nic in nics if nic.role is Role.STORAGE and nic.kind not in kinds]
    if others and wanted:
        yield finding("links-mixed", Level.NOTE, "", f"InfiniBand and Ethernet are both here; {', '.join(others)} "
                      "are left to storage: NCCL must not mix them", "write an own profile if that is wrong")


def _names(host: Host, profile: Profile, up: Sequence[Nic]) -> Iterator[Finding]:
    names = {nic.device for nic in up}
    all_names = [hca.name for hca in host.hcas]
    traps = [(name, longer) for name in sorted(names) for longer in all_names if longer != name and
             longer.startswith(name)]
    if traps:
        name, longer = traps[0]
        yield finding("name-prefix", Level.NOTE, name, f"{name} is the beginning of {longer}: NCCL_IB_HCA without = "
                      "would mean both", "the environment writes =, so that names are whole")
    if profile.expected_hcas and names and not any(names == set(one) for one in profile.expected_hcas):
        listed = " or ".join(map(_some, profile.expected_hcas))
        yield finding("hcas-differ", Level.NOTE, "", f"the provider lists {listed}, found {_some(sorted(names))}",
                      "numbers shift with firmware; what was found here counts")
    if len(up) > MOST_NICS:
        yield finding("nic-limit", Level.WARN, "", f"NCCL takes {MOST_NICS} of {len(up)} ports",
                      "leave devices out in an own profile")


def _pkeys(host: Host, profile: Profile, up: Sequence[Nic]) -> Iterator[Finding]:
    if not profile.tenant_pkey:
        return
    ports = {f"{hca.name}:{port.number}": port for hca in host.hcas for port in hca.ports}
    for nic in up:
        keys = ports[nic.name].pkeys
        if not keys:
            yield finding("pkey-unknown", Level.UNKNOWN, nic.name, "its partition keys cannot be read", "")
        elif not any(key & _FULL_MEMBER and key not in _DEFAULT_PKEYS for key in keys):
            yield finding("pkey-none", Level.FAIL, nic.name, "it is a full member of no partition of its own "
                          f"({', '.join(f'{key:#06x}' for key in keys)})",
                          "the machines must be in one placement group or scale set; ask the provider")


def _mtu(host: Host, profile: Profile, up: Sequence[Nic]) -> Iterator[Finding]:
    for nic in up:
        for name in nic.interfaces if nic.kind == "roce" else ():
            link = host.interface(name)
            if profile.mtu_bytes is not None and link is not None and link.mtu_bytes is not None \
                    and link.mtu_bytes < profile.mtu_bytes:
                yield finding("mtu-small", Level.WARN, nic.name, f"the MTU of {name} is {link.mtu_bytes} bytes",
                              f"set it to {profile.mtu_bytes} on every node and in the network")


def _alike(hcas: Sequence[Hca]) -> Iterator[Finding]:
    versions: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for hca in hcas:
        versions[f"{hca.vendor_id}:{hca.device_id}"][hca.firmware or "unknown"].append(hca.name)
    for found in versions.values():
        if len(found) > 1:
            text = "; ".join(f"{version}: {', '.join(names)}" for version, names in found.items())
            yield finding("firmware-mixed", Level.WARN, "", f"NICs of one model run different firmware ({text})",
                          "bring them to one version")


def _counters(host: Host, up: Sequence[Nic]) -> Iterator[Finding]:
    counted = {f"{hca.name}:{port.number}" for hca in host.hcas for port in hca.ports if port.counters}
    blind = [nic.name for nic in up if nic.port and nic.name not in counted]
    if blind:
        yield finding("counters-unknown", Level.UNKNOWN, _some(blind), "its counters cannot be read, so neither "
                      "traffic nor errors can be proved", "read …/ports/N/counters and hw_counters as this user")


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")


def _be(count: int) -> str:
    return "is" if count == 1 else "are"
