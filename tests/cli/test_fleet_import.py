"""`fleet import` on files, without a server: what it says, what it writes, what it leaves alone."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from gangline.cli.fleet_text import comments, edited
from gangline.fabric.merging import merge
from gangline.fabric.pooling import PoolChoice
from gangline.fabric.topology import read_topology
from gangline.model.fleet import Fleet

Gl = Callable[..., tuple[int, str, str]]

FLEET = """# Our cluster.
pools:
  # bought in spring
  - {name: a, gpu: "H100:8", zone: z1, fabric: ib-1, min: 2, max: 3}   # max is what fits the room
  - name: b
    gpu: "H200:8"   # newer
    zone: z1
    min: 0
    max: 8
nodes:
  - {name: n1, pool: a, path: [old]}   # near the door
  - name: n2        # has a loose cable
    pool: a
    path:
    - spine-0
    - leaf-0
    state: ready
  - {name: n3, pool: a, domain: d0}
tenants:
  - {name: research, quota: {H100: 16}}  # until summer
# the end
"""
TREE = "SwitchName=s Switches=l[1-2]\nSwitchName=l1 Nodes=n1\nSwitchName=l2 Nodes=n[2,4-6]\n"


@pytest.fixture
def file(home: Path) -> Path:
    home.mkdir()
    (home / "fleet.yaml").write_text(FLEET)
    return home / "fleet.yaml"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    path = tmp_path / "topology.conf"
    path.write_text(TREE)
    return path


def declared(file: Path) -> dict[str, tuple[str, str, str | None]]:
    fleet = Fleet.parse(yaml.safe_load(file.read_text()))
    return {node.name: (node.pool, "/".join(node.path), node.domain) for node in fleet.nodes}


def test_paths_and_new_nodes_go_in_and_comments_stay(gl: Gl, file: Path, tree: Path) -> None:
    status, out, err = gl("fleet", "import", str(tree), "--pool", "b")
    assert status == 0, err
    assert out.splitlines() == ["+ n4  pool b  s/l2", "+ n5  pool b  s/l2", "+ n6  pool b  s/l2",
                                "~ n1  old -> s/l1", "~ n2  spine-0/leaf-0 -> s/l2",
                                "? n3  not told of; stays as it is"]
    assert err == f"wrote {file}\n"
    assert declared(file) == {"n1": ("a", "s/l1", None), "n2": ("a", "s/l2", None), "n3": ("a", "", "d0"),
                              "n4": ("b", "s/l2", None), "n5": ("b", "s/l2", None), "n6": ("b", "s/l2", None)}
    assert comments(file.read_text()) == comments(FLEET)
    assert "  - {name: n1, pool: a, path: [s, l1]}   # near the door\n" in file.read_text()
    assert not list(file.parent.glob("*.bak")) + list(file.parent.glob(".*part"))
    assert gl("fleet", "import", str(tree), "--pool", "b")[2] == f"{file} says all of it already\n"


def test_a_dash_is_standard_input(gl: Gl, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"SwitchName=s Nodes=n1,n1\n")))
    assert gl("fleet", "import", "-")[2].startswith("error: standard input line 1: switch s lists 1 of its nodes twice")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"SwitchName=s Nodes=n1\n")))
    assert gl("fleet", "import", "-")[0] == 0
    assert declared(file)["n1"] == ("a", "s", None)


def test_a_dry_run_writes_nothing(gl: Gl, file: Path, tree: Path) -> None:
    status, out, err = gl("fleet", "import", str(tree), "--pool", "b", "--dry-run")
    assert (status, err) == (0, f"{file} would be written\n")
    assert "+ n4" in out
    assert file.read_text() == FLEET
    told = json.loads(gl("fleet", "import", str(tree), "--pool", "b", "--dry-run", "--json")[1])
    assert told["written"] is False
    assert [node["name"] for node in told["added"]] == ["n4", "n5", "n6"]
    assert told["changed"][0] == {"node": "n1", "path": {"from": ["old"], "to": ["s", "l1"]},
                                  "domain": {"from": None, "to": None}}
    assert told["unknown"] == ["n3"]


def test_a_pool_grows_with_the_nodes_that_are_declared(gl: Gl, file: Path, tree: Path) -> None:
    status, out, err = gl("fleet", "import", str(tree), "--pool", "a")
    assert status == 0, err
    assert "~ pool a: max 3 -> 6" in out
    assert yaml.safe_load(file.read_text())["pools"][0]["max"] == 6
    assert comments(file.read_text()) == comments(FLEET)


def test_without_a_word_on_the_pool_several_that_fit_are_an_error(gl: Gl, file: Path, tree: Path) -> None:
    assert gl("fleet", "import", str(tree)) == (
        2, "", "error: --pool: node n4 would fit pools a, b (say which with --pool NAME)\n")
    assert file.read_text() == FLEET


def node(name: str, product: str, gpus: int, **labels: str) -> dict[str, object]:
    labels |= {"nvidia.com/gpu.product": product} if product else {}
    return {"kind": "Node", "metadata": {"name": name, "labels": labels},
            "status": {"capacity": {"nvidia.com/gpu": str(gpus)}}}


def kubectl(tmp_path: Path, *items: object) -> str:
    path = tmp_path / "nodes.json"
    path.write_text(json.dumps({"kind": "List", "items": items}))
    return str(path)


def test_kubernetes_nodes_make_a_fleet_where_there_is_none(gl: Gl, home: Path, tmp_path: Path) -> None:
    zone, tier = {"topology.kubernetes.io/zone": "us-1a"}, {"fabric.topograph.run/tier-0": "s1"}
    nodes = kubectl(tmp_path, node("k1", "NVIDIA-H100-80GB-HBM3", 8, **zone, **tier),
                    node("k2", "NVIDIA-H100-80GB-HBM3", 8, **zone), node("k3", "NVIDIA-B200", 8, **zone),
                    node("control", "", 0))
    status, out, err = gl("fleet", "import", nodes)
    assert status == 0, err
    assert out.splitlines()[:2] == ["+ pool h100x8-us-1a: H100:8 in zone us-1a, 2 nodes, engine kubernetes",
                                    "+ pool b200x8-us-1a: B200:8 in zone us-1a, 1 nodes, engine kubernetes"]
    assert "control  has no GPUs; left out" in out
    file = home / "fleet.yaml"
    assert declared(file) == {"k1": ("h100x8-us-1a", "s1", None), "k2": ("h100x8-us-1a", "", None),
                              "k3": ("b200x8-us-1a", "", None)}
    status, out, err = gl("fleet", "import", kubectl(tmp_path, node("k1", "NVIDIA-H200", 4, **zone)), "--dry-run")
    assert "pool h100x8-us-1a has H100:8 per node, but not on k1: H200:4" in err


def test_a_slurm_tree_can_be_tried_out_on_emulated_nodes(gl: Gl, home: Path, tree: Path) -> None:
    status, _, err = gl("fleet", "import", str(tree), "--pool", "try", "--gpu", "H100:8", "--emulated")
    assert status == 0, err
    (pool,) = Fleet.parse(yaml.safe_load((home / "fleet.yaml").read_text())).pools
    assert (pool.name, pool.engine, pool.emulated, pool.min, pool.max) == ("try", "local", True, 5, 5)
    assert gl("fleet", "import", str(tree), "--fleet", str(home / "other.yaml"))[::2] == (
        2, "error: --gpu: nothing says what node n1 has "
           "(say --gpu TYPE:COUNT, or --pool NAME of a pool in the fleet file)\n")


def test_nodes_a_pool_made_up_become_declared_ones(gl: Gl, home: Path, tmp_path: Path) -> None:
    home.mkdir()
    (home / "fleet.yaml").write_text('pools: [{name: p, gpu: "H100:8", min: 3, max: 4}]\n')
    (tmp_path / "t.conf").write_text("SwitchName=x Nodes=p-[1-2]\n")
    status, out, err = gl("fleet", "import", str(tmp_path / "t.conf"))
    assert status == 0, err
    assert declared(home / "fleet.yaml") == {"p-1": ("p", "x", None), "p-2": ("p", "x", None),
                                             "p-3": ("p", "p-leaf", None)}
    (home / "fleet.yaml").write_text('pools: [{name: p, gpu: "H100:8", min: 3, max: 4}]\n')
    (tmp_path / "t.conf").write_text("SwitchName=x Nodes=m[1-2]\n")
    status, out, err = gl("fleet", "import", str(tmp_path / "t.conf"))
    assert "- p-1  its pool names its nodes now" in out


def test_comments_that_cannot_stay_are_kept_in_a_copy(gl: Gl, file: Path, tree: Path) -> None:
    odd = FLEET.replace("    path:\n    - spine-0\n", "    path:\n    # the old one\n    - spine-0  # gone\n")
    file.write_text(odd)
    file.chmod(0o640)
    status, _, err = gl("fleet", "import", str(tree), "--pool", "b")
    assert status == 0
    assert f"note: 2 comments were not kept, such as: # the old one (the file before is {file}.bak)" in err
    assert (file.with_name("fleet.yaml.bak")).read_text() == odd
    assert declared(file)["n2"] == ("a", "s/l2", None)
    assert file.stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("text", [
    '{"pools": [{"name": "b", "gpu": "H100:8", "min": 0, "max": 9}]}',
    "pools: [{name: b, gpu: 'H100:8', min: 0, max: 9}]\nnodes: []\n",
    "pools:\n- name: b\n  gpu: 'H100:8'\n  min: 0\n  max: 9\nnodes:\n- name: n1\n  pool: b",
    "pools:\n- &p {name: b, gpu: 'H100:8', min: 0, max: 9}\nnodes: [{name: n1, pool: b}, {name: n2, pool: b,},]\n",
    "---\npools:\n- {name: b, gpu: 'H100:8', min: 0, max: 9}\nnodes:\n- {name: n1, pool: b,\n   path: [x,\n   y]} # é\n"
    "...\n",
    "nodes:\n# ü first\n- {name: n2, pool: b, domain: }\npools:\r\n- {name: b, gpu: 'H100:8', min: 0, max: 9}\r\n",
])
def test_every_way_to_write_a_fleet_file_can_be_changed(text: str) -> None:
    fleet = Fleet.parse(yaml.safe_load(text))
    merged = merge(fleet, read_topology(TREE, "t"), PoolChoice(pool="b"), "t")
    result = edited(text, merged)
    assert Fleet.parse(yaml.safe_load(result.text)) == merged.fleet
    assert result.lost == ()


@pytest.mark.parametrize(("options", "text", "words"), [
    ((), "SwitchName=a Switches=b", "topology.conf line 1: switch a names switch b, which is not described"),
    (("--format", "k8s"), "SwitchName=a Nodes=b", "expected nodes, not str"),
    ((), "", "the file is empty"),
    ((), "\0\0", "control characters are not allowed"),
])
def test_bad_files_are_one_line(gl: Gl, file: Path, tree: Path, options: tuple[str, ...], text: str,
                                words: str) -> None:
    tree.write_text(text)
    status, out, err = gl("fleet", "import", *options, str(tree))
    assert (status, out) == (2, "")
    assert words in err
    assert err.count("\n") == 1
    assert gl("fleet", "import", str(tree.parent / "none"))[0] == 2
    tree.write_bytes(b"\xff\xfe\x00")
    assert "is not text" in gl("fleet", "import", str(tree))[2]


def test_roots_that_nothing_joins_are_told(gl: Gl, file: Path, tree: Path) -> None:
    tree.write_text("SwitchName=x Nodes=n1\nSwitchName=y Nodes=n2\n")
    assert "nodes of pool a hang on 2 roots (x, y), and it is one fabric" in gl("fleet", "import", str(tree))[2]
