"""What a device, a GPU and a host's network are, by ids and by what the ports say."""

from __future__ import annotations

from collections import Counter
from fnmatch import fnmatchcase

from gangline.fabric.host.values import Gpu, Hca, Host, Port
from gangline.fabric.products import gpu_type
from gangline.fabric.profiles.values import Catalogue, Kind, NicKind

_LINKS: dict[str, Kind] = {"InfiniBand": "infiniband", "Ethernet": "roce"}


def nic_kind(hca: Hca, catalogue: Catalogue) -> NicKind | None:
    """The maker's row of a device, by its PCI id, else by its driver."""
    ids = f"{hca.vendor_id}:{hca.device_id}"
    by_id = next((row for row in catalogue.nics if any(fnmatchcase(ids, pattern) for pattern in row.ids)), None)
    return by_id or next((row for row in catalogue.nics if hca.driver == row.driver), None)


def port_kind(hca: Hca, port: Port, catalogue: Catalogue) -> Kind | None:
    """What a port speaks. Some devices are known by their id alone: what their port says means nothing."""
    row = nic_kind(hca, catalogue)
    return row.kind if row is not None and row.kind is not None else _LINKS.get(port.link_layer or "")


def state_is_constant(hca: Hca, catalogue: Catalogue) -> bool:
    """Whether the device's ports say ACTIVE whatever happens."""
    row = nic_kind(hca, catalogue)
    return row is not None and row.state_is_constant


def compute_gpus(host: Host, catalogue: Catalogue) -> tuple[Gpu, ...]:
    """GPUs that compute: of a known maker, or with that maker's driver loaded."""
    return tuple(gpu for gpu in host.gpus if gpu.model is not None or gpu.vendor_id in catalogue.gpu_vendors)


def gpu_types(host: Host, catalogue: Catalogue) -> Counter[str]:
    """How many there are of each type; those whose type is not known are left out."""
    types = Counter[str]()
    for gpu in compute_gpus(host, catalogue):
        known = catalogue.gpu_ids.get(f"{gpu.vendor_id}:{gpu.device_id}")
        name = gpu_type(gpu.model) if gpu.model is not None else known
        if name is not None:
            types[name] += 1
    return types


def prevailing_link(host: Host, catalogue: Catalogue) -> str | None:
    """The link layer of most of the bandwidth; of most ports when none is up."""
    up: Counter[str] = Counter()
    ports: Counter[str] = Counter()
    for hca in host.hcas:
        for port in hca.ports:
            if port_kind(hca, port, catalogue) in _LINKS.values() and port.link_layer is not None:
                ports[port.link_layer] += 1
                if port.state == "ACTIVE":
                    up[port.link_layer] += int(port.rate_gbps or 1)
    best = (up or ports).most_common(1)
    return best[0][0] if best else None
