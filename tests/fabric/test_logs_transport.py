"""What proves RDMA and what does not, in the words of every NCCL from 2.3 to 2.30."""

from __future__ import annotations

import pytest
from nccl_log import Case, both, channel, diagnosed, good, info, start

# (versions, one channel line of rank 0, the same of rank 1); {} is what follows "via NET/"
WORDINGS = (
    ("2.3", "Ring 00 : 1 -> 0 via NET/{}", "Ring 00 : 0 -> 1 via NET/{}"),
    ("2.4-2.6", "Ring 00 : 0[0] -> 1[0] [send] via NET/{}", "Ring 00 : 0[0] -> 1[0] [receive] via NET/{}"),
    ("2.7-2.8", "Channel 00 : 0[1b000] -> 1[1b000] [send] via NET/{}",
     "Channel 00 : 0[1b000] -> 1[1b000] [receive] via NET/{}"),
    ("2.9-2.11", "Channel 01 : 0[90000] -> 1[90000] [send] via NET/{}/Shared",
     "Channel 01 : 0[90000] -> 1[90000] [receive] via NET/{}/Shared"),
    ("2.12-2.17", "Channel 01/0 : 0[90000] -> 1[90000] [send] via NET/{}",
     "Channel 01/0 : 0[90000] -> 1[90000] [receive] via NET/{}"),
    ("2.18-2.30", "Channel 03/0 : 0[3] -> 1[3] [send] via NET/{}", "Channel 03/0 : 0[3] -> 1[3] [receive] via NET/{}"),
    ("2.18-2.30 point to point", "Channel 15/1 : 0[3] -> 1[3] [send] via NET/{}/Shared",
     "Channel 15/1 : 0[3] -> 1[3] [receive] via NET/{}/Shared"),
)
TRANSPORTS = (
    ("IB", "IB/0/GDRDMA", "proved"),
    ("IB", "IB/11", "rdma-no-gdr"),
    ("Socket", "Socket/0", "fallback"),
    ("AWS Libfabric", "AWS Libfabric/3/GDRDMA", "proved"),
)


@pytest.mark.parametrize(("versions", "first", "second"), WORDINGS, ids=[row[0] for row in WORDINGS])
@pytest.mark.parametrize(("net", "via", "state"), TRANSPORTS, ids=[row[1] for row in TRANSPORTS])
def test_channel_lines_of_every_version(versions: str, first: str, second: str, net: str, via: str, state: str) -> None:
    logs = {rank: [*start(rank, net=net), info(rank, line.format(via))] for rank, line in ((0, first), (1, second))}
    assert diagnosed(logs).state == state
    one_file = diagnosed({None: [*logs[0], *logs[1]]})
    assert {rank.rank: rank.state for rank in one_file.ranks} == {"0": state, "1": state}


def alike(state: str, name: str, *more: str, via: str = "IB/0/GDRDMA", net: str = "IB",
          cause: str | None = None) -> Case:
    return Case(name, both(*more, via=via, net=net), state, cause)


def silent(name: str, *more: str, state: str = "unproved", net: str = "IB", cause: str | None = None) -> Case:
    """Two ranks that never show a channel."""
    return Case(name, {rank: [*start(rank, net=net), *(info(rank, text) for text in more)] for rank in (0, 1)}, state,
                cause)


SHAPE = "comm 0x55 rank 0 nRanks 2 nNodes {} localRanks 1 localRank 0 MNNVL {}"

