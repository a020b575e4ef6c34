"""The lines that only this host can tell: transport, devices, GIDs, interface, loader path."""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase

from gangline.fabric.detection import Detection, Nic
from gangline.fabric.detection.checks_nics import MOST_NICS
from gangline.fabric.detection.gids import common_index, family, is_routable
from gangline.fabric.environment.values import Gang, Line
from gangline.fabric.finding import Finding, Level, finding
from gangline.fabric.profiles import Profile

AUTO_GID = (2, 21)  # NCCL finds the GID by itself from this version on (before: index 0, which is link-local)


def computed(found: Detection, gang: Gang) -> Iterator[Line | Finding]:
    """Lines in the order they are shown, and what kept others from being written."""
    profile = found.row
    if gang.nodes > 1:
        yield _line("NCCL_NET", profile.network,
                    "nothing else can be taken: what would fall back to sockets fails instead",
                    "NVIDIA/nccl src/plugin/net.cc")
    yield from _socket(found)
    if gang.node:
        yield _line("NCCL_HOSTID", gang.node, "ranks of one node, and only they, share its memory, whatever "
                    "containers are called", "NVIDIA/nccl documentation, environment variables")
    if profile.verbs and found.compute:
        yield _line("NCCL_IB_HCA", hca_list(found.compute), "exactly the compute ports of this host; without = a name "
                    "would stand for every name that begins with it", "NVIDIA/nccl src/transport/net_ib.cc")
        if found.kind == "roce":
            yield from _gid(found, gang)
    yield from _loader(found, gang)
    if gang.log_dir is not None:
        yield _line("NCCL_DEBUG_FILE", f"{gang.log_dir}/nccl.%h.%p.log",
                    "the proof is kept apart from the user's output")


def hca_list(nics: tuple[Nic, ...]) -> str:
    """The ports as NCCL_IB_HCA takes them, the first 32 by PCI address."""
    return "=" + ",".join(nic.name for nic in nics[:MOST_NICS])


def placeholders(found: Detection) -> dict[str, str]:
    """What a profile may write in braces; a name without a value here is left out with its line."""
    values = {
        "socket": found.socket_interface or "",
        "ucx_devices": ",".join(nic.name for nic in found.compute) if found.row.verbs else "",
        "first_hca": found.compute[0].name if found.compute else "",
        "data_interfaces": ",".join(nic.device for nic in found.compute) if found.row.kind == "tcpx" else ""}
    return {name: value for name, value in values.items() if value}


def _socket(found: Detection) -> Iterator[Line]:
    name = found.socket_interface
    if name is None:
        return
    why = "ranks meet on the interface of the default route; left alone, NCCL prefers ib*, and a wrong choice hangs"
    yield _line("NCCL_SOCKET_IFNAME", f"={name}", why, "NVIDIA/nccl documentation, environment variables")
    yield _line("GLOO_SOCKET_IFNAME", name, "the same for gloo, which takes a plain name")
    yield _line("TP_SOCKET_IFNAME", name, "the same for TensorPipe")


def _gid(found: Detection, gang: Gang) -> Iterator[Line | Finding]:
    """An index is written only where it is needed or a provider says so, and where every port proves it good."""
    gids = [nic.gid for nic in found.compute]
    index = common_index(gids)
    old = gang.nccl is not None and gang.nccl < AUTO_GID
    wanted = found.row.gid_index
    if wanted is not None and all(_good_at(found, nic, wanted) for nic in found.compute):
        yield _line("NCCL_IB_GID_INDEX", str(wanted), "the provider's index; on every port it is RoCE v2 and routable")
    elif old and index is not None:
        yield _line("NCCL_IB_GID_INDEX", str(index), "NCCL before 2.21 would take index 0, which no router passes on")
    elif old:
        yield finding("gid-differs", Level.FAIL, "", "NCCL before 2.21 needs one GID index, and the ports' good ones "
                      f"differ: {_indices(found)}", "use NCCL 2.21 or newer")
    else:
        yield _line("NCCL_IB_ROCE_VERSION_NUM", "2",
                    "NCCL finds the GID by itself, of RoCE v2: an index may move after a flap, and pods differ",
                    "NVIDIA/nccl issues 1587, 2157")
        if wanted is not None:
            yield finding("gid-not-pinned", Level.NOTE, "", f"the provider's GID index {wanted} is not good on every "
                          f"port here ({_indices(found)}); it is left to NCCL", "use NCCL 2.26 or newer in pods")
    families = {family(gid) for gid in gids if gid is not None}
    if families == {"AF_INET6"}:
        yield _line("NCCL_IB_ADDR_FAMILY", "AF_INET6", "this network has IPv6 addresses only; NCCL looks for IPv4")


def _good_at(found: Detection, nic: Nic, index: int) -> bool:
    hca = next(hca for hca in found.host.hcas if hca.name == nic.device)
    port = next(port for port in hca.ports if port.number == nic.port)
    return any(gid.index == index and is_routable(gid) for gid in port.gids)


def _indices(found: Detection) -> str:
    return ", ".join(f"{nic.name} {nic.gid.index if nic.gid is not None else 'none'}" for nic in found.compute[:4])


def _loader(found: Detection, gang: Gang) -> Iterator[Line]:
    """Directories of plugins that the profile wants first; what the user has stays behind them."""
    folders = dict.fromkeys(folder for library in found.row.libraries if library.prepend
                            if (folder := _directory(found, found.row, library.file)))
    before = [part for part in gang.user.get("LD_LIBRARY_PATH", "").split(":") if part]
    if folders and not set(folders) <= set(before[:len(folders)]):
        value = ":".join([*folders, *(part for part in before if part not in folders)])
        yield _line("LD_LIBRARY_PATH", value, "the plugin that was found, before any other of its name")


def _directory(found: Detection, profile: Profile, file: str) -> str | None:
    for path in found.host.present:
        folder, _, name = path.rpartition("/")
        if fnmatchcase(name, file) and any(folder in library.directories for library in profile.libraries):
            return f"/{folder}"
    return None


def _line(name: str, value: str, why: str, source: str = "") -> Line:
    return Line(name=name, value=value, level="must", why=why, source=source, by="detected")
