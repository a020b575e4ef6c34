"""What engines ask for, which resources a cluster offers, and which runtimes let RDMA through."""

from __future__ import annotations

import pytest

from gangline.fabric.asking import ask_of, discovered, pod_parts, ray_options, sbatch_lines
from gangline.fabric.finding import Finding
from gangline.fabric.profiles import Profile, load_catalogue
from gangline.fabric.sandbox import Probe, refusals

CATALOGUE = load_catalogue()
GVISOR = Probe(handler="runsc", release=20260803, rdma_proxy=True, gpu_proxy=True, kernel=(6, 8),
               drivers=("mlx5_core",), containers=1, uverbs=8, netns_shared=True)


def profile(name: str) -> Profile:
    row = CATALOGUE.profile(name)
    assert row is not None
    return row


def test_a_pod_asks_for_everything_at_once() -> None:
    parts = pod_parts(ask_of(profile("aws.p5")), "sft", 4, 8)
    assert parts["container"]["resources"]["limits"] == {
        "nvidia.com/gpu": "8", "vpc.amazonaws.com/efa": "32", "hugepages-2Mi": "5120Mi"}
    assert parts["spec"]["volumes"][0]["emptyDir"]["sizeLimit"] == "16Gi"
    assert parts["objects"] == []


def test_a_pod_on_the_hosts_network_gets_the_devices() -> None:
    parts = pod_parts(ask_of(profile("oci.h100")), "sft", 4, 8)
    assert parts["spec"]["hostNetwork"] is True
    assert {"name": "rdma", "mountPath": "/dev/infiniband"} in parts["container"]["volumeMounts"]


def test_nvlink_between_nodes_is_a_compute_domain() -> None:
    parts = pod_parts(ask_of(profile("azure.nd-gb200-v6")), "sft", 18, 4)
    domain = parts["objects"][0]
    assert (domain["kind"], domain["spec"]["numNodes"]) == ("ComputeDomain", 18)
    assert parts["spec"]["resourceClaims"] == [{"name": "nvlink", "resourceClaimTemplateName": "sft-nvlink"}]


def test_other_gpus_have_another_resource() -> None:
    parts = pod_parts(ask_of(profile("oci.mi300x")), "sft", 2, 8)
    assert parts["container"]["resources"]["limits"] == {"amd.com/gpu": "8"}


def test_a_batch_script_checks_its_limits_first() -> None:
    lines = sbatch_lines(ask_of(profile("onprem.infiniband")), 4, 8)
    assert "#SBATCH --nodes=4" in lines
    assert any("ulimit -l" in line for line in lines)
    assert lines[-1] == "srun bash -c 'ls /dev/infiniband/uverbs* >/dev/null'"


def test_an_actor_takes_a_node_and_its_raylet_had_the_devices() -> None:
    options = ray_options(ask_of(profile("onprem.roce")), 2, 8, {"NCCL_NET": "IB"})
    assert options["placement_group"] == {"strategy": "STRICT_SPREAD", "bundles": [{"GPU": 8}, {"GPU": 8}]}
    assert options["actor"]["num_gpus"] == 8
    assert options["actor"]["runtime_env"] == {"env_vars": {"NCCL_NET": "IB"}}
    assert options["raylet"]["ulimits"] == {"memlock": "unlimited"}


@pytest.mark.parametrize(("name", "allocatable", "expected"), [
    ("aws.p5", {"vpc.amazonaws.com/efa": "32", "cpu": "192"}, {"vpc.amazonaws.com/efa": "32"}),
    ("azure.nd-h100-v5", {"rdma/shared_ib": "63", "memory": "1Gi"}, {"rdma/shared_ib": "63"}),
    ("onprem.roce", {"nvidia.com/hostdev": "8"}, {"nvidia.com/hostdev": "8"}),
    ("aws.p5", {"vpc.amazonaws.com/efa": "4"}, {"vpc.amazonaws.com/efa": "4"}),
    ("azure.nd-h100-v5", {"rdma/ib": "0"}, None),
    ("onprem.roce", {"rdma/a": "1", "rdma/b": "1"}, None),
    ("onprem.roce", {}, None),
])
def test_resources_are_found_by_their_beginnings(name: str, allocatable: dict[str, str],
                                                 expected: dict[str, str] | None) -> None:
    found = discovered(profile(name), allocatable, CATALOGUE)
    if expected is None:
        assert isinstance(found, Finding)
        assert found.code == "resource-missing"
    else:
        assert found == expected


def test_plain_runtimes_pass() -> None:
    assert refusals(None, None, "efa") == ()
    assert refusals("nvidia", Probe(handler="nvidia"), "infiniband") == ()
    assert refusals("gvisor", GVISOR, "infiniband") == ()


@pytest.mark.parametrize(("probe", "kind", "words"), [
    (None, "infiniband", "not probed"),
    (Probe(handler="kata"), "infiniband", "nothing is known"),
    (GVISOR, "efa", "no efa through"),
    (GVISOR.model_copy(update={"release": 20260727}), "infiniband", "release"),
    (GVISOR.model_copy(update={"release": None}), "infiniband", "release"),
    (GVISOR.model_copy(update={"rdma_proxy": None}), "infiniband", "--rdmaproxy"),
    (GVISOR.model_copy(update={"gpu_proxy": False}), "infiniband", "--nvproxy"),
    (GVISOR.model_copy(update={"kernel": (5, 10)}), "infiniband", "5.12"),
    (GVISOR.model_copy(update={"drivers": ("bnxt_en",)}), "roce", "mlx5"),
    (GVISOR.model_copy(update={"containers": 2}), "infiniband", "one container"),
    (GVISOR.model_copy(update={"uverbs": 40}), "infiniband", "at most 32"),
    (GVISOR.model_copy(update={"netns_shared": None}), "roce", "shared"),
])
def test_a_sandbox_is_refused_unless_everything_was_probed(probe: Probe | None, kind: str, words: str) -> None:
    told = refusals("gvisor", probe, kind)  # type: ignore[arg-type]
    assert len(told) == 1
    assert words in told[0].text
    assert told[0].fix