CASES = (
    # Proof, in the names of all fabrics.
    alike("proved", "PXN: the NIC of another rank", via="IB/3(5)/GDRDMA"),
    alike("proved", "data direct, 2.26 and later", via="IB/3/GDRDMA(PCI)/Shared"),
    alike("proved", "HPC-X", via="IBext_v8/2/GDRDMA", net="IBext_v8"),
    alike("proved", "gIB", via="gIB/7/GDRDMA", net="gIB"),
    alike("proved", "TCPX", via="GPUDirectTCPX_v7/1/GDRDMA", net="GPUDirectTCPX_v7"),
    alike("proved", "TCPXO", via="FasTrak/1/GDRDMA/Shared", net="FasTrak"),
    alike("proved", "EFA", "NET/OFI Selected Provider is efa (found 4 nics)", "NET/OFI Using transport protocol RDMA",
          via="AWS Libfabric/0/GDRDMA", net="AWS Libfabric"),
    alike("proved", "EFA, newer words", "NET/OFI Selected provider is efa, fabric is efa-direct (found 32 nics)",
          via="AWS Libfabric/0/GDRDMA", net="AWS Libfabric"),
    alike("proved", "NCCL_NET pinned, in other letters", "NCCL_NET set by environment to ib."),
    alike("proved", "no plugin, none needed",
          "NET/Plugin : No plugin found (libnccl-net.so), using internal implementation"),
    alike("proved", "no plugin, 2.22 to 2.25",
          "NET/Plugin: Could not find: libnccl-net.so. Using internal network plugin."),
    alike("proved", "no verbs device, but another plugin's", "NET/IB : No device found.", "NET/Plugin: Loaded net "
          "plugin AWS Libfabric (v8)", via="AWS Libfabric/0/GDRDMA", net="AWS Libfabric"),
    alike("proved", "bootstrap by TCP is no fall-back", "NET/Socket : Using [0]eth0:10.0.0.1<0>"),
    Case("on-node ranks beside a proved one owe nothing",
         {None: [*good(0, 2), *good(1, 2), info(0, "Channel 00/0 : 0[0] -> 2[1] via P2P/CUMEM/read"),
                 "na:102:9 [1] NCCL INFO comm 0x5 rank 2 nranks 3 cudaDev 1 busId 2 - Init COMPLETE",
                 "na:102:9 [1] NCCL INFO Channel 00/0 : 2[1] -> 0[0] via P2P/CUMEM/read"]},
         "proved", ranks={"2": "unproved", "0": "proved"}),

    # Not proof.
    silent("chosen, but no channel was opened yet"),
    silent("devices are listed", "NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB eth0:10.0.0.1<0>"),
    silent("an empty list of devices", "NET/IB : Using ; OOB eth0:10.0.0.1<0>"),
    silent("DMA-BUF is there", "DMA-BUF is available on GPU device 0"),
    silent("GPUDirect is enabled, says 2.7", "GPU Direct RDMA Enabled for GPU 1b000 / HCA 0 (distance 4 <= 4), read 0"),
    silent("GPUDirect is enabled, says 2.28",
           "GPU Direct RDMA Enabled for GPU 0 / HCA 0 (distance 4 <= 5), read 0 mode Default"),
    silent("GPUDirect is enabled for the HCA", "NET/IB : GPU Direct RDMA Enabled for HCA 0 'mlx5_0'"),
    silent("a plugin was loaded", "NET/Plugin: Loaded net plugin IBext_v8 (v8)"),
    silent("a plugin was assigned", "Initialized NET plugin IB", "Assigned NET plugin IB to comm"),
    silent("EFA selected", "NET/OFI Selected provider is efa, fabric is efa (found 32 nics)", net="AWS Libfabric"),
    silent("graph search", "Setting affinity for GPU 0", "Trees [0] 1/-1/-1->0->-1", "Ring 00 : 1 -> 0 -> 1"),
    silent("connected", "Connected all rings", "Connected all trees"),
    silent("SHARP alone", "CollNet 00/0 : 0 [send] via COLLNET/SHARP/0/GDRDMA"),
    silent("a program that talks of it", "", "all my traffic goes via NET/IB/0/GDRDMA"),
    silent("one node", SHAPE.format(1, 0), "Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM"),
    silent("one node without a fabric", SHAPE.format(1, 0), net="Socket"),
    silent("NVLink between nodes", SHAPE.format(2, 1), "Channel 00/0 : 0[0] -> 1[0] via P2P/MNNVL"),
    Case("nothing of NCCL", {0: ["hello", "step 1 loss 2.3"], 1: ["hello"]}, "unproved"),
    Case("no logs", {}, "unproved"),
    Case("a rank without its log", {0: good(0)}, "unproved"),
    Case("a rank with an empty log", {0: good(0), 1: []}, "unproved", ranks={"0": "proved", "1": "unproved"}),
    Case("cut before GDRDMA", {rank: [*start(rank), channel(rank, "IB/0/GD")] for rank in (0, 1)}, "unproved"),
    alike("unproved", "another network than the one pinned", "NCCL_NET set by environment to gIB.", cause="net-env"),

    # RDMA through the host's memory.
    alike("rdma-no-gdr", "nothing says why", via="IB/0", cause="staged"),
    alike("rdma-no-gdr", "no module, 2.7", "NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_0' (no module)",
          via="IB/0", cause="no-peermem"),
    alike("rdma-no-gdr", "no module, 2.12 and later", "NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_0'",
          via="IB/0", cause="no-peermem"),
    alike("rdma-no-gdr", "too far", "GPU Direct RDMA Disabled for GPU 1b000 / HCA 0 (distance 7 > 4)",
          via="IB/0/Shared", cause="gdr-level"),
    alike("rdma-no-gdr", "too far, 2.27", "GPU Direct RDMA Disabled for GPU 3 / HCA 10 (distance 9 > 5)", via="IB/0",
          cause="gdr-level"),
    alike("rdma-no-gdr", "switched off", "NCCL_NET_GDR_LEVEL set by environment to LOC", via="IB/0", cause="gdr-off"),
    alike("rdma-no-gdr", "EFA's plugin gave up", "NET/OFI Could not disable CUDA API usage for HMEM, disabling GDR",
          via="AWS Libfabric/0", net="AWS Libfabric", cause="plugin-no-gdr"),
    Case("one channel of many", {0: [*good(0), channel(0, "IB/1")], 1: good(1)}, "mixed", "staged", nodes=("na",),
         rank="0", ranks={"0": "rdma-no-gdr", "1": "proved"}),

    # Sockets.
    alike("fallback", "nothing says why", via="Socket/0", net="Socket", cause="fallback"),
    alike("fallback", "Google's faster sockets", via="FastSocket/0", net="FastSocket", cause="fallback"),
    alike("fallback", "no device", "NET/IB : No device found.", via="Socket/0", net="Socket", cause="no-device"),
    alike("fallback", "an empty list", "NET/IB : Using ; OOB eth0:10.0.0.1<0>", via="Socket/0", net="Socket",
          cause="empty-list"),
    alike("fallback", "verbs switched off", "NCCL_IB_DISABLE set by environment to 1.", "NET/IB : No device found.",
          via="Socket/0", net="Socket", cause="ib-disabled"),
    alike("fallback", "sockets asked for", "NCCL_NET set by environment to Socket.", via="Socket/1", net="Socket",
          cause="net-is-socket"),
    alike("fallback", "no plugin, up to 2.20", "NET/Plugin : No plugin found (libnccl-net.so), using internal "
          "implementation", via="Socket/0", net="Socket", cause="no-plugin"),
    alike("fallback", "no plugin, 2.26", "NET/Plugin: Could not find: libnccl-net.so", via="Socket/0", net="Socket",
          cause="no-plugin"),
    alike("fallback", "libfabric over TCP", "NET/OFI Selected Provider is tcp;ofi_rxm (found 1 nics)",
          via="AWS Libfabric/0", net="AWS Libfabric", cause="provider"),
    silent("sockets chosen, no channel yet", state="fallback", net="Socket", cause="fallback"),
    Case("one node fell back", {0: good(0), 1: good(1, via="Socket/0", net="Socket")}, "mixed", "fallback",
         nodes=("nb",), rank="1", ranks={"0": "proved", "1": "fallback"}),
    Case("both in one rank", {0: [*good(0), channel(0, "Socket/0")], 1: good(1)}, "mixed", "fallback", rank="0"),
)


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_transport(case: Case) -> None:
    case.check()


