"""What the nodes of a gang see, put side by side: what differs is named before it becomes a hang."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence

from gangline.fabric.detection import Detection
from gangline.fabric.environment.values import Environment
from gangline.fabric.finding import Finding, Level
from gangline.model.base import Wire

_MOST_NODES = 6


class View(Wire):
    """One node's view of itself, small enough to be sent to the others."""

    node: str
    profile: str
    kind: str | None
    nics: int
    gbps: float | None = None
    firmware: tuple[str, ...] = ()
    network: str | None = None
    gid_index: str | None = None
    address_family: str | None = None
    subnets: tuple[str, ...] = ()  # of InfiniBand: prefixes of the compute ports' GIDs
    plugin: str | None = None
    versions: dict[str, str] = {}  # of nccl, torch, the GPU driver and so on
    assured: bool = True


class Compared(Wire):
    """The gang's views together."""

    nics_min: int
    nics_max: int
    findings: tuple[Finding, ...]


def view_of(node: str, found: Detection, env: Environment, versions: dict[str, str] | None = None) -> View:
    """What a node tells the others of itself."""
    values = env.variables()
    compute = {nic.device for nic in found.compute}
    firmware = sorted({hca.firmware for hca in found.host.hcas if hca.name in compute and hca.firmware})
    plugin = next((path for path in found.host.present if "libnccl-net" in path), None)
    return View(
        node=node, profile=found.profile, kind=found.kind, nics=len(found.compute), gbps=found.gbps,
        firmware=tuple(firmware), network=values.get("NCCL_NET"), gid_index=values.get("NCCL_IB_GID_INDEX"),
        address_family=values.get("NCCL_IB_ADDR_FAMILY"), subnets=_subnets(found), plugin=plugin,
        versions=versions or {}, assured=env.assured)


def compare(views: Sequence[View]) -> Compared:
    """Every way in which the nodes differ; the nodes in the minority are named. Empty `views` are refused.

    Raises:
        ValueError: there is no view.
    """
    if not views:
        raise ValueError("there is no view to compare")
    counts = [view.nics for view in views]
    found = [*_differs(views, "nics-differ", Level.FAIL, "compute NICs", lambda view: str(view.nics),
                       "a node lacks a NIC: replace it, or a container was given too few")]
    for code, level, what, read, fix in _RULES:
        found += _differs(views, code, level, what, read, fix)
    for name in sorted({name for view in views for name in view.versions}):
        level = Level.FAIL if name in ("nccl", "plugin") else Level.WARN
        found += _differs(views, "version-differs", level, name, _version_of(name),
                          "bring all nodes to one image or driver")
    undone = [view.node for view in views if not view.assured]
    if undone:
        found.append(Finding(code="undone", level=Level.DEGRADED, where=_some(undone),
                             text="own values of variables undo what rdma promises",
                             fix="gangline rdma env names them"))
    return Compared(nics_min=min(counts), nics_max=max(counts), findings=tuple(found))


_Read = Callable[[View], str | None]
_RULES: tuple[tuple[str, Level, str, _Read, str], ...] = (
    ("profile-differs", Level.WARN, "profile", lambda view: view.profile, "take nodes of one kind"),
    ("kind-differs", Level.FAIL, "kind of network", lambda view: view.kind, "take nodes of one network"),
    ("network-differs", Level.FAIL, "NCCL_NET", lambda view: view.network, "leave it to Gangline on every node"),
    ("rate-differs", Level.DEGRADED, "Gbps", lambda view: None if view.gbps is None else f"{view.gbps:g}",
     "a port runs slower than its peers: gangline rdma detect on that node"),
    ("gid-differs", Level.WARN, "GID index", lambda view: view.gid_index, "leave the index to NCCL 2.21 or newer"),
    ("family-differs", Level.FAIL, "address family", lambda view: view.address_family,
     "give every node's NICs addresses of one family"),
    ("subnet-differs", Level.FAIL, "InfiniBand subnets", lambda view: ", ".join(view.subnets) or None,
     "take nodes of one fabric: subnets are not joined without a router"),
    ("plugin-differs", Level.WARN, "network plugin", lambda view: view.plugin, "use one image on all nodes"),
    ("firmware-differs", Level.WARN, "NIC firmware", lambda view: ", ".join(view.firmware) or None,
     "bring the NICs to one version"),
)


def _subnets(found: Detection) -> tuple[str, ...]:
    names = {nic.name for nic in found.compute if nic.kind == "infiniband"}
    gids = [port.gids[0].value for hca in found.host.hcas for port in hca.ports
            if f"{hca.name}:{port.number}" in names and port.gids]
    return tuple(sorted({gid[:19] for gid in gids}))  # the first four of eight groups of four digits


def _version_of(name: str) -> _Read:
    return lambda view: view.versions.get(name)


def _differs(views: Sequence[View], code: str, level: Level, what: str, read: _Read, fix: str) -> Iterator[Finding]:
    by_value: dict[str, list[str]] = defaultdict(list)
    for view in views:
        by_value[read(view) or "none"].append(view.node)
    if len(by_value) < 2:
        return
    ranked = sorted(by_value.items(), key=lambda item: (-len(item[1]), item[0]))
    fewer = [node for _, nodes in ranked[1:] for node in nodes]
    text = "; ".join(f"{value} on {len(nodes)} nodes ({_some(nodes)})" for value, nodes in ranked)
    yield Finding(code=code, level=level, where=_some(fewer), text=f"{what}: {text}", fix=fix)


def _some(nodes: Sequence[str]) -> str:
    more = len(nodes) - _MOST_NODES
    return ", ".join(nodes[:_MOST_NODES]) + (f" and {more} more" if more > 0 else "")
