"""Every profile: its figures, a host of its kind, and files of the user's own over them."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from typing import Any

import pytest
from host_trees import GPU_IDS, HostTree, flat, rail
from hypothesis import given, settings
from hypothesis import strategies as st

from gangline.fabric import profiles
from gangline.fabric.asking import ask_of, pod_parts, sbatch_lines
from gangline.fabric.detection import detect
from gangline.fabric.environment import Gang, environment
from gangline.fabric.profiles import Profile, load_catalogue
from gangline.model.errors import Rejected

# name: (kind, NICs, Gbps of a node, NCCL_NET, Kubernetes resource, a variable that must be set, one that must not)
TABLE: dict[str, tuple[str | None, int | None, int | None, str, str, str, str]] = {
    "aws.p4d": ("efa", 4, 400, "AWS Libfabric", "vpc.amazonaws.com/efa=4", "", "NCCL_TOPO_FILE"),
    "aws.p5": ("efa", 32, 3200, "AWS Libfabric", "vpc.amazonaws.com/efa=32", "", "NCCL_PROTO"),
    "aws.p5en": ("efa", 16, 3200, "AWS Libfabric", "vpc.amazonaws.com/efa=16", "", "NCCL_BUFFSIZE"),
    "aws.p6-b200": ("efa", 8, 3200, "AWS Libfabric", "vpc.amazonaws.com/efa=8", "", "NCCL_NETDEVS_POLICY"),
    "aws.p6-b300": ("efa", 16, 6400, "AWS Libfabric", "vpc.amazonaws.com/efa=16", "", "NCCL_IB_HCA"),
    "aws.p6e-gb200": ("efa", None, None, "AWS Libfabric", "vpc.amazonaws.com/efa=4", "NCCL_MNNVL_ENABLE=1",
                      "NCCL_IB_HCA"),
    "aws.other": ("efa", None, None, "AWS Libfabric", "vpc.amazonaws.com/efa=1", "", "NCCL_PROTO"),
    "gcp.a3-high": ("tcpx", 4, 800, "GPUDirectTCPX_v7", "", "NCCL_GPUDIRECTTCPX_SOCKET_IFNAME=eth1,eth2,eth3,eth4",
                    "NCCL_IB_HCA"),
    "gcp.a3-mega": ("tcpx", 8, 1600, "FasTrak", "", "NCCL_FASTRAK_CTRL_DEV=eth0", "NCCL_IB_GID_INDEX"),
    "gcp.a3-ultra": ("roce", 8, 3200, "gIB", "", "NCCL_IB_TC=52", "NCCL_ALGO"),
    "gcp.a4": ("roce", 8, 3200, "gIB", "", "NCCL_IB_FIFO_TC=84", "NCCL_ALGO"),
    "gcp.a4x": ("roce", 4, 1600, "gIB", "", "NCCL_MNNVL_ENABLE=1", "NCCL_ALGO"),
    "gcp.a4x-max": ("roce", 8, 3200, "IB", "hugepages-2Mi=8192Mi", "NCCL_MNNVL_ENABLE=1", "NCCL_IB_TC"),
    "azure.nd-a100-v4": ("infiniband", 8, 1600, "IB", "", "NCCL_TOPO_FILE=/opt/microsoft/ndv4-topo.xml",
                         "NCCL_IB_GID_INDEX"),
    "azure.nd-h100-v5": ("infiniband", 8, 3200, "IB", "", "NCCL_IB_PCI_RELAXED_ORDERING=1", "NCCL_IB_TC"),
    "azure.nd-h200-v5": ("infiniband", 8, 3200, "IB", "", "NCCL_MIN_NCHANNELS=32", "NCCL_COLLNET_ENABLE"),
    "azure.nd-mi300x-v5": ("infiniband", 8, 3200, "IB", "", "NCCL_IGNORE_CPU_AFFINITY=1", "NCCL_TOPO_FILE"),
    "azure.nd-gb200-v6": ("infiniband", 4, 1600, "IB", "", "NCCL_NET_GDR_LEVEL=PHB", "NCCL_IB_GID_INDEX"),
    "azure.nd-gb300-v6": ("infiniband", 4, None, "IB", "", "NCCL_NET_GDR_C2C=1", "NCCL_IB_GID_INDEX"),
    "oci.a100": ("roce", 16, 1600, "IB", "", "NCCL_IB_QPS_PER_CONNECTION=4", "NCCL_IB_ROCE_VERSION_NUM"),
    "oci.h100": ("roce", 16, 3200, "IB", "", "NCCL_IB_GID_INDEX=3", "NCCL_MNNVL_ENABLE"),
    "oci.h200": ("roce", 8, 3200, "IB", "", "NCCL_IB_TC=41", "NCCL_MNNVL_ENABLE"),
    "oci.b300": ("roce", 16, 6400, "IB", "", "NCCL_CUMEM_ENABLE=0", "NCCL_MNNVL_ENABLE"),
    "oci.gb200": ("roce", 4, 1600, "IB", "", "NCCL_NET_PLUGIN=sys", "NCCL_IB_GID_INDEX"),
    "oci.gb200-v3": ("roce", 8, None, "IB", "", "NCCL_CUMEM_ENABLE=1", "NCCL_IB_ADDR_FAMILY"),
    "oci.gb300": ("roce", 8, None, "IB", "", "NCCL_BUFFSIZE=16777216", "NCCL_IB_ADDR_FAMILY"),
    "oci.mi300x": ("roce", 8, 3200, "IB", "", "NCCL_IB_GID_INDEX=3", "NCCL_MNNVL_ENABLE"),
    "oci.mi355x": ("roce", 8, 3200, "IB", "", "NCCL_IB_GID_INDEX=1", "NCCL_MNNVL_ENABLE"),
    "coreweave.h100": ("infiniband", 8, 3200, "IB", "rdma/ib=1", "UCX_NET_DEVICES=eth0", "NCCL_COLLNET_ENABLE"),
    "coreweave.gb200": ("infiniband", 4, 1600, "IB", "rdma/ib=1", "NCCL_NET_PLUGIN=none", "NCCL_IB_TC"),
    "coreweave.gb300": ("roce", 4, None, "IB", "rdma/ib=1", "NCCL_IB_ADDR_RANGE=fd02::/16", "NCCL_IB_GID_INDEX"),
    "nebius.h100": ("infiniband", 8, 3200, "IB", "", "NCCL_TOPO_FILE=/var/run/nvidia-topologyd/virtualTopology.xml",
                    "NCCL_IB_TC"),
    "together.h100": ("infiniband", 8, 3200, "IB", "", "NCCL_IB_HCA=*", "NCCL_IB_TC"),
    "crusoe.a100": ("infiniband", 8, 1600, "IB", "", "NCCL_IB_MERGE_VFS=0", "NCCL_IB_TC"),
    "crusoe.h100": ("infiniband", 8, 3200, "IB", "", "NCCL_IB_MERGE_VFS=0", "NCCL_IB_TC"),
    "lambda.1cc": ("infiniband", 8, 3200, "IB", "", "NCCL_IB_HCA=*", "NCCL_IB_TC"),
    "vultr": (None, None, None, "IB", "", "NCCL_IB_HCA=*", "NCCL_IB_TC"),
    "runpod": (None, None, None, "IB", "", "NCCL_SOCKET_IFNAME==eth0", "NCCL_IB_TC"),
    "spectrum-x": ("roce", None, None, "IB", "", "NCCL_IB_ADAPTIVE_ROUTING=1", "NCCL_IB_TC"),
    "onprem.infiniband": ("infiniband", None, None, "IB", "", "NCCL_IB_HCA=*", "NCCL_IB_GID_INDEX"),
    "onprem.roce": ("roce", None, None, "IB", "", "NCCL_IB_ROCE_VERSION_NUM=2", "NCCL_IB_TC"),
    "generic": (None, None, None, "IB", "", "NCCL_IB_HCA=*", "NCCL_IB_TC"),
}
CATALOGUE = load_catalogue()
ROCE = ((1, "0000:0000:0000:0000:0000:ffff:0a00:{:04x}", "RoCE v2"),
        (3, "0000:0000:0000:0000:0000:ffff:0a00:{:04x}", "RoCE v2"))
IPV6 = ((3, "fd02:0000:0000:0001:0000:0000:0000:{:04x}", "RoCE v2"),)


def build(tree: HostTree, row: Profile) -> None:
    """A healthy host of a profile's kind, from what the profile says of it."""
    dmi = row.match.dmi if row.match is not None else {}
    tree.dmi(**{field: patterns[0] for field, patterns in dmi.items()})
    for pattern in [*(row.match.files if row.match is not None else ()), *row.topology_files[:1]]:
        tree.write(pattern.replace("*", "x.xml"), "<system/>")
    for library in row.libraries:
        folder = library.directories[0] if library.directories else "usr/lib64"
        tree.library(f"{folder}/{library.file.replace('*', '')}")
    for pattern in row.devices:
        if "uverbs" not in pattern:
            tree.write(f"{pattern.lstrip('/')}/x", "")
    tree.write("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", str(row.hugepages_2mib))
    if row.nvlink_domain:
        tree.write("dev/nvidia-caps-imex-channels/channel0", "")
    kind = row.gpu_types[0] if row.gpu_types else "H100"
    for number in range(row.gpus or 8):
        amd = {"vendor": "1002", "device": {"MI300X": "74a1", "MI355X": "75a3"}.get(kind), "model": False}
        tree.gpu(kind, rail(number, 0), **({} if kind in GPU_IDS else amd))
    _nics(tree, row)