def test_what_the_caller_expects_counts_before_the_log() -> None:
    logs = both("NCCL_NET set by environment to IB.")
    assert diagnosed(logs, expected="IB").state == "proved"
    assert diagnosed(logs, expected="gIB").state == "unproved"


def test_the_nics_of_a_rank_are_counted_and_unequal_nodes_are_told() -> None:
    more = [channel(0, f"IB/{nic}/GDRDMA") for nic in range(8)]
    found = diagnosed({0: [*start(0), *more, info(0, "Local Net device counts across ranks: min 7 max 8")], 1: good(1)})
    assert found.ranks[0].nics == 8
    assert any("7 to 8" in note for note in found.notes)


def test_versions_that_differ_are_told() -> None:
    logs = {rank: [*good(rank), info(rank, f"NCCL version 2.{27 + rank}.3+cuda12.9")] for rank in (0, 1)}
    found = diagnosed(logs)
    assert [rank.nccl for rank in found.ranks] == ["2.27.3", "2.28.3"]
    assert any("2.27.3, 2.28.3" in note for note in found.notes)


def test_ranks_whose_logs_are_missing_are_named() -> None:
    found = diagnosed({rank: good(rank, 4) for rank in (0, 2)})
    assert found.missing == (1, 3)
    assert "1, 3" in found.reason
