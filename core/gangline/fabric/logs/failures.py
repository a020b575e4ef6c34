"""What lines tell of failures. A literal table: the first row that fits decides.

Versions are NCCL's unless the source says otherwise. A row of NCCL's counts at level WARN only, since NCCL prints
some of the same words when it tries again. Opcode and length of a completion are not read: after an error the
HCA leaves them undefined, and only status, vendor error and the work request's id are valid (ibv_poll_cq(3)).
"""

from __future__ import annotations

import re
from collections.abc import Callable

from gangline.fabric.logs.tables import MAX_NAME, Found, Pattern
from gangline.fabric.logs.values import Failed, Told

MAX_DETAIL = 240

# ibv_wc_status of <infiniband/verbs.h>; the others mean nothing that a person could act on.
_STATUS = {4: "local-protection", 5: "flush", 8: "local-protection", 9: "remote-invalid", 10: "remote-access",
           11: "remote-fault", 12: "link", 13: "rnr"}

_HCA = re.compile(r"\bhca ([\w.-]+)|\bon dev ([\w.-]+):\d+|NET/IB ?: ([\w.-]+:\d{1,3})\b|\b((?:mlx5|bnxt_re|irdma|"
                  r"ionic|efa|rdmap\w+|ibp\w+|rocep\w+)_?\w*:\d{1,3})\b|evice ([\w.-]+)$")
_GID = re.compile(r"\blocal ?G(?:ID|id) (?!index)([0-9a-fA-F:.]+)")
_PEER_GID = re.compile(r"\bremote ?G(?:ID|ids) ?([0-9a-fA-F:.]+)")
_PEER = re.compile(r"\b(?:peer|from|to|address) \[?([0-9a-fA-F.:]*[.:][0-9a-fA-F.:]*[0-9a-fA-F])\]?<\d+>")


def _named(code: str, found: Found) -> Failed:
    text = found.string[found.start():][:1000]
    hca, gid, peer, peer_gid = (what.search(text) for what in (_HCA, _GID, _PEER, _PEER_GID))
    name = next((group for group in hca.groups() if group), None) if hca else None
    return Failed(code, text[:MAX_DETAIL].strip(), hca=name[:MAX_NAME] if name else None,
                  gid=gid[1] if gid else None, peer=peer[1] if peer else None,
                  peer_gid=peer_gid[1] if peer_gid else None)


def _is(code: str) -> Callable[[Found], Told]:
    return lambda found: _named(code, found)


def _completion(found: Found) -> Told:
    return _named(_STATUS.get(int(found["status"]), "completion"), found)


def _nccl(needle: str, regex: str, tells: Callable[[Found], Told], since: str, until: str | None = None,
          source: str = "src/transport/net_ib.cc, net_ib/") -> Pattern:
    return Pattern(needle, re.compile(regex), tells, since, until, source, warns=True)


def _any(needle: str, regex: str, code: str, since: str, source: str) -> Pattern:
    return Pattern(needle, re.compile(regex), _is(code), since, None, source)


_VERBS = "src/misc/ibvwrap.cc"
_OFI = "aws-ofi-nccl src/"

