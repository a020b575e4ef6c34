"""Node labels of Kubernetes and Topograph's other outputs."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from gangline.fabric.products import gpu_type
from gangline.fabric.topology import Place, combine, read_topology
from gangline.model.errors import Rejected

OLD = "network.topology.nvidia.com/"
OCI = "oci.oraclecloud.com/rdma."


def node(name: str, gpus: int = 8, **labels: str) -> dict[str, Any]:
    return {"kind": "Node", "metadata": {"name": name, "labels": labels},
            "status": {"capacity": {"cpu": "96", "nvidia.com/gpu": str(gpus)}}}


def nodes(*items: object) -> str:
    return json.dumps({"kind": "List", "apiVersion": "v1", "items": items})


def place(**labels: str) -> Place:
    """What one node's labels say."""
    return read_topology(nodes(node("n", **labels)), "nodes.json").places[0]


@pytest.mark.parametrize(("labels", "path", "domain"), [
    ({"fabric.topograph.run/tier-0": "s1", "fabric.topograph.run/tier-1": "s2", "fabric.topograph.run/tier-10": "s3",
      "accelerator.topograph.run/domain": "nvl1"}, ("s3", "s2", "s1"), "nvl1"),
    ({f"{OLD}tier-0": "s1", f"{OLD}tier-1": "s2"}, ("s2", "s1"), None),
    ({f"{OLD}leaf": "l", f"{OLD}spine": "s", f"{OLD}core": "c", f"{OLD}accelerator": "a"}, ("c", "s", "l"), "a"),
    ({f"{OLD}block": "l", f"{OLD}spine": "s", f"{OLD}datacenter": "d"}, ("d", "s", "l"), None),
    ({f"{OLD}block": "b", "fabric.topograph.run/tier-0": "new"}, ("new",), None),
    ({"topology.k8s.aws/network-node-layer-1": "nn-a", "topology.k8s.aws/network-node-layer-2": "nn-b",
      "topology.k8s.aws/network-node-layer-3": "nn-c", "topology.k8s.aws/ultraserver-id": "us-1"},
     ("nn-a", "nn-b", "nn-c"), "us-1"),
    ({"cloud.google.com/gce-topology-block": "b", "cloud.google.com/gce-topology-subblock": "sb",
      "cloud.google.com/gce-topology-host": "h"}, ("b", "sb"), None),
    ({"cloud.google.com/gce-topology-subblock": "sb", "node.kubernetes.io/instance-type": "a4x-highgpu-4g"},
     ("sb",), "sb"),
    ({f"{OCI}hpc_island_id": "i", f"{OCI}network_block_id": "nb", f"{OCI}local_block_id": "lb",
      "nvidia.com/gpu.clique": "uuid.0"}, ("i", "nb", "lb"), "uuid.0"),
    ({"fabric.topograph.run/tier-0": ""}, (), None),
    ({}, (), None),
])
def test_labels_of_every_family(labels: dict[str, str], path: tuple[str, ...], domain: str | None) -> None:
    found = place(**labels)
    assert (found.path, found.domain) == (path, domain)


def test_gpus_and_zone_of_a_node() -> None:
    found = place(**{"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", "topology.kubernetes.io/zone": "us-1a"})
    assert (found.gpu, found.zone) == ("H100:8", "us-1a")
    read = read_topology(nodes(node("a", 0), node("b", 4), node("c", 0, **{"nvidia.com/gpu.product": "X"})), "f")
    assert [place.gpu for place in read.places] == ["cpu", "GPU:4", "cpu"]
    assert [str(finding) for finding in read.findings] == [
        "f: node b has 4 GPUs and tells no model; named GPU (label it nvidia.com/gpu.product)",
        "f: node c has a X and tells no number of GPUs; taken as having none"]


def test_yaml_of_kubectl_reads_as_its_json() -> None:
    items = [node("a", **{"fabric.topograph.run/tier-0": "s1"}), node("b")]
    as_yaml = yaml.safe_dump({"apiVersion": "v1", "items": items, "kind": "List"})
    assert read_topology(as_yaml, "n").places == read_topology(nodes(*items), "n").places
    assert read_topology(yaml.safe_dump_all(items), "n").places == read_topology(nodes(*items), "n").places


def test_what_is_no_usable_node_is_left_out_and_told() -> None:
    read = read_topology(nodes(node("a"), node("a"), {"kind": "Pod"}, 7, node("b_"), {"kind": "Node"},
                               node("c", **{"accelerator.topograph.run/sub-domain": "x"})), "f")
    assert [place.node for place in read.places] == ["a", "c"]
    assert len(read.findings) == 6 + 2  # each has GPUs of no known model too


@pytest.mark.parametrize(("text", "words"), [
    (nodes(), "f: it holds no nodes"),
    ('{"kind": "List"}', "expected nodes, not List"),
    ('{"kind": "PodList", "items": []}', "not a topology that can be read"),
    ('{"kind": "ConfigMap", "data": {"a": "b"}}', "holds no topology.conf"),
    ('{"instances": []}', "holds no instances"),
    ('{"instances": [{"id": "a", "network_layers": [1]}]}', r"instances\[0\] has no list of network_layers"),
    ('{"instances": [7]}', r"instances\[0\]"),
    ('{"instances": [{"network_layers": []}]}', "'' is not a name"),
    ('{"a": ', "f line "),
])
def test_other_documents_are_refused(text: str, words: str) -> None:
    with pytest.raises(Rejected, match=words):
        read_topology(text, "f")


def test_topograph_s_config_map_and_graph() -> None:
    conf = "# block001=nvl1\nBlockName=block001 Nodes=n[1-2]\nBlockSizes=2\n"
    wrapped = yaml.safe_dump({"apiVersion": "v1", "kind": "ConfigMap", "data": {"topology.conf": conf}})
    assert [place.domain for place in read_topology(wrapped, "f", "topograph").places] == ["block001", "block001"]
    graph = {"instances": [{"id": "I21", "network_layers": ["leaf-a", "spine-a"],
                            "labels": {"nvidia.com/gpu.product": "H100", f"{OLD}accelerator": "nvl-1"}}]}
    found = read_topology(json.dumps(graph), "f", "topograph").places[0]
    assert (found.path, found.domain, found.gpu) == (("spine-a", "leaf-a"), "nvl-1", None)


def test_a_switch_path_counts_before_one_made_of_block_sizes() -> None:
    blocks = read_topology("BlockName=b Nodes=n[1-4]\nBlockSizes=2,4\n", "blocks")
    tree = read_topology("SwitchName=s Nodes=n[1-2]\n", "tree")
    other = read_topology("SwitchName=t Nodes=n[2-3]\n", "other")
    joined = combine([blocks, tree, other])
    assert [(place.path, place.domain) for place in joined.places] == [
        (("s",), "b"), (("s",), "b"), (("t",), "b"), (("blocks-4-1",), "b")]
    assert [finding.text for finding in joined.findings] == ["node n2 is told to hang at t too; taken as at s"]


@pytest.mark.parametrize(("model", "short"), [("NVIDIA-H100-80GB-HBM3", "H100"), ("NVIDIA-GB200", "GB200"),
                                              ("Tesla-V100-SXM2-16GB", "V100"), ("NVIDIA-B200", "B200"), ("", "GPU")])
def test_a_product_label_has_a_short_type(model: str, short: str) -> None:
    assert gpu_type(model) == short
