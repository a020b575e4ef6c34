"""The environment: what is written, what the user's own values do to it, and what nodes see differently."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from host_trees import HostTree, apart, ipv4, rail
from known_trees import TREES

from gangline.fabric.detection import Detection, detect
from gangline.fabric.environment import Environment, Gang, Override, compare, environment, parse_version, view_of


@cache
def host(name: str) -> Detection:
    """A known host, read once."""
    with TemporaryDirectory() as root:
        TREES[name].build(HostTree(Path(root)))
        return detect(root)


def env_of(name: str, **gang: object) -> Environment:
    return environment(host(name), Gang.parse({"node": "n1", "nodes": 4, **gang}))


def override(env: Environment, name: str) -> Override | None:
    return next((one for one in env.overrides if one.name == name), None)


def roce(tmp_path: Path, *indices: int) -> Detection:
    """A host whose NICs have their good GID at these indices, one NIC each."""
    tree = HostTree(tmp_path)
    for number, index in enumerate(indices):
        tree.hca(f"mlx5_{number}", rail(number, 1), link="Ethernet", gids=((index, ipv4(number), "RoCE v2"),),
                 interface=f"rdma{number}")
    return detect(tmp_path)


def test_devices_are_written_whole_and_by_port() -> None:
    value = env_of("mlx5_1 and mlx5_10").variables()["NCCL_IB_HCA"]
    assert value == "=" + ",".join(f"mlx5_{number}:1" for number in range(8))


def test_where_ranks_meet_is_the_default_route() -> None:
    values = env_of("oracle H100, 16 and 2").variables()
    assert (values["NCCL_SOCKET_IFNAME"], values["GLOO_SOCKET_IFNAME"], values["TP_SOCKET_IFNAME"]) == (
        "=ens2", "ens2", "ens2")


def test_nodes_are_told_apart_and_one_node_needs_no_network() -> None:
    assert env_of("p4d").variables()["NCCL_HOSTID"] == "n1"
    assert "NCCL_NET" not in env_of("p4d", nodes=1).variables()


def test_the_plugin_goes_first_on_the_path_and_the_users_directories_stay() -> None:
    env = env_of("p5", user={"LD_LIBRARY_PATH": "/opt/mine:/opt/amazon/efa/lib"})
    assert env.variables()["LD_LIBRARY_PATH"] == "/opt/amazon/ofi-nccl/lib:/opt/amazon/efa/lib:/opt/mine"
    assert env.assured


def test_a_log_directory_takes_the_proof() -> None:
    assert env_of("p5", log_dir="/logs").variables()["NCCL_DEBUG_FILE"] == "/logs/nccl.%h.%p.log"


@pytest.mark.parametrize(("indices", "nccl", "expected", "code"), [
    ((3, 3), None, {"NCCL_IB_ROCE_VERSION_NUM": "2"}, None),
    ((3, 3), (2, 20, 5), {"NCCL_IB_GID_INDEX": "3"}, None),
    ((3, 5), (2, 20, 5), {}, "gid-differs"),
    ((3, 5), (2, 21), {"NCCL_IB_ROCE_VERSION_NUM": "2"}, None),
])
def test_a_gid_index_is_pinned_only_for_old_nccl(tmp_path: Path, indices: tuple[int, ...],
                                                  nccl: tuple[int, ...] | None, expected: dict[str, str],
                                                  code: str | None) -> None:
    env = environment(roce(tmp_path, *indices), Gang(nccl=nccl))
    assert {name: value for name, value in env.variables().items() if "GID" in name or "ROCE" in name} == expected
    assert [finding.code for finding in env.findings] == ([code] if code else [])


def test_a_providers_index_that_is_not_there_is_not_pinned() -> None:
    env = env_of("a3-ultra pod with sparse GIDs")
    assert "NCCL_IB_GID_INDEX" not in env.variables()
    assert [finding.code for finding in env.findings] == ["gid-not-pinned"]


def test_ipv6_only_networks_say_so() -> None:
    assert env_of("RoCE with IPv6 only").variables()["NCCL_IB_ADDR_FAMILY"] == "AF_INET6"
    assert env_of("Broadcom with IPv6 only").variables()["NCCL_IB_ADDR_FAMILY"] == "AF_INET6"


def test_infiniband_gets_no_gid_settings() -> None:
    values = env_of("InfiniBand with persistent names").variables()
    assert not [name for name in values if "GID" in name or "ROCE" in name or "ADDR" in name]


def test_a_variable_newer_than_nccl_is_left_out() -> None:
    assert "NCCL_IGNORE_NET_MISMATCH" in env_of("p5").variables()
    assert "NCCL_IGNORE_NET_MISMATCH" in env_of("p5", nccl=(2, 30, 3)).variables()
    assert "NCCL_IGNORE_NET_MISMATCH" not in env_of("p5", nccl=(2, 27, 3)).variables()


@pytest.mark.parametrize(("name", "variable", "value", "undoes"), [
    ("p5", "NCCL_NET", "Socket", True),
    ("p5", "NCCL_NET", "aws libfabric", False),
    ("InfiniBand with persistent names", "NCCL_NET", "IBext_v8", False),
    ("InfiniBand with persistent names", "NCCL_NET", "FastSocket", True),
    ("p5", "FI_PROVIDER", "tcp", True),
    ("p5", "FI_PROVIDER", "efa", None),
    ("p5", "NCCL_NET_PLUGIN", "none", True),
    ("p5", "NCCL_PROTO", "simple", True),
    ("p5", "RDMAV_FORK_SAFE", "1", True),
    ("p5", "NCCL_BUFFSIZE", "1048576", False),
    ("p5", "NCCL_DEBUG", "WARN", True),
    ("p5", "NCCL_DEBUG", "TRACE", False),
    ("InfiniBand with persistent names", "NCCL_IB_DISABLE", "1", True),
    ("InfiniBand with persistent names", "NCCL_IB_DISABLE", "0", None),
    ("InfiniBand with persistent names", "NCCL_NET_GDR_LEVEL", "LOC", True),
    ("InfiniBand with persistent names", "NCCL_NET_GDR_LEVEL", "SYS", None),
    ("InfiniBand with persistent names", "NCCL_SOCKET_IFNAME", "ens99", True),
    ("InfiniBand with persistent names", "NCCL_SOCKET_IFNAME", "eth", False),
    ("InfiniBand with persistent names", "NCCL_SOCKET_IFNAME", "^docker", False),
    ("InfiniBand with persistent names", "NCCL_IB_HCA", "mlx5", True),
    ("InfiniBand with persistent names", "NCCL_IB_HCA", "ibp", False),
    ("mlx5_1 and mlx5_10", "NCCL_IB_HCA", "mlx5_1", True),
    ("mlx5_1 and mlx5_10", "NCCL_IB_HCA", "=mlx5_1:1,mlx5_2:1", False),
    ("mlx5_1 and mlx5_10", "NCCL_IB_HCA", "=mlx5_1:2", True),
    ("mlx5_1 and mlx5_10", "NCCL_IB_HCA", "^mlx5_1", False),
    ("mlx5_1 and mlx5_10", "NCCL_IB_HCA", "^=mlx5_1", True),
    ("oracle H100, 16 and 2", "NCCL_IB_GID_INDEX", "0", True),
    ("oracle H100, 16 and 2", "NCCL_IB_GID_INDEX", "1", True),
    ("oracle H100, 16 and 2", "NCCL_IB_GID_INDEX", "2", True),
    ("oracle H100, 16 and 2", "NCCL_IB_GID_INDEX", "-1", False),
    ("oracle H100, 16 and 2", "NCCL_IB_TC", "106", False),
    ("oracle H100, 16 and 2", "UCX_TLS", "tcp", True),
])
def test_the_users_own_value_stays_and_is_judged(name: str, variable: str, value: str, undoes: bool | None) -> None:
    env = env_of(name, user={variable: value})
    told = override(env, variable)
    assert (told.undoes if told is not None else None) is undoes
    assert env.assured is not bool(undoes)
    assert env.variables().get(variable, value) == value


def test_a_value_that_is_ours_anyway_is_not_told_of() -> None:
    assert env_of("p5", user={"NCCL_NET": "AWS Libfabric", "NCCL_DEBUG": "INFO"}).overrides == ()


def test_the_images_own_file_gives_way_where_it_must(tmp_path: Path) -> None:
    tree = HostTree(tmp_path)
    TREES["azure H100 with accelerated networking"].build(tree)
    tree.write("etc/nccl.conf", "# presets\nNCCL_IB_HCA=mlx5\nNCCL_PXN_DISABLE=0\nNCCL_IB_DISABLE=1\nnonsense")
    env = environment(detect(tmp_path), Gang())
    values = env.variables()
    assert values["NCCL_IB_HCA"].startswith("=mlx5_ib0:1")
    assert values["NCCL_PXN_DISABLE"] == "0"
    assert [(one.name, one.by, one.undoes) for one in env.overrides] == [
        ("NCCL_PXN_DISABLE", "image", False), ("NCCL_IB_DISABLE", "image", True)]


def test_more_ports_than_nccl_takes(tmp_path: Path) -> None:
    tree = HostTree(tmp_path)
    for number in range(40):
        tree.hca(f"mlx5_{number}", apart(number + 1))
    found = detect(tmp_path)
    assert environment(found, Gang()).variables()["NCCL_IB_HCA"].count(":1") == 32
    assert "nic-limit" in {finding.code for finding in found.findings}


def test_equal_nodes_have_nothing_to_tell() -> None:
    found = host("p5")
    views = [view_of(node, found, environment(found, Gang(node=node)), {"nccl": "2.27.3"}) for node in ("a", "b", "c")]
    assert compare(views).findings == ()
    assert (compare(views).nics_min, compare(views).nics_max) == (32, 32)


def test_the_node_that_differs_is_named() -> None:
    whole, lacking = host("one cable out"), host("InfiniBand with persistent names")
    views = [view_of("a", lacking, environment(lacking, Gang()), {"nccl": "2.27.3", "torch": "2.9"}),
             view_of("b", lacking, environment(lacking, Gang()), {"nccl": "2.27.3", "torch": "2.9"}),
             view_of("c", whole, environment(whole, Gang(user={"NCCL_IB_DISABLE": "1"})), {"nccl": "2.26.2"})]
    told = compare(views)
    assert (told.nics_min, told.nics_max) == (7, 8)
    assert {finding.code: finding.where for finding in told.findings} == {
        "nics-differ": "c", "rate-differs": "c", "version-differs": "c", "undone": "c"}


def test_nodes_of_two_fabrics_are_told_apart(tmp_path: Path) -> None:
    tree = HostTree(tmp_path)
    for number in range(8):
        tree.hca(f"ibp{number}s0", rail(number, 1), numa=number // 4,
                 gids=((0, "fec0:0000:0000:0007:0002:c903:0000:{:04x}", "IB/RoCE v1"),))
    here, there = host("InfiniBand with persistent names"), detect(tmp_path)
    views = [view_of(name, found, environment(found, Gang()))
             for name, found in (("a", here), ("b", here), ("c", there))]
    assert [(finding.code, finding.where) for finding in compare(views).findings] == [("subnet-differs", "c")]


def test_the_topology_file_is_that_of_this_machine() -> None:
    values = env_of("crusoe virtual functions").variables()
    assert values["NCCL_TOPO_FILE"] == "/etc/crusoe/nccl_topo/h100.xml"
    assert "NCCL_TOPO_FILE" not in env_of("crusoe with another machine's topology").variables()


def test_nothing_to_compare_is_refused() -> None:
    with pytest.raises(ValueError, match="no view"):
        compare([])


@pytest.mark.parametrize(("text", "numbers"), [
    ("2.27.3", (2, 27, 3)), ("2.30.3+cuda12", (2, 30, 3)), ("v2", ()), ("", ())])
def test_versions(text: str, numbers: tuple[int, ...]) -> None:
    assert parse_version(text) == numbers
