"""Where nodes are: the nested subtrees of a fleet, from one NVLink domain to everything.

A fleet of switch depth D has D + 4 levels: 0 is the NVLink domain, 1 the leaf switch, 2 the spine, and
so on up to D, then the fabric, the zone and everything. Depth is counted from the leaf in each network
by itself, so "leaf" and "spine" mean the same in networks of different depth.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gangline.plan.snapshot import NodeState

Key = tuple[object, ...]
DOMAIN, LEAF, SPINE = 0, 1, 2


@dataclass(frozen=True, slots=True)
class Levels:
    """The levels of a fleet whose deepest network has `depth` layers of switches (at least 2)."""

    depth: int

    @property
    def fabric(self) -> int:
        return self.depth + 1

    @property
    def zone(self) -> int:
        return self.depth + 2

    @property
    def any(self) -> int:
        return self.depth + 3

    @property
    def count(self) -> int:
        return self.depth + 4

    def within(self, name: str | None, *, rdma: bool) -> int:
        """The widest level a gang may span that asks for `within` and rdma."""
        widest = {None: self.any, "leaf": LEAF, "spine": SPINE, "fabric": self.fabric}[name]
        return min(widest, self.fabric) if rdma else widest


Network = tuple[tuple[bool, str], str, str]  # (emulated, realm), zone, fabric ("" when it has none)


def network_of(node: NodeState) -> Network:
    return (node.emulated, node.realm), node.zone, node.fabric or ""


def subtree_keys(node: NodeState, levels: Levels, depth: int) -> tuple[Key, ...]:
    """The node's subtree at every level, in a network whose longest path has `depth` switches (at least 2).

    Keys of one level compare as the nodes inside them do. Real and emulated nodes share no subtree, nor do
    those of different realms: a gang is whole in one of them.
    What is not known is never shared: a node without a path is a leaf of its own, and nodes without a
    fabric are together only where a switch they both name says so.
    """
    network = network_of(node)
    path = padded(node, depth)
    switches = [(*network, path[:max(1, depth - up)]) for up in range(levels.depth)]
    top = switches[-1]
    return ((*switches[0], node.domain or ""), *switches, network if node.fabric else top, network[:2], network[:1])


def padded(node: NodeState, depth: int) -> tuple[str, ...]:
    """The node's path with `depth` entries: a short one repeats its last, none is the node itself."""
    path = node.path or (f"\0{node.name}",)
    return (*path, *([path[-1]] * (depth - len(path))))


def subtree_name(levels: Levels, level: int, key: Key) -> str:
    """How a person calls the subtree: "fabric ib-1", "zone zone-1"; "the fleet" for everything."""
    if level == levels.any:
        return "the fleet"
    if level == levels.zone:
        return f"zone {key[1]}"
    if len(key) == 3:
        return f"fabric {key[2]}"
    path = key[3]
    assert isinstance(path, tuple)
    if path[-1].startswith("\0"):
        return f"node {path[-1][1:]}"
    if level == DOMAIN and key[-1]:
        return f"NVLink domain {key[-1]}"
    names = {LEAF: "leaf", DOMAIN: "leaf", SPINE: "spine"}
    return f"{names.get(level, 'switch')} {path[-1]}"


def growth_path(pool: str, paths: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    """The switch path a new node of a pool will have beside nodes on `paths`, or () when that cannot be known.

    A pool without nodes starts on one leaf of its own; one whose nodes all share a path grows there.
    """
    known = set(paths)
    if not known:
        return (f"{pool}-leaf",)
    return known.pop() if len(known) == 1 else ()
