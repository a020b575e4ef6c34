"""Which profile a host is: everything a profile asks for must hold, and the one that asks for most wins."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase

from gangline.fabric.detection.kinds import gpu_types, prevailing_link
from gangline.fabric.detection.values import Fit
from gangline.fabric.host.values import Host
from gangline.fabric.profiles.values import Catalogue, Match, Profile

_NAMED = 4  # what firmware or an image say outright weighs more than what devices look like
_LOOKS = 1


def fits(host: Host, catalogue: Catalogue) -> tuple[Fit, ...]:
    """Every profile that fits, the best first; of equals the one that stands first in the file."""
    found = [fit for profile in catalogue.profiles if (fit := _fit(profile, host, catalogue)) is not None]
    return tuple(sorted(found, key=lambda fit: -fit.score))


def _fit(profile: Profile, host: Host, catalogue: Catalogue) -> Fit | None:
    if profile.match is None:
        return None
    parts = [*_said(profile.match, host), *_devices(profile.match, host, catalogue)]
    parts += [*_gpus(profile, gpu_types(host, catalogue)), *_nics(profile, host)]
    if any(part is None for part in parts):
        return None
    held = [part for part in parts if part is not None]
    return Fit(profile=profile.name, score=sum(score for score, _ in held),
               reasons=tuple(reason for _, reason in held if reason))


_Part = tuple[int, str] | None  # None: it does not hold


def _said(match: Match, host: Host) -> Iterator[_Part]:
    for field, patterns in match.dmi.items():
        value = host.dmi.get(field, "")
        holds = any(fnmatchcase(value, pattern) for pattern in patterns)
        yield (_NAMED, f"the firmware's {field} is {value!r}") if holds else None
    if match.files:
        there = next((path for pattern in match.files for path in host.found(pattern)), None)
        yield (_NAMED, f"/{there} is there") if there is not None else None


def _devices(match: Match, host: Host, catalogue: Catalogue) -> Iterator[_Part]:
    ids = [f"{hca.vendor_id}:{hca.device_id}" for hca in host.hcas]
    if match.devices:
        hits = sum(any(fnmatchcase(one, pattern) for pattern in match.devices) for one in ids)
        yield (_LOOKS, f"{hits} devices are {' or '.join(match.devices)}") if hits else None
    if match.hcas is not None:
        least, most = match.hcas
        yield (_LOOKS, f"there are {len(ids)} RDMA devices") if least <= len(ids) <= most else None
    if match.link_layer is not None:
        link = prevailing_link(host, catalogue)
        yield (_LOOKS, f"most of the bandwidth is {link}") if link == match.link_layer else None
    if match.interface_driver is not None:
        count = sum(interface.driver == match.interface_driver for interface in host.interfaces)
        least, most = match.interfaces or (1, len(host.interfaces))
        holds = least <= count <= most
        yield (_LOOKS, f"{count} interfaces have the driver {match.interface_driver}") if holds else None


def _gpus(profile: Profile, types: Mapping[str, int]) -> Iterator[_Part]:
    """GPUs of another type rule a profile out; a number that differs does not: some may be hidden or broken."""
    if not profile.gpu_types or not types:
        return
    count = sum(types.get(name, 0) for name in profile.gpu_types)
    if not count:
        yield None
        return
    names = " and ".join(name for name in profile.gpu_types if name in types)
    yield (_LOOKS + (count == profile.gpus), f"there are {count} GPUs of type {names}")


def _nics(profile: Profile, host: Host) -> Iterator[_Part]:
    """NICs in the number and of the rate speak for a profile; others do not speak against it: they may be broken."""
    rates = [port.rate_gbps for hca in host.hcas for port in hca.ports]
    if profile.nics and rates.count(profile.nic_gbps) == profile.nics:
        yield _LOOKS, f"{profile.nics} ports run at {profile.nic_gbps} Gbps"