_OF_NCCL = (
    _nccl("Got completion", r"Got completion (?:from peer \S+ )?with (?:error |status=)(?:[A-Za-z_]\w*\()?"
          r"(?P<status>\d{1,9})\b", _completion, "2.3"),
    _nccl("ibv_modify_qp", r"ibv_modify_qp failed with .*?Connection timed out", _is("address"), "2.7", None, _VERBS),
    _nccl("ibv_modify_qp", r"ibv_modify_qp failed with .*?(?:Network is unreachable|No route to host)",
          _is("no-route"), "2.7", None, _VERBS),
    _nccl("ibv_modify_qp", r"ibv_modify_qp failed with .*?(?:No such device|Invalid argument)", _is("gid"), "2.7",
          None, _VERBS),
    _nccl("ibv_modify_qp", r"ibv_modify_qp failed", _is("qp"), "2.7", None, _VERBS),
    _nccl("ibv_reg_dmabuf_mr", r"ibv_reg_dmabuf_mr failed.*?not supported", _is("dmabuf"), "2.12", None, _VERBS),
    _nccl("ibv_reg_", r"ibv_reg_\w*mr\w* failed.*?Cannot allocate memory", _is("memlock"), "2.7", None, _VERBS),
    _nccl("ibv_reg_", r"ibv_reg_\w*mr\w* failed.*?Bad address", _is("gpu-memory"), "2.7", None, _VERBS),
    _nccl("ibv_reg_", r"ibv_reg_\w*mr\w* failed", _is("register"), "2.7", None, _VERBS),
    _nccl("ibv_create_", r"ibv_create_(?:qp|cq) failed(?!.*(?:Invalid argument|not supported))", _is("memlock"), "2.3",
          None, _VERBS),
    _nccl("ibv_create_", r"ibv_create_(?:qp|cq) failed", _is("qp"), "2.3", None, _VERBS),
    _nccl("ibv_open_device", r"ibv_open_device failed", _is("device-access"), "2.3", None, _VERBS),
    _nccl("Unable to open device", r"NET/IB : Unable to open device", _is("device-access"), "2.3"),
    _nccl("ncclIbRoceGetVersionNum", r"(?:open|read) failed in ncclIbRoceGetVersionNum", _is("gid-table"), "2.21",
          "2.25"),
    _nccl("GID table changed", r"NET/IB : (?=\S+:\d+ GID table changed)", _is("gid-changed"), "2.27"),
    _nccl("sync", r"NET/IB : .*(?:Got )?async (?:error )?event ?: port error", _is("port-down"), "2.3"),
    _nccl("async", r"NET/IB : .*async .*: (?:path migration|communication established|client reregistration|"
          r"SM change|LID change|P_Key change|port active|SRQ limit|last WQE)", _is(""), "2.3"),
    _nccl("async", r"NET/IB : .*Got non-fatal async event", _is(""), "2.27"),
    _nccl("async", r"NET/IB : .*(?:async fatal event|async (?:error )?event ?: (?:local catastrophic|.*fatal))",
          _is("hca-fatal"), "2.3"),
    _nccl("async fatal event on", r"async fatal event on (?:CQ|QP|SRQ)", _is("hca-fatal"), "2.24"),
    _nccl("marked as failed", r"NET/IB: .*Device \d+ marked as failed", _is("port-down"), "2.29"),
    _nccl("only one link type", r"NET/IB : .*[Tt]ry selecting NICs of only one link type", _is("link-types"), "2.22"),
    _nccl("different link_layer", r"NET/IB : Can't merge net devices with different link_layer", _is("link-types"),
          "2.20", "2.21"),
    _nccl("Mismatched NCCL version", r"Mismatched NCCL version detected", _is("versions"), "2.3", None, "src/init.cc"),
    _nccl("NCCL version mismatch", r"NCCL version mismatch with remote peer", _is("versions"), "2.23", None,
          "src/bootstrap.cc"),
    _nccl("no socket interface", r"Bootstrap : no socket interface found", _is("no-interface"), "2.3", None,
          "src/bootstrap.cc"),
    _nccl("No IP interface", r"NET/IB : No IP interface found", _is("no-interface"), "2.3"),
    _nccl("initialize any NET", r"Failed to initialize any NET plugin", _is("net-missing"), "2.27", None,
          "src/plugin/net.cc"),
    _nccl("Error: network", r"Error: network .* not found", _is("net-missing"), "2.10", "2.26", "src/net.cc"),
    _nccl("Number of GPUs", r"Number of GPUs .*(?:mismatch|detected)", _is("tcpxo-gpus"), "2.20", None,
          "GoogleCloudPlatform/container-engine-accelerators#580"),
    _nccl("optimal provider", r"NET/OFI Could(?:n't| not) find any optimal provider", _is("efa-libraries"), "ofi 1.0",
          None, _OFI),
    _nccl("NET/OFI", r"NET/OFI .*(?:[Ss]ecurity group|\b4126\b|EHOSTUNREACH|Unreachable remote|No route to host|"
          r"(?:RC|err|Error): -?(?:15|113)\b)", _is("efa-security-group"), "ofi 1.5", None, _OFI),
    _nccl("NET/OFI", r"NET/OFI .*(?:\b4124\b|[Uu]nresponsive (?:remote|receiver)|(?:RC|err|prov_errno|Error): -?13\b)",
          _is("efa-peer"), "ofi 1.5", None, _OFI),
    _nccl("NET/OFI", r"NET/OFI .*(?:Couldn't open AV|[Uu]nable to register memory|RC: -22\b)", _is("efa-register"),
          "ofi 1.5", None, _OFI),
    _nccl("NET/OFI", r"NET/OFI Request .*completed with error", _is("completion"), "ofi 1.0", None, _OFI),
    _nccl("losed by", r"Connection closed by (?:remote )?peer", _is("peer-closed"), "2.3", None, "src/misc/socket.cc"),
    _nccl("Call to ", r"Call to (?:recv|send|connect|poll)\b.* failed", _is("peer-closed"), "2.3", None,
          "src/misc/socket.cc"),
    _nccl("remote process", r"remote process exited or there was a network error", _is("peer-closed"), "2.14", None,
          "src/init.cc"),
    _nccl("unhandled system", r"unhandled system error", _is("nccl-error"), "2.3", None, "src/init.cc"),
)

