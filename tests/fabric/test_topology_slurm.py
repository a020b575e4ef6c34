"""topology.conf and topology.yaml: what they tell, and how a bad one is refused."""

from __future__ import annotations

import pytest

from gangline.fabric.topology import Topology, read_topology
from gangline.model.errors import Rejected

TREE = """# made by hand
SwitchName=spine Switches=leaf[1-2] LinkSpeed=400
switchname = leaf1 nodes=n[001-003]   # a comment
SwitchName=leaf2 \\
    Nodes=n[004-005],n007
"""
BLOCKS = """BlockName=b1 Nodes=n[01-18]
BlockName=b2 Nodes=n[19-36]
BlockName=b3 Nodes=n[37-54]
BlockSizes=18,36
"""
YAML = """---
- topology: flat-one
  flat: true
- topology: nvl
  block:
    block_sizes: [2, 4]
    blocks:
      - {block: b1, nodes: "node[1-2]"}
      - {block: b2, nodes: "node[3-4]"}
- topology: ib
  cluster_default: true
  tree:
    switches:
      - switch: root
        children: s[1-2]
      - switch: s1
        nodes: [node1, node2]
      - switch: s2
        nodes: node[3-4]
"""


def paths(topology: Topology) -> dict[str, str]:
    return {place.node: "/".join(place.path) for place in topology.places}


def test_a_tree_gives_every_node_its_switches_from_the_widest() -> None:
    read = read_topology(TREE, "topology.conf")
    assert paths(read) == {"n001": "spine/leaf1", "n002": "spine/leaf1", "n003": "spine/leaf1",
                           "n004": "spine/leaf2", "n005": "spine/leaf2", "n007": "spine/leaf2"}
    assert read.findings == ()


def test_several_roots_and_nodes_at_any_depth() -> None:
    read = read_topology("SwitchName=a Nodes=n1\nSwitchName=b Switches=c Nodes=n2\nSwitchName=c Nodes=n3\n", "t")
    assert paths(read) == {"n1": "a", "n2": "b", "n3": "b/c"}


def test_blocks_are_domains_and_sizes_join_them() -> None:
    read = read_topology(BLOCKS, "topology.conf")
    assert len(read.places) == 54
    by_node = {place.node: place for place in read.places}
    assert (by_node["n01"].domain, by_node["n36"].domain) == ("b1", "b2")
    assert by_node["n01"].path == by_node["n36"].path == ("blocks-36-1",)
    assert by_node["n37"].path == ("blocks-36-2",)


def test_yaml_joins_the_switches_of_one_topology_with_the_blocks_of_another() -> None:
    read = read_topology(YAML, "topology.yaml")
    assert paths(read) == {"node1": "root/s1", "node2": "root/s1", "node3": "root/s2", "node4": "root/s2"}
    assert [place.domain for place in read.places] == ["b1", "b1", "b2", "b2"]
    assert [str(finding) for finding in read.findings] == [
        "topology.yaml line 2: topology flat-one puts all nodes on one level; left out"]


def test_what_is_listed_twice_is_taken_once_and_told() -> None:
    read = read_topology("SwitchName=x Switches=a,b\nSwitchName=y Switches=b\n"
                         "SwitchName=a Nodes=n1\nSwitchName=b Nodes=n[1-2]\nSwitchName=z\n", "t.conf")
    assert paths(read) == {"n1": "x/a", "n2": "x/b"}
    assert [str(finding) for finding in read.findings] == [
        "t.conf line 2: switch b hangs on x and on y; taken as hanging on x",
        "t.conf line 4: node n1 hangs on a and on b; taken as hanging on a (list it once)",
        "t.conf line 5: switch z has nothing below it; left out"]


