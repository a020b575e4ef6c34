"""What is wrong with the machine or the container around the NICs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase

from gangline.fabric.detection.kinds import compute_gpus, gpu_types
from gangline.fabric.detection.values import Nic, Role
from gangline.fabric.finding import Finding, Level, finding
from gangline.fabric.host.values import Hca, Host
from gangline.fabric.profiles.values import Catalogue, Profile

IPC_LOCK = 1 << 14  # CAP_IPC_LOCK of linux/capability.h
DMABUF_KERNEL = (5, 12)  # the first kernel whose RDMA stack registers dma-buf memory
_OPEN = "Open Kernel Module"
_MOST_UNREAD = 3


def host_findings(host: Host, profile: Profile, catalogue: Catalogue, nics: Sequence[Nic]) -> Iterator[Finding]:
    """Every finding that is not about a NIC."""
    yield from _modules(host, profile)
    yield from _devices(host, profile, nics)
    yield from _memlock(host)
    yield from _libraries(host, profile)
    yield from _gpu_direct(host, profile, catalogue)
    yield from _gpus(host, profile, catalogue)
    yield from _topology(host, profile, catalogue)
    yield from _nvlink(host, profile)
    yield from _route(host)
    yield from _pages(host, profile)
    yield from _unread(host)
    yield from (finding("profile-unsure", Level.NOTE, profile.name, f"sources differ: {text}", "")
                for text in profile.unsure)


def way_to_gpus(host: Host, catalogue: Catalogue) -> tuple[bool | None, str]:
    """Whether the RDMA stack can reach GPU memory, and how; None when it cannot be told."""
    loaded = set(host.modules or ()) & set(catalogue.peer_memory_modules)
    told = {hca.peer_memory for hca in host.hcas if hca.peer_memory and hca.peer_memory.lower() != "none"}
    if loaded or host.peer_memory_clients:
        return True, ", ".join(sorted(loaded or set(host.peer_memory_clients)))
    if told:
        return True, ", ".join(sorted(told))
    kernel = re.match(r"(\d+)\.(\d+)", host.kernel or "")
    if kernel is not None and (int(kernel[1]), int(kernel[2])) < DMABUF_KERNEL:
        return False, f"kernel {host.kernel} has no dma-buf for RDMA and no peer memory module is loaded"
    if kernel is not None and (_OPEN in (host.gpu_driver or "") or "amdgpu" in (host.modules or ())):
        return True, "dma-buf"
    if host.gpu_driver is not None and host.modules is not None:
        return False, "the GPU driver is not the open one and no peer memory module is loaded"
    return None, "neither the GPU driver nor the modules can be seen"


def _gpu_direct(host: Host, profile: Profile, catalogue: Catalogue) -> Iterator[Finding]:
    if not profile.gpu_direct or profile.kind == "tcpx":
        return
    holds, how = way_to_gpus(host, catalogue)
    fix = f"load {catalogue.peer_memory_modules[0]}, or use the open GPU kernel modules with kernel 5.12 or newer"
    if holds is False:
        yield finding("gdr-none", Level.DEGRADED, "", f"NICs cannot reach GPU memory: {how}", fix)
    if holds is None:
        yield finding("gdr-unknown", Level.UNKNOWN, "", f"whether NICs reach GPU memory is not known: {how}",
                      "run this where the GPUs are visible")


def _modules(host: Host, profile: Profile) -> Iterator[Finding]:
    if any(hca.uverbs is not None for hca in host.hcas):
        return  # the kernel has made their user devices: everything is loaded
    if host.modules is None:
        if profile.modules:
            yield finding("modules-unknown", Level.UNKNOWN, "/proc/modules", "kernel modules cannot be seen", "")
        return
    missing = [name for name in profile.modules if name not in host.modules]
    if missing:
        yield finding("module-missing", Level.FAIL, "", f"not loaded: {', '.join(missing)}",
                      f"modprobe {' '.join(missing)} on the host, and at every start of it")


def _devices(host: Host, profile: Profile, nics: Sequence[Nic]) -> Iterator[Finding]:
    compute = {nic.device for nic in nics if nic.role is Role.COMPUTE}
    hcas = [hca for hca in host.hcas if hca.name in compute]
    absent = [pattern for pattern in profile.devices if not host.has(pattern)]
    if absent and (hcas or profile.kind == "tcpx"):
        yield finding("device-missing", Level.FAIL, ", ".join(absent), "not there: user programs cannot open the NICs",
                      "in a container ask for the RDMA devices; on the host load ib_uverbs and check udev")
    elif hcas:
        yield from _uverbs(host, hcas)


def _uverbs(host: Host, hcas: Sequence[Hca]) -> Iterator[Finding]:
    """Only some of the devices are in /dev: a container was given too few."""
    gone = [hca for hca in hcas if hca.uverbs is not None and not host.has(f"dev/infiniband/{hca.uverbs}")]
    if gone:
        names = ", ".join(f"/dev/infiniband/{hca.uverbs} ({hca.name})" for hca in gone[:4])
        yield finding("device-missing", Level.DEGRADED, names, f"{len(gone)} compute NICs cannot be opened from here",
                      "give the container every RDMA device")


def _memlock(host: Host) -> Iterator[Finding]:
    if host.capabilities is not None and host.capabilities & IPC_LOCK:
        return
    if host.memlock is None:
        yield finding("memlock-unknown", Level.UNKNOWN, "/proc/self/limits", "the limit of locked memory is not told",
                      "run ulimit -l where the ranks run")
    elif host.memlock.bytes is not None:
        yield finding("memlock-low", Level.FAIL, "", f"a process may lock {host.memlock.bytes >> 10} KiB only; "
                      "registering memory will fail", "ulimit -l unlimited (LimitMEMLOCK=infinity for the service "
                      "that starts ranks), or the capability IPC_LOCK in a pod")


def _libraries(host: Host, profile: Profile) -> Iterator[Finding]:
    for library in profile.libraries:
        if not any(fnmatchcase(path.rsplit("/", 1)[-1], library.file) for path in host.present):
            yield finding("library-missing", Level.FAIL, library.file, f"not found where this was run: {library.why}",
                          "install it in the image, or put its directory on LD_LIBRARY_PATH")


def _gpus(host: Host, profile: Profile, catalogue: Catalogue) -> Iterator[Finding]:
    count = len(compute_gpus(host, catalogue))
    if not count:
        yield finding("gpus-none", Level.NOTE, "", "no GPU is visible, so nothing is known of distances to NICs", "")
        return
    known = gpu_types(host, catalogue)
    types = ", ".join(f"{number} {name}" for name, number in known.items()) or str(count)
    if profile.gpu_types and known and not set(known) & set(profile.gpu_types):
        yield finding("gpu-type", Level.WARN, "",
                      f"{profile.name} has {' or '.join(profile.gpu_types)}, here are {types}",
                      "name the right profile, or write an own one")
    elif profile.gpus is not None and count != profile.gpus:
        yield finding("gpu-count", Level.WARN, "", f"{profile.name} has {profile.gpus} GPUs, here are {types}",
                      "right for a container with a part of them; else look at the driver's log")


def _topology(host: Host, profile: Profile, catalogue: Catalogue) -> Iterator[Finding]:
    if not profile.topology_files or "NCCL_TOPO_FILE" in host.nccl_conf:
        return
    there = topology_candidates(host, profile)
    if not there:
        yield finding("topology-missing", Level.DEGRADED, f"/{profile.topology_files[0]}",
                      "the virtual bus hides which NIC is near which GPU, and the file that tells is not here",
                      "put the provider's topology file into the image, or mount it")
    elif topology_file(host, profile, catalogue) is None:
        yield finding("topology-foreign", Level.DEGRADED, ", ".join(f"/{path}" for path in there[:4]),
                      "no file, or more than one, is of this machine: judged by the GPUs' addresses and type in it",
                      "take the file of this very machine type, and set NCCL_TOPO_FILE")


def topology_candidates(host: Host, profile: Profile) -> tuple[str, ...]:
    """The topology files of a profile that are here."""
    return tuple(dict.fromkeys(path for pattern in profile.topology_files for path in host.found(pattern)))


def topology_file(host: Host, profile: Profile, catalogue: Catalogue) -> str | None:
    """The one that is of this machine: it names its GPUs' addresses; of several, its GPUs' type is in the name.

    A file that names no address, or a host without visible GPUs, cannot be judged and passes.
    """
    slots = {_address(gpu.pci) for gpu in compute_gpus(host, catalogue)}
    fitting = []
    for path in topology_candidates(host, profile):
        told = {_address(slot) for slot in host.topology_slots.get(path, ())}
        if not told or not slots or told & slots:
            fitting.append(path)
    if len(fitting) > 1:
        types = [name.lower() for name in gpu_types(host, catalogue)]
        fitting = [path for path in fitting if any(name in path.rsplit("/", 1)[-1].lower() for name in types)]
    return fitting[0] if len(fitting) == 1 else None


def _address(slot: str) -> str:
    """A PCI address as it can be compared: tools write the domain with four or eight digits, in either case."""
    domain, _, rest = slot.lower().partition(":")
    return f"{domain.lstrip('0')}:{rest}"


def _nvlink(host: Host, profile: Profile) -> Iterator[Finding]:
    if not profile.nvlink_domain:
        return
    if host.imex_channels == 0:
        yield finding("imex-missing", Level.FAIL, "/dev/nvidia-caps-imex-channels",
                      "no channel to GPUs of other nodes: NVLink between nodes fails",
                      "ask for a ComputeDomain (Kubernetes), or start nvidia-imex")
    yield finding("nvlink-unproved", Level.NOTE, "",
                  "whether the rack's NVLink is up is told by the GPU driver, not by files; it is not proved here",
                  "nvidia-smi -q shows Fabric and ClusterUUID")


def _route(host: Host) -> Iterator[Finding]:
    if host.route is None:
        yield finding("route-none", Level.UNKNOWN, "/proc/net/route",
                      "no default route: on which interface ranks meet is not known",
                      "set NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME")


def _pages(host: Host, profile: Profile) -> Iterator[Finding]:
    if host.hugepages_2mib is not None and host.hugepages_2mib < profile.hugepages_2mib:
        yield finding("hugepages-few", Level.WARN, "", f"{host.hugepages_2mib} huge pages of 2 MiB, "
                      f"{profile.hugepages_2mib} are usual", f"sysctl vm.nr_hugepages={profile.hugepages_2mib}")


def _unread(host: Host) -> Iterator[Finding]:
    for one in host.unread[:_MOST_UNREAD]:
        denied = one.why.startswith("cannot be read")
        yield finding("unread", Level.WARN, f"/{one.path}", one.why,
                      "run this as a user who may read it" if denied else "look at the file and at the kernel's log")
    if len(host.unread) > _MOST_UNREAD:
        more = len(host.unread) - _MOST_UNREAD
        yield finding("unread", Level.WARN, "", f"{more} more files are there and could not be used",
                      "--json lists them")
