"""What went wrong first, whom it blames and whether to try again, in the words of every version."""

from __future__ import annotations

import pytest
from nccl_log import Case, diagnosed, good, info, warn

# How NCCL tells of a completion with an error. Opcode and length are whatever the HCA left there.
COMPLETIONS = (
    ("2.7", "NET/IB : Got completion with error {s}, opcode 32577, len 32576, vendor err {v}", None, None),
    ("2.10-2.19", "NET/IB : Got completion from peer 10.0.0.2<41234> with error {s}, opcode 0, len 0, vendor err {v}",
     None, None),
    ("2.17", "NET/IB : Got completion from peer 10.0.0.2<41234> with error {s}, opcode 21993, len 32576, vendor "
     "err {v} "
     "(Recv) localGid fe80::aa remoteGid fe80::bb", None, "fe80::aa"),
    ("2.20", "NET/IB : Got completion from peer 10.0.0.2<41234> with status={s} opcode=14 len=0 vendor err {v} (Send) "
     "localGid ::ffff:10.1.0.1 remoteGids::ffff:10.1.0.2", None, "::ffff:10.1.0.1"),
    ("2.22-2.28", "NET/IB: Got completion from peer 10.0.0.2<41234> with status={s} opcode=94 len=32601 vendor err {v} "
     "(Send) localGid fe80::aa remoteGidsfe80::bb hca mlx5_3", "mlx5_3", "fe80::aa"),
    ("a plugin", "NET/IBP: Got completion from peer 10.0.0.2<41234> with status={s} opcode=0 len=0 vendor err "
     "{v} (Recv)"
     " hca mlx5_3", "mlx5_3", None),
    ("2.28 GIN", "NET/IB/GIN: Got completion from peer 10.0.0.2<41234> with status={s} opcode=3 len=4294967295 vendor "
     "err {v} (Send) hca mlx5_3", "mlx5_3", None),
    ("2.29-2.30", "NET/IB: Got completion from peer 10.0.0.2<41234> with status=IBV_WC_X_ERR({s}) "
     "opcode=IBV_WC_SEND(0) "
     "vendor_err={v}  localGid fe80::aa remoteGidsfe80::bb hca mlx5_3", "mlx5_3", "fe80::aa"),
)
STATUSES = ((12, 129, "link", "after excluding the node blamed"), (13, 135, "rnr", "after excluding the node blamed"),
            (4, 81, "local-protection", "no"), (9, 138, "remote-invalid", "no"), (10, 136, "remote-access", "once"),
            (11, 137, "remote-fault", "once"), (2, 104, "completion", "once"), (12, 10, "link", None))


@pytest.mark.parametrize(("version", "text", "hca", "gid"), COMPLETIONS, ids=[row[0] for row in COMPLETIONS])
@pytest.mark.parametrize(("status", "vendor", "cause", "retry"), STATUSES, ids=[f"{s[0]}-{s[1]}" for s in STATUSES])
def test_completions_of_every_version(version: str, text: str, hca: str | None, gid: str | None, status: int,
                                      vendor: int, cause: str, retry: str | None) -> None:
    lines = {0: [*good(0), warn(0, text.format(s=status, v=vendor))], 1: good(1)}
    Case(version, lines, "proved", cause, hca=hca, gid=gid, rank="0", retry=retry).check()


def one(name: str, text: str, cause: str | None, *, hca: str | None = None, retry: str | None = None,
        raw: bool = False) -> Case:
    """Rank 1 of two good ones says it."""
    line = text if raw else warn(1, text)
    return Case(name, {0: good(0), 1: [*good(1), line]}, "proved", cause, hca=hca, retry=retry,
                rank=None if cause is None else "1")


