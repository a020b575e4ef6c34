"""Every cause once: what it is, what to do, and whether to try again. A literal table, no rules."""

from __future__ import annotations

from gangline.fabric.logs.values import Cause, Kind, Retry

_NO, _ONCE, _YES, _EXCLUDE = Retry.NO, Retry.ONCE, Retry.YES, Retry.EXCLUDE


def _fault(code: str, weight: int, retry: Retry, title: str, remedy: str) -> Cause:
    return Cause(code=code, title=title, remedy=remedy, retry=retry, weight=weight)


def _elsewhere(code: str, weight: int, retry: Retry, title: str, remedy: str) -> Cause:
    return Cause(code=code, title=title, remedy=remedy, retry=retry, kind=Kind.ELSEWHERE, weight=weight)


def _echo(code: str, weight: int, title: str, remedy: str) -> Cause:
    return Cause(code=code, title=title, remedy=remedy, retry=_ONCE, kind=Kind.ECHO, weight=weight)


def _why(code: str, weight: int, title: str, remedy: str) -> Cause:
    return Cause(code=code, title=title, remedy=remedy, retry=_NO, kind=Kind.WHY, weight=weight)


_CAUSES = (
    # The node or its image is not set up: the same on every start.
    _fault("net-missing", 10, _NO, "the network that NCCL_NET names is not there, so NCCL refused to start",
           "install the plugin in the image and put it on the loader path, or correct NCCL_NET; this is the "
           "fall-back to sockets that was asked to be an error"),
    _fault("memlock", 10, _NO, "no memory could be locked for the HCA",
           "unlimited memlock in the process itself (IPC_LOCK in a pod); with that given and hundreds of nodes, "
           "fewer channels and queue pairs"),
    _fault("device-access", 10, _NO, "the HCA's device file cannot be opened",
           "give the container /dev/infiniband and the device cgroup's leave"),
    _fault("gpu-memory", 10, _NO, "GPU memory cannot be registered with the HCA",
           "load nvidia_peermem, or use dma-buf (kernel 5.12 and open GPU kernel modules)"),
    _fault("dmabuf", 10, _NO, "the kernel or the HCA's driver has no dma-buf registration",
           "upgrade kernel and driver, or set NCCL_DMABUF_ENABLE=0 and load nvidia_peermem"),
    _fault("gid", 12, _NO, "the GID index is not one of this network namespace",
           "unset NCCL_IB_GID_INDEX (NCCL 2.21 and later choose it), or name an index that exists on this node"),
    _fault("gid-table", 12, _NO, "the GID table of a container has holes, which NCCL 2.21 to 2.25 cannot read",
           "NCCL 2.26 or later"),
    _fault("no-route", 12, _NO, "the RoCE interface has no address or no route to the peer",
           "give the interface its address, or leave its HCA out of NCCL_IB_HCA"),
    _fault("address", 14, _ONCE, "the peer's address was not resolved when the queue pair was connected",
           "look for a wrong GID, a rail that does not reach the others (NCCL_CROSS_NIC=0), VLAN or ARP trouble, "
           "and whether the peer's port is up: ping -I each rail's interface"),
    _fault("link-types", 10, _NO, "InfiniBand and Ethernet HCAs are mixed",
           "name the HCAs of one link type in NCCL_IB_HCA"),
    _fault("versions", 10, _NO, "ranks run different NCCL versions", "use the same image on every node"),
    _fault("no-interface", 10, _NO, "no interface for NCCL's own connections",
           "set NCCL_SOCKET_IFNAME to the interface of the default route, on this node"),
    _fault("efa-libraries", 10, _NO, "EFA's user-space libraries are missing or cannot be used",
           "install the EFA installer's libraries in the image, and give the container its EFA devices"),
    _fault("libibverbs", 18, _NO, "libibverbs could not be loaded", "install libibverbs (rdma-core) in the image"),
    _fault("efa-register", 12, _NO, "the EFA plugin could not open or register its resources",
           "bring plugin, libfabric and driver to one installer's versions; look for another user of the EFA device"),
    _fault("efa-security-group", 12, _NO, "an EFA peer cannot be reached",
           "let the security group allow all traffic from and to itself, in and out, in one subnet"),
    _fault("tcpxo-gpus", 10, _NO, "the TCPXO daemon and the ranks see different numbers of GPUs",
           "give the pod every GPU NIC, and hostNetwork as the daemon's own manifest has it"),
    _fault("qp", 16, _ONCE, "a queue pair could not be set up",
           "see the error's text; compare firmware, GIDs and MTU with a node that works"),
    _fault("register", 16, _NO, "memory could not be registered with the HCA",
           "see the error's text; check memlock and that GPU and HCA drivers fit each other"),

    # Hardware of one node.
    _fault("hca-fatal", 20, _EXCLUDE, "an HCA broke down", "drain the node, reset or replace the HCA"),
    _fault("port-down", 20, _EXCLUDE, "a port went down", "drain the node, look at cable, optic and switch port"),
    _elsewhere("gpu-xid", 20, _EXCLUDE, "the GPU's driver reported a fault (Xid)",
               "look the Xid up; drain the node if it is a hardware one"),
    _elsewhere("out-of-memory", 22, _NO, "a rank ran out of memory", "use less memory: this is not the fabric"),
    _elsewhere("cuda", 24, _ONCE, "a CUDA error", "look at this rank's own error: this is not the fabric"),
    _elsewhere("program", 26, _NO, "a rank's program raised an error", "look at this rank's own error: this is not "
               "the fabric"),
    _fault("gid-changed", 28, _YES, "the GID table changed while running: an address changed or a port flapped",
           "keep addresses still while gangs run; starting again takes the new GIDs"),

    # What the HCA says of a transfer.
    _fault("local-protection", 30, _NO, "the HCA was not allowed to reach local memory",
           "switch ACS off on bare metal, check the IOMMU; NCCL_NET_GDR_LEVEL=LOC for one run tells whether it is "
           "GPUDirect"),
    _fault("remote-access", 30, _ONCE, "the peer's HCA refused the access", "look for a crash of the peer"),
    _fault("remote-fault", 30, _ONCE, "the peer's HCA could not do its part", "look for a crash of the peer, and at "
           "its driver"),
    _fault("remote-invalid", 32, _NO, "the peer's HCA called the request invalid",
           "look for ranks with different NICs or plugins; try without relaxed ordering"),
    _fault("efa-peer", 38, _EXCLUDE, "an EFA peer stopped answering",
           "find what happened first on the peer; replace its node if nothing did"),
    _fault("link", 40, _EXCLUDE, "transfers were retried until the HCA gave up: the link, the path or the peer is dead",
           "right at the start: check GID, PFC and that every rail reaches every other; after hours: look at the "
           "counters of the port blamed and drain its node"),
    _fault("rnr", 42, _EXCLUDE, "the peer did not take its transfers", "look why the peer stalled"),
    _fault("completion", 44, _ONCE, "a transfer ended with an error", "look the status up; check the peer first"),

    # Never first.
    _echo("flush", 60, "transfers were flushed after an earlier error", "look for the first error, on this or another "
          "rank"),
    _echo("peer-closed", 62, "a peer closed its connection", "the first cause is on another rank: give its log too"),
    _echo("timeout", 64, "a collective did not finish in time", "look for the rank that did not take part; its log "
          "is missing or says nothing"),
    _echo("nccl-error", 66, "NCCL reported an error without saying which", "run with NCCL_DEBUG=INFO and give every "
          "rank's log"),
    _echo("launcher", 68, "the launcher ended the ranks because one of them failed", "give the log of the rank it "
          "names"),

    # Why RDMA or GPUDirect was not taken.
    _why("ib-disabled", 10, "NCCL_IB_DISABLE switches verbs off", "unset NCCL_IB_DISABLE"),
    _why("net-is-socket", 10, "NCCL_NET asks for sockets", "unset NCCL_NET, or name the fabric's transport"),
    _why("net-env", 10, "NCCL_NET names another transport than the one taken", "correct NCCL_NET, or what loads first"),
    _why("provider", 12, "libfabric took a provider that is not RDMA", "install the EFA libraries and give the "
         "container its EFA devices; unset FI_PROVIDER"),
    _why("no-device", 14, "the verbs transport found no HCA", "check that NCCL_IB_HCA matches devices as they are "
         "named inside the container, that ports are active and that /dev/infiniband is there"),
    _why("empty-list", 14, "the verbs transport lists no HCA", "check NCCL_IB_HCA and that ports are active"),
    _why("no-plugin", 16, "no network plugin was found; EFA, TCPX and gIB need theirs", "put libnccl-net.so of the "
         "fabric's plugin on the loader path"),
    _why("no-peermem", 12, "no kernel module or dma-buf lets the HCA reach GPU memory", "load nvidia_peermem, or use "
         "dma-buf (kernel 5.12 and open GPU kernel modules)"),
    _why("gdr-level", 14, "the GPU and the HCA are farther apart than NCCL_NET_GDR_LEVEL allows", "check affinity and "
         "the topology file; raise NCCL_NET_GDR_LEVEL only if the path is good"),
    _why("gdr-off", 10, "a setting switches GPUDirect off", "unset it"),
    _why("plugin-no-gdr", 16, "the plugin switched GPUDirect off", "bring plugin, libfabric and driver to one "
         "installer's versions"),
    _why("fallback", 90, "NCCL took sockets, and the logs do not say why", "pin NCCL_NET to the fabric's transport, so "
         "that falling back is an error; run gangline rdma detect on the node"),
    _why("staged", 90, "transfers are staged through host memory, and the logs do not say why", "check nvidia_peermem "
         "or dma-buf on the node, and the distance between GPU and HCA"),
)

CAUSES = {cause.code: cause for cause in _CAUSES}