_OF_OTHERS = (
    _any("libibverbs", r"Failed to open libibverbs", "libibverbs", "2.3", _VERBS),
    _any("UCX", r"UCX +ERROR .*(?:retry count exceeded|Transport retry|Endpoint timeout)", "link", "UCX 1.8",
         "src/uct/ib/mlx5/ib_mlx5_log.c"),
    _any("UCX", r"UCX +ERROR .*RNR retry", "rnr", "UCX 1.8", "src/uct/ib/mlx5/ib_mlx5_log.c"),
    _any("UCX", r"UCX +ERROR .*(?:Local protection|local access)", "local-protection", "UCX 1.8",
         "src/uct/ib/mlx5/ib_mlx5_log.c"),
    _any("UCX", r"UCX +ERROR .*Remote access", "remote-access", "UCX 1.8", "src/uct/ib/mlx5/ib_mlx5_log.c"),
    _any("UCX", r"UCX +ERROR .*Remote invalid request", "remote-invalid", "UCX 1.8", "src/uct/ib/mlx5/ib_mlx5_log.c"),
    _any("UCX", r"UCX +ERROR .*(?:max locked memory|ibv_create_\w+\(.*Cannot allocate memory|"
         r"ibv_reg_mr\(.*Cannot allocate memory)", "memlock", "UCX 1.8", "src/uct/ib/base/ib_device.c"),
    _any("UCX", r"UCX +ERROR .*ibv_reg_mr\(.*Bad address", "gpu-memory", "UCX 1.8", "src/uct/ib/base/ib_md.c"),
    _any("UCX", r"UCX +ERROR .*(?:Work Request Flushed|flush)", "flush", "UCX 1.8", "src/uct/ib/mlx5/ib_mlx5_log.c"),
    _any("UCX", r"UCX +(?:ERROR|WARN) .*(?:port error|IBV_EVENT_PORT_ERR)", "port-down", "UCX 1.8",
         "src/uct/ib/base/ib_device.c"),
    _any("UCX", r"UCX +(?:ERROR|DIAG|WARN) .*(?:IBV_EVENT_DEVICE_FATAL|device fatal|[Ll]ocal catastrophic)",
         "hca-fatal", "UCX 1.8", "src/uct/ib/base/ib_device.c"),
    _any("UCX", r"UCX +ERROR .*(?:no active messages transport|Destination is unreachable|Connection reset)",
         "peer-closed", "UCX 1.8", "src/ucp/wireup/"),
    _any("Xid (", r"NVRM: Xid \(", "gpu-xid", "driver", "the kernel's log"),
    _any("Watchdog caught", r"Watchdog caught collective operation timeout", "timeout", "torch 2.0",
         "torch ProcessGroupNCCL.cpp"),
    _any("Timed out waiting", r"Timed out waiting \d+ms for (?:recv|send)", "timeout", "torch 1.8", "gloo"),
    _any("DistBackendError", r"DistBackendError: ", "nccl-error", "torch 2.0", "torch ProcessGroupNCCL.cpp"),
    _any("NCCL error", r"NCCL error (?:in|at)?", "nccl-error", "torch 1.0", "torch NCCLUtils.cpp"),
    _any("NCCL Error", r"NCCL Error \d", "nccl-error", "torch 1.0", "torch csrc/cuda/nccl.cpp"),
    _any("ncclSystemError", r"ncclSystemError", "nccl-error", "torch 1.0", "torch NCCLUtils.hpp"),
    _any("unhandled system", r"unhandled system error", "nccl-error", "2.3", "src/init.cc"),
    _any("ChildFailedError", r"ChildFailedError", "launcher", "torch 1.9", "torch distributed/elastic"),
    _any("SignalException", r"SignalException", "launcher", "torch 1.9", "torch distributed/elastic"),
    _any("out of memory", r"CUDA out of memory|OutOfMemoryError|Out of memory: Killed process|oom-kill",
         "out-of-memory", "torch 1.0", "torch CUDACachingAllocator.cpp; the kernel's log"),
    _any("CUDA error", r"CUDA error: ", "cuda", "torch 1.0", "torch CUDAException.cpp"),
    _any("Error: ", r"^(?:\w+\.)*\w*Error: .*(?:Connection (?:reset|closed)|Broken pipe|NCCL|ncclInternal|Gloo|gloo|"
         r"TCPStore)", "peer-closed", "torch 1.0", "Python"),
    _any("Error: ", r"^(?:[A-Za-z_]\w*\.)*[A-Z]\w*Error: \S", "program", "Python 3", "Python"),
)

FAILURES: tuple[Pattern, ...] = _OF_NCCL + _OF_OTHERS