def _nics(tree: HostTree, row: Profile) -> None:
    count, gbps, rails = row.nics or 4, row.nic_gbps or 400, row.gpus or 8
    if row.kind == "tcpx":
        tree.interface("front", driver="gve", chain=flat(2))
        for number, name in enumerate(row.data_interfaces[0]):
            tree.interface(name, driver="gve", chain=rail(number, 1), gbps=gbps)
        return
    names = row.expected_hcas[0] if row.expected_hcas else tuple(f"mlx5_{number + 20}" for number in range(count))
    for number, name in enumerate(names):
        chain = rail(number % rails, 1 + number // rails)
        if row.kind == "efa":
            tree.efa(name, chain, gbps=gbps)
        elif row.kind == "roce":
            table = IPV6 if row.address_family == "AF_INET6" else ROCE
            tree.hca(name, chain, link="Ethernet", gbps=gbps, gids=table, interface=f"rdma{number}")
        else:
            tree.hca(name, chain, gbps=gbps)


def test_the_table_is_complete() -> None:
    assert set(TABLE) == {row.name for row in CATALOGUE.profiles}


@pytest.mark.parametrize("name", TABLE)
def test_a_profile_says_what_its_machines_have(name: str) -> None:
    row = CATALOGUE.profile(name)
    kind, nics, node_gbps, network, resource, _, _ = TABLE[name]
    assert row is not None
    assert (row.kind, row.nics, row.node_gbps, row.network) == (kind, nics, node_gbps, network)
    resources = {f"{key}={value}" for key, value in row.kubernetes.resources.items()}
    assert resource in resources or not resource
    assert re.fullmatch(r"20\d\d-\d\d", row.checked)


@pytest.mark.parametrize("name", TABLE)
def test_a_host_of_the_kind_is_recognised_and_gets_its_environment(name: str, tmp_path: Path) -> None:
    row = CATALOGUE.profile(name)
    assert row is not None
    build(HostTree(tmp_path), row)
    found = detect(tmp_path, profile=name if row.match is None else None)
    assert (found.profile, found.verdict, found.also_fits) == (name, "ready", ())
    assert len(found.compute) == (row.nics or 4)
    env = environment(found, Gang(node="n1", nodes=4))
    values = env.variables()
    _, _, _, network, _, must, never = TABLE[name]
    assert values["NCCL_NET"] == network
    assert never not in values
    if must:
        variable, _, value = must.partition("=")
        assert values[variable] == value or value == "*"
    assert env.assured
    assert all(line.why for line in env.lines)
    assert not {row.name for row in row.avoid} & set(values)


@pytest.mark.parametrize("name", TABLE)
def test_engines_are_told_what_to_ask_for(name: str) -> None:
    row = CATALOGUE.profile(name)
    assert row is not None
    ask = ask_of(row)
    parts = pod_parts(ask, "sft", 4, 8)
    assert parts["container"]["securityContext"]["capabilities"]["add"] == list(row.capabilities)
    assert set(row.kubernetes.resources) <= set(parts["container"]["resources"]["limits"])
    claims = {claim["resourceClaimTemplateName"] for claim in parts["spec"].get("resourceClaims", ())}
    assert claims == {thing["metadata"]["name"] for thing in parts["objects"]}
    assert "#SBATCH --exclusive" in sbatch_lines(ask, 4, 8)


def test_no_provider_is_named_in_the_code() -> None:
    """What a provider does differently is a row of the data file, never a branch."""
    # "lambda" is a word of Python's.
    words = {row.provider for row in CATALOGUE.profiles} - {"on-premises", "unknown", "lambda"}
    words |= {"amazon", "google", "oracle"}
    room = Path(profiles.__file__).parents[1]
    for path in room.rglob("*.py"):
        if "topology" not in path.parts and "logs" not in path.parts:  # they read others' labels and wordings
            code = re.sub(r'""".*?"""|#.*', "", path.read_text(), flags=re.DOTALL)
            assert [word for word in words if re.search(rf"\b{word}\b", code, re.IGNORECASE)] == [], path


def test_an_own_file_comes_first_and_may_extend() -> None:
    own = {"profiles": [{"name": "mine", "provider": "us", "extends": ["onprem.roce"], "title": "our racks",
                         "nics": 4, "nic_gbps": 200, "match": {"dmi": {"product_name": ["Rack*"]}},
                         "env": [{"name": "NCCL_IB_TC", "value": "106", "why": "our lossless class"}]}]}
    catalogue = load_catalogue(own)
    mine = catalogue.profiles[0]
    assert (mine.name, mine.kind, mine.node_gbps) == ("mine", "roce", 800)
    settings = {setting.name: setting.value for setting in mine.env}
    assert settings["NCCL_IB_TC"] == "106"
    assert settings["NCCL_IB_TIMEOUT"] == "22"
    assert len(catalogue.profiles) == len(CATALOGUE.profiles) + 1


def test_an_own_profile_replaces_the_shipped_one_of_its_name() -> None:
    catalogue = load_catalogue({"profiles": [{"name": "aws.p5", "extends": ["aws.p5"], "nics": 31}]})
    assert [row.nics for row in catalogue.profiles if row.name == "aws.p5"] == [31]


JSON = st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=5), lambda inner: st.lists(
    inner, max_size=3) | st.dictionaries(st.sampled_from(("name", "extends", "env", "match", "dmi", "nics", "libraries",
                                                          "why", "value", "x")), inner, max_size=4), max_leaves=12)
