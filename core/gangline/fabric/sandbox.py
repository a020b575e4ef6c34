"""Whether a container runtime lets RDMA through. A sandbox that was not probed is refused."""

from __future__ import annotations

from collections.abc import Iterator

from gangline.fabric.finding import Finding, Level, finding
from gangline.fabric.profiles import Kind
from gangline.model.base import Wire

PLAIN = frozenset({"runc", "crun", "nvidia", "nvidia-cdi", "nvidia-legacy", "youki"})
SANDBOX = "runsc"
FIRST_RELEASE = 20260803  # google/gvisor: the first release with the generic proxy (pull request 14021)
FIRST_KERNEL = (5, 12)
MOST_UVERBS = 32


class Probe(Wire):
    """What is known of a runtime on a node. None stands for what nobody has looked at."""

    handler: str
    release: int | None = None  # runsc's, such as 20260803
    rdma_proxy: bool | None = None
    gpu_proxy: bool | None = None
    kernel: tuple[int, ...] | None = None
    drivers: tuple[str, ...] | None = None
    containers: int | None = None  # in the pod
    uverbs: int | None = None
    netns_shared: bool | None = None  # rdma system show


def refusals(runtime_class: str | None, probe: Probe | None, kind: Kind | None) -> tuple[Finding, ...]:
    """Why RDMA cannot be promised behind a `runtimeClassName`; nothing when it can."""
    if runtime_class is None:
        return ()
    if probe is None:
        return (_refused(f"what runs behind runtimeClassName {runtime_class} was not probed",
                         "leave it out, or probe the runtime on the nodes"),)
    if probe.handler in PLAIN:
        return ()
    if probe.handler != SANDBOX:
        return (_refused(f"nothing is known of RDMA in the runtime {probe.handler}",
                         f"use one of {', '.join(sorted(PLAIN))}"),)
    return tuple(_sandbox(probe, kind))


def _sandbox(probe: Probe, kind: Kind | None) -> Iterator[Finding]:
    if kind in ("efa", "tcpx"):
        yield _refused(f"gVisor lets no {kind} through", "leave runtimeClassName out")
        return
    checks = (
        (probe.release is not None and probe.release >= FIRST_RELEASE,
         f"runsc must be release {FIRST_RELEASE} or newer", "upgrade runsc on the nodes"),
        (probe.rdma_proxy is True, "runsc must run with --rdmaproxy", "set the flag in the runtime's configuration"),
        (probe.gpu_proxy is True, "runsc must run with --nvproxy", "set the flag in the runtime's configuration"),
        (probe.kernel is not None and probe.kernel >= FIRST_KERNEL, "the host's kernel must be 5.12 or newer: GPU "
         "memory is registered by dma-buf only", "upgrade the host"),
        (probe.drivers is not None and set(probe.drivers) <= {"mlx5_core"} and bool(probe.drivers),
         "the NICs must be mlx5 devices", "take nodes with such NICs"),
        (probe.containers == 1, "the pod must have one container: others of it get no RDMA", "leave sidecars out"),
        (probe.uverbs is not None and probe.uverbs <= MOST_UVERBS, f"there must be at most {MOST_UVERBS} devices",
         "give the pod fewer"),
        (kind != "roce" or probe.netns_shared is True, "RoCE needs the RDMA namespaces shared",
         "rdma system set netns shared on the host"),
    )
    for holds, text, fix in checks:
        if not holds:
            yield _refused(f"gVisor: {text}", fix)


def _refused(text: str, fix: str) -> Finding:
    return finding("runtime-refused", Level.FAIL, "", text, fix)