CASES = (
    one("memlock, 2.7", "Call to ibv_create_cq failed with error Cannot allocate memory", "memlock", retry="no"),
    one("queue pairs used up", "Call to ibv_create_qp failed", "memlock"),
    one("memlock", "Call to ibv_reg_mr_iova2 failed with error Cannot allocate memory errno 12", "memlock"),
    one("GPU memory", "Call to ibv_reg_mr failed with error Bad address errno 14", "gpu-memory", retry="no"),
    one("no dma-buf", "Call to ibv_reg_dmabuf_mr failed with error Operation not supported errno 95", "dmabuf"),
    one("another registration", "Call to ibv_reg_mr_iova2 failed with error Invalid argument errno 22", "register"),
    one("queue pair refused", "Call to ibv_create_qp failed with error Invalid argument", "qp"),
    one("address, 2.7", "Call to ibv_modify_qp failed with error Connection timed out", "address", retry="once"),
    one("address, 2.20", "Call to ibv_modify_qp failed with error Connection timed out errno 110", "address"),
    one("address, 2.26", "Call to ibv_modify_qp failed with 110 Connection timed out, on dev mlx5_4:1, curr "
        "state INIT, "
        "next state RTR, local GID index 3, local GID ::ffff:10.1.0.1, remote GID ::ffff:10.1.0.2", "address",
        hca="mlx5_4"),
    one("no route", "Call to ibv_modify_qp failed with 101 Network is unreachable, on dev mlx5_0:1, curr state INIT, "
        "next state RTR, local GID index 3, local GID N/A, remote GID N/A", "no-route", hca="mlx5_0"),
    one("wrong GID index", "Call to ibv_modify_qp failed with error No such device errno 19", "gid", retry="no"),
    one("wrong GID index, 2.26", "Call to ibv_modify_qp failed with 22 Invalid argument, on dev bnxt_re0:1, curr state "
        "INIT, next state RTR, local GID index 9, local GID N/A, remote GID N/A", "gid", hca="bnxt_re0"),
    one("another state change", "Call to ibv_modify_qp failed with error Remote I/O error errno 121", "qp"),
    one("holes in the GID table", "NET/IB: read failed in ncclIbRoceGetVersionNum: Invalid argument", "gid-table"),
    one("GIDs changed", "NET/IB : mlx5_2:1 GID table changed", "gid-changed", hca="mlx5_2:1", retry="yes"),
    one("port down, 2.7", "NET/IB : Got async event : port error", "port-down"),
    one("port down, 2.20", "NET/IB : mlx5_6:1 Got async event : port error", "port-down", hca="mlx5_6:1"),
    one("port down, 2.26", "NET/IB : mlx5_6:1 Got async error event: port error", "port-down", hca="mlx5_6:1"),
    one("HCA broken", "NET/IB : mlx5_6:1 async fatal event: local catastrophic error", "hca-fatal", hca="mlx5_6:1"),
    one("HCA broken, 2.20", "NET/IB : mlx5_6:1 Got async event : local catastrophic error", "hca-fatal"),
    one("queue pair broken", "NET/IB : mlx5_1:1 async fatal event on QP (0x7f00): local access violation work queue "
        "error", "hca-fatal", hca="mlx5_1:1"),
    one("harmless event", "NET/IB : mlx5_1:1 Got async event : client reregistration", None),
    one("non-fatal event", "NET/IB : mlx5_1:1 Got non-fatal async event: port active(9)", None),
    one("data direct is optional", "NET/IB: Error in mlx5dv_get_data_direct_sysfs_path with device mlx5_0", None),
    one("no device file", "Call to ibv_open_device failed", "device-access", retry="no"),
    one("no device file, 2.7", "NET/IB : Unable to open device mlx5_0", "device-access", hca="mlx5_0"),
    one("tried again", info(1, "Call to ibv_modify_qp failed with 110 Connection timed out, on dev mlx5_4:1, "
        "curr state "
        "INIT, next state RTR, local GID index 3, local GID N/A, remote GID N/A, retrying 1/34 after 100 msec "
        "of sleep"),
        None, raw=True),
    one("link types", "NET/IB : Attempted to connect incompatible devices: [0]mlx5_0:1/IB and [1]mlx5_1:1/RoCE. Try "
        "selecting NICs of only one link type using NCCL_IB_HCA", "link-types"),
    one("versions", "Mismatched NCCL version detected : rank 0 version 22703 rank 1 version 22803", "versions"),
    one("failover", "NET/IB: Device 1 marked as failed. Initiating recovery? no (send comm=0x7f, "
        "outstandingRecovery=0)",
        "port-down"),
    one("EFA peer", "NET/OFI Request 0x7f completed with error. RC: 5. Error: 4124 (Unresponsive receiver "
        "(reachable by "
        "EFA device but handshake failed or has yet to respond)). Completed length: 0", "efa-peer"),
    one("EFA group", "NET/OFI Request 0x7f completed with error. RC: 113. Flags: 0. Error: 4126 (Unreachable remote). "
        "Completed length: 0", "efa-security-group", retry="no"),
    one("EFA register", "NET/OFI Unable to register memory (type = 2) for device 1. RC: -22, Error: Invalid argument",
        "efa-register"),
    one("EFA vector", "NET/OFI Couldn't open AV. RC: -12, ERROR: Cannot allocate memory", "efa-register"),
    one("EFA libraries", "NET/OFI Couldn't find any optimal provider", "efa-libraries", retry="no"),
    one("UCX link", "[1764539000.123456] [nb:101:0]      ib_mlx5_log.c:171  UCX  ERROR Transport retry count "
        "exceeded on "
        "mlx5_2:1/IB (synd 0x15 vend 0x81 hw_synd 0/0)", "link", raw=True, hca="mlx5_2:1"),
    one("UCX memlock", "[1764539000.123456] [nb:101:0]  ib_device.c:9  UCX  ERROR ibv_create_cq(cqe=4096) "
        "failed: Cannot "
        "allocate memory : Please set max locked memory (ulimit -l) to 'unlimited'", "memlock", raw=True),
    one("out of memory", "[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
        "out-of-memory", raw=True),
    one("a program's own error", "ValueError: bad batch", "program", raw=True),
    one("watchdog alone", "[rank1]:[E1130 22:00:00.1 ProcessGroupNCCL.cpp:629] [Rank 1] Watchdog caught collective "
        "operation timeout: WorkNCCL(SeqNum=7)", "timeout", raw=True),
    one("a plain system error", "torch.distributed.DistBackendError: NCCL error in: NCCLUtils.hpp:268, "
        "unhandled system "
        "error", "nccl-error", raw=True),
    Case("pinned network missing, 2.27", {rank: [info(rank, "NCCL_NET set by environment to AWS Libfabric."),
         warn(rank, "Failed to initialize any NET plugin", file="plugin/net.cc:359")] for rank in (0, 1)}, "unproved",
         "net-missing", retry="no"),
    Case("pinned network missing, 2.18", {0: [warn(0, "Error: network gIB not found.")]}, "unproved", "net-missing"),
)


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_failures(case: Case) -> None:
    case.check()