ROW = st.fixed_dictionaries({"name": st.just("x")}, optional={
    "extends": st.lists(st.sampled_from(("roce", "efa", "aws.p5", "x", "nothing")), max_size=3) | JSON,
    "provider": st.just("us"), "title": st.just("t"), "env": JSON, "match": JSON, "libraries": JSON, "gpus": JSON})


@settings(deadline=None, max_examples=60)
@given(own=st.fixed_dictionaries({}, optional={"bases": st.dictionaries(st.text(max_size=3), ROW, max_size=2) | JSON,
                                               "profiles": st.lists(ROW, max_size=2) | JSON}))
def test_whatever_a_file_holds_it_is_taken_or_refused(own: dict[str, Any]) -> None:
    with contextlib.suppress(Rejected):
        load_catalogue(own)


@pytest.mark.parametrize(("own", "words"), [
    ({"profiles": {"a": 1}}, "list of profiles"),
    ({"profiles": [{"title": "no name"}]}, "list of profiles"),
    ({"profiles": [{"name": "x", "extends": ["nothing"]}]}, "neither a base nor a profile"),
    ({"profiles": [{"name": "x", "extends": "roce"}]}, "list of names"),
    ({"profiles": [{"name": "x", "extends": ["roce"]}]}, "is required"),
    ({"profiles": [{"name": "x", "provider": "us", "title": "t", "extends": ["roce"], "nics": "many"}]}, "whole"),
    ({"profiles": [{"name": "x", "provider": "us", "title": "t", "extends": ["roce"], "env": [1]}]}, "fields with"),
    ({"bases": {"a": {"extends": ["a"]}}, "profiles": [{"name": "x", "extends": ["a"]}]}, "extends itself"),
    ({"bases": [1]}, "NAME: FIELDS"),
    ({"nics": []}, "unknown field"),
])
def test_a_wrong_file_is_refused_with_its_place(own: dict[str, Any], words: str) -> None:
    with pytest.raises(Rejected, match=words):
        load_catalogue(own, where="own.yaml")
