"""What lines tell of the transport. A literal table: wording, versions that print it, where that was read.

Versions are NCCL's unless the source says otherwise; sources are files of NVIDIA/nccl and aws/aws-ofi-nccl at
their release tags. Not here, because none of it proves or disproves anything: "DMA-BUF is available",
"GPU Direct RDMA Enabled", "Bootstrap : Using" and "NET/Socket : Using" (also printed beside RDMA).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from gangline.fabric.logs.values import (
    Address,
    Channel,
    Comm,
    Counts,
    Devices,
    Failed,
    Network,
    OnNode,
    Provider,
    Setting,
    Shape,
    Told,
    Version,
)

Found = re.Match[str]
MAX_NAME = 48  # longer names of networks and devices are garbage


@dataclass(frozen=True, slots=True)
class Pattern:
    """One wording. `needle` is a part of it that is cheap to look for; `warns`: counts at level WARN only."""

    needle: str
    regex: re.Pattern[str]
    tells: Callable[[Found], Told]
    since: str
    until: str | None
    source: str
    warns: bool = False


def _row(needle: str, regex: str, tells: Callable[[Found], Told], since: str, until: str | None,
         source: str) -> Pattern:
    return Pattern(needle, re.compile(regex), tells, since, until, source)


def _why(code: str) -> Callable[[Found], Told]:
    return lambda found: Failed(code, found.string[found.start():][:200])


_TAIL = re.compile(r"(?:/GDRDMA(?P<gdr>)(?:\(PCI\))?)?(?:/Shared)?(?P<end>\s*$)?")


def _channel(found: Found) -> Channel:
    """What follows the device decides: no /GDRDMA counts only where the line is seen to end."""
    tail = _TAIL.match(found.string, found.end())
    gdr = None if tail is None else True if tail["gdr"] is not None else False if tail["end"] is not None else None
    first, second = int(found["a"]), int(found["b"])
    own, peer = (first, second) if found["way"] == "send" else (second, first)  # 2.3 tells of what it receives
    return Channel(found["net"], int(found["index"]), gdr, own, peer)


def _devices(found: Found) -> Devices:
    names = re.findall(r"\[\d+\](\S+?:\d+)/(?:IB|RoCE)", found["list"])
    return Devices(tuple(name[:MAX_NAME] for name in names[:64]), found["oob"])


_RANKS = r"(?P<a>\d{1,7})(?:\[[0-9a-f]+\])? -> (?P<b>\d{1,7})(?:\[[0-9a-f]+\])? "
_NET = r"via NET/(?P<net>[^/\[\]:]{1,48})/(?P<index>\d{1,4})(?:\(\d+\))?"

TRANSPORT: tuple[Pattern, ...] = (
    _row("via NET", r"(?:Channel|Ring) \d+(?:/\d+)? : " + _RANKS + r"(?:\[(?P<way>send|receive)\] )?" + _NET,
         _channel, "2.3", None, "src/transport/net.cc"),
    _row("via P2P", r"(?:Channel|Ring) \d+(?:/\d+)? : " + _RANKS + r"via P2P/\S", lambda m: OnNode(),
         "2.3", None, "src/transport/p2p.cc"),
    _row("via SHM", r"(?:Channel|Ring) \d+(?:/\d+)? : " + _RANKS + r"via SHM/\S", lambda m: OnNode(),
         "2.3", None, "src/transport/shm.cc"),
    _row("via direct", r"(?:Channel|Ring) \d+(?:/\d+)? : " + _RANKS + r"via direct shared memory", lambda m: OnNode(),
         "2.3", "2.17", "src/transport/shm.cc"),
    _row("Using network ", r"Using network (\S.{0,47}?)\s*$", lambda m: Network(m[1]), "2.4", None, "src/init.cc"),
    _row(" nranks ", r"comm \S+ rank (\d+) nranks (\d+) .*Init (?:START|COMPLETE)",
         lambda m: Comm(int(m[1]), int(m[2])), "2.3", None, "src/init.cc"),
    _row(" nNodes ", r"comm \S+ rank \d+ nRanks \d+ nNodes (\d+) localRanks \d+ localRank \d+ MNNVL (\d)",
         lambda m: Shape(int(m[1]), m[2] == "1"), "2.22", None, "src/init.cc"),
    _row("MNNVL 1 ", r"MNNVL 1 cliqueId", lambda m: Shape(None, True), "2.20", None, "src/mnnvl.cc"),
    _row("NET/IB : Using", r"NET/IB : Using(?P<list>(?: \[\d+\]\S+)*) *(?:\[RO\])?\s*; OOB(?: [^\s:]+:\[?"
         r"(?P<oob>[0-9a-fA-F.:]+)\]?<)?", _devices,
         "2.4", None, "src/transport/net_ib.cc, net_ib/init.cc"),
    _row("NET/IB : No device found", r"NET/IB : No device found", _why("no-device"), "2.4", None,
         "src/transport/net_ib.cc"),
    _row("elected ", r"NET/OFI Selected [Pp]rovider is (\w[\w;-]{0,47})", lambda m: Provider(m[1]), "ofi 0.9", None,
         "aws-ofi-nccl src/nccl_ofi_net.cpp"),
    _row("Local Net device counts", r"Local Net device counts across ranks: min (\d+) max (\d+)",
         lambda m: Counts(int(m[1]), int(m[2])), "2.30.3", None, "src/init.cc"),
    _row("NCCL version", r"NCCL version (\d+\.\d+\.\d+)\S*(?=\+cuda|\s|$)", lambda m: Version(m[1]), "2.3", None,
         "src/init.cc"),
    _row("Bootstrap", r"Bootstrap ?: Using \[?\d*\]?\S+?:([0-9a-fA-F.:\[\]]+)<\d+>", lambda m: Address(m[1]),
         "2.4", None, "src/bootstrap.cc"),
    _row(" set by environment to ", r"(NCCL_NET|NCCL_IB_DISABLE|NCCL_NET_GDR_LEVEL|NCCL_NET_GDR_READ|NCCL_IB_HCA"
         r"|NCCL_IB_GDR_LEVEL|NCCL_IB_CUDA_SUPPORT) set by environment to (\S.{0,47}?)\.?\s*$",
         lambda m: Setting(m[1], m[2]), "2.4", None, "src/misc/param.cc"),
    _row("no module)", r"GPU Direct RDMA Disabled for HCA \d+ '[^']*' \(no module\)", _why("no-peermem"), "2.4", "2.17",
         "src/transport/net_ib.cc"),
    _row("GPU Direct RDMA Disabled for HCA", r"NET/[^/:]{1,48} : GPU Direct RDMA Disabled for HCA", _why("no-peermem"),
         "2.12", None, "src/graph/topo.cc, xml"),
    _row("GPU Direct RDMA Disabled for GPU", r"GPU Direct RDMA Disabled for GPU \S+ / HCA \S+ \(distance",
         _why("gdr-level"), "2.4", "2.29", "src/graph/paths.cc"),
    _row("disabling GDR", r"NET/OFI .*disabling GDR", _why("plugin-no-gdr"), "ofi 1.5", None,
         "aws-ofi-nccl src/nccl_ofi_ofiutils.cpp"),
    _row("GDR disabled on GDR", r"NET/OFI .*GDR disabled on GDR.supported instance type", _why("plugin-no-gdr"),
         "ofi 1.7", None, "aws-ofi-nccl src/platform-aws.cpp"),
    _row("NET/Plugin", r"NET/Plugin ?: (?:No plugin found|Using internal n|Could not find: ?\S*libnccl-net)",
         _why("no-plugin"), "2.4", None, "src/net.cc, src/plugin/net.cc"),
)