LINK = "NET/IB: Got completion from peer {}<4000> with status=12 opcode=0 len=0 vendor err 129 (Send) hca mlx5_3"
FLUSH = "NET/IB: Got completion from peer {}<4000> with status=5 opcode=0 len=0 vendor err 249 (Recv) hca mlx5_0"
CLOSED = "socketProgress: Connection closed by remote peer na<50000>"
DOWN = "NET/IB : mlx5_7:1 Got async error event: port error"

FIRSTS = (
    Case("a flush is never first", {0: [*good(0), warn(0, FLUSH.format("10.0.0.2")), warn(0, CLOSED)],
                                    1: [*good(1), warn(1, LINK.format("10.0.0.1"))]}, "proved", "link", rank="1"),
    Case("echoes only, told as such", {0: [*good(0), warn(0, CLOSED)], 1: good(1)}, "proved", "peer-closed"),
    Case("times decide between ranks",
         {0: [*good(0), warn(0, LINK.format("10.0.0.2"), at="2025-11-30 10:00:40")],
          1: [*good(1), warn(1, "Call to ibv_create_cq failed", at="2025-11-30 10:05:00")]}, "proved", "link",
         rank="0"),
    Case("within the clocks' skew the nearer cause",
         {0: [*good(0), warn(0, LINK.format("10.0.0.2"), at="2025-11-30 10:00:40")],
          1: [*good(1), warn(1, DOWN, at="2025-11-30 10:00:41")]}, "proved", "port-down", rank="1", nodes=("nb",)),
    Case("without times the nearer cause",
         {0: [*good(0), warn(0, LINK.format("10.0.0.2"))], 1: [*good(1), warn(1, DOWN)]}, "proved",
         "port-down", nodes=("nb",), hca="mlx5_7:1"),
    Case("in one stream the first line", {None: [*good(0), *good(1), warn(0, LINK.format("10.0.0.2")), warn(1, DOWN)]},
         "proved", "link"),
    Case("a rank out of memory, its peers' transfers fail",
         {0: [*good(0), warn(0, LINK.format("10.0.0.2")), "torch.distributed.DistBackendError: NCCL error in: x.cpp:1"],
          1: [*good(1), "torch.OutOfMemoryError: CUDA out of memory."]}, "proved", "out-of-memory", rank="1"),
    Case("the launcher's end of it is no cause",
         {0: [*good(0), warn(0, DOWN), "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: x"],
          1: [*good(1), "torch.distributed.DistBackendError: NCCL error in: x.cpp:1"]}, "proved", "port-down",
         rank="0"),
    Case("the node in most failures is blamed",
         {rank: [*good(rank, 4), warn(rank, LINK.format("10.0.0.3"))] for rank in (0, 1, 3)} | {2: good(2, 4)},
         "proved", "link", nodes=("nc",)),
    Case("the node that all its peers lose, from its own log",
         {0: [*good(0, 3), warn(0, LINK.format("10.0.0.2")), warn(0, LINK.format("10.0.0.3"))], 1: good(1, 3),
          2: [*good(2, 3), warn(2, LINK.format("10.0.0.1"))]}, "proved", "link", nodes=("na",)),
    Case("two ends that are alike: the path", {0: [*good(0), warn(0, LINK.format("10.0.0.2"))], 1: good(1)}, "proved",
         "link", nodes=("na", "nb")),
    Case("a failure before the transport was chosen", {0: [warn(0, "NET/OFI Couldn't find any optimal provider"),
         *good(0, via="Socket/0", net="Socket")], 1: good(1, via="Socket/0", net="Socket")}, "fallback",
         "efa-libraries", nodes=("na",)),
    Case("lines of no rank spoil nothing", {None: ["NCCL version 2.28.3+cuda12.9", *good(0), *good(1)]}, "proved"),
    Case("lines of no rank tell of a failure", {None: [*good(0), *good(1), "ValueError: bad batch"]}, "proved",
         "program"),
)


@pytest.mark.parametrize("case", FIRSTS, ids=[case.name for case in FIRSTS])
def test_the_first_cause(case: Case) -> None:
    case.check()


def test_how_the_first_cause_was_found_is_told() -> None:
    line = LINK.format("10.0.0.2")
    timed = diagnosed({0: [*good(0), warn(0, line, at="2025-11-30 10:00:40")], 1: good(1)})
    several = diagnosed({0: [*good(0), warn(0, line)], 1: [*good(1), warn(1, DOWN)]})
    stream = diagnosed({None: [*good(0), warn(0, line)]})
    assert [verdict.order for verdict in (timed, several, stream)] == ["time", "weight", "arrival"]