def test_what_scontrol_shows_reads_as_the_file_it_came_from() -> None:
    shown = read_topology("SwitchName=leaf1 Level=0 LinkSpeed=1 Nodes=n[1-2]\n"
                          "SwitchName=leaf2 Level=0 LinkSpeed=1 Nodes=n[3-4]\n"
                          "SwitchName=spine Level=1 LinkSpeed=1 Nodes=n[1-4] Switches=leaf[1-2]\n", "t")
    assert paths(shown) == {"n1": "spine/leaf1", "n2": "spine/leaf1", "n3": "spine/leaf2", "n4": "spine/leaf2"}
    assert shown.findings == ()
    blocks = read_topology("BlockName=b0 BlockIndex=0 Nodes=n[1-2] BlockSize=2\n"
                           "BlockName=b1 BlockIndex=1 Nodes=n[3-4] BlockSize=2\n"
                           "AggregatedBlock=b[0-1] BlockIndex=2 Nodes=n[1-4] BlockSize=4\n", "t")
    file = read_topology("BlockName=b0 Nodes=n[1-2]\nBlockName=b1 Nodes=n[3-4]\nBlockSizes=2,4\n", "t")
    assert blocks.places == file.places


@pytest.mark.parametrize(("text", "words"), [
    ("", "t: the file is empty"),
    ("  \n\n", "t: the file is empty"),
    ("# nothing\nSwitchName=a\n", "no node hangs anywhere"),
    ("SwitchName=a Switches=b\n", "t line 1: switch a names switch b, which is not described"),
    ("SwitchName=a Nodes=n1\nSwitchName=a Nodes=n2", "t line 2: switch a is described in line 1 too"),
    ("SwitchName=a Nodes=n1,n1", "t line 1: switch a lists 1 of its nodes twice"),
    ("SwitchName=a Switches=b\nSwitchName=b Switches=c\nSwitchName=c Switches=a Nodes=n1",
     "t line 1: switch a hangs on itself: a on c on b on a"),
    ("SwitchName=a Switches=a Nodes=n1", "switch a hangs on itself: a on a"),
    ("SwitchName=a Nodes=n[1-", "t line 1: .*not closed"),
    ("SwitchName=a\nSwitchName=b Nodes=n1, n2", "t line 2: expected NAME=VALUE, not 'n2'"),
    ("SwitchName=a Nodez=n1", "t line 1: unknown parameter nodez"),
    ("SwitchName=a Nodes=n1 Nodes=n2", "t line 1: Nodes is given twice"),
    ("SwitchName=a Nodes=n1\nLinkSpeed=1", "t line 2: neither a switch nor a block"),
    ("Include other.conf\nSwitchName=a Nodes=n1", "t line 1: included files are not followed"),
    ("SwitchName=a Nodes=n1\nBlockName=b Nodes=n1", "t line 2: it has lines of SwitchName and of BlockName"),
    ("BlockName=b", "t line 1: block b has no Nodes"),
    ("BlockName=b Nodes=n1\nBlockSizes=1,3", "t line 2: block size 3 is not 2, 4, 8, … times 1"),
    ("BlockName=b Nodes=n1\nBlockSizes=1,x", "t line 2: '1,x' is not a list of sizes"),
    ("SwitchName=a Nodes=-n1", "t line 1: node '-n1' is not a name"),
    ("[]", "expected a list of topologies"),
    ("- {topology: a, flat: true}", "no node hangs anywhere"),
    ("- {topology: a, tree: {}}", "t line 1: expected a list of switches"),
    ("- topology: a\n  tree:\n    switches:\n    - {switch: s, nodes: 5}", "t line 4: nodes: 5 is not a list of names"),
    ("- topology: a\n  tree:\n    switches:\n    - {switch: s, node: n1}", "t line 4: unknown field node"),
    ("- {topology: a, tree: {}, block: {}}", "t line 1: topology a needs exactly one of"),
    ("- {topology: a, mesh: {}}", "t line 1: topology a has the unknown field mesh"),
    ("- {topology: a, topology: b}", "t line 1: 'topology' is written twice"),
    ("- a", "t: expected a topology as fields"),
    ("a: [", r"t line \d: "),
    ("hello", "not a topology that can be read"),
    ("kind: Pod", "not a topology that can be read"),
])
def test_a_bad_file_is_refused_with_its_line_and_what_to_do(text: str, words: str) -> None:
    with pytest.raises(Rejected, match=words) as caught:
        read_topology(text, "t")
    assert caught.value.fix


def test_a_deep_chain_of_switches_costs_no_stack() -> None:
    lines = [f"SwitchName=s{i} Switches=s{i + 1}" for i in range(3000)]
    read = read_topology("\n".join([*lines, "SwitchName=s3000 Nodes=n1"]), "t")
    assert len(read.places[0].path) == 3001
