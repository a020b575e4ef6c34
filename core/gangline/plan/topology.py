"""Where nodes are: the nested subtrees of a fleet, from one leaf switch to everything."""

from __future__ import annotations

from enum import IntEnum

from gangline.plan.snapshot import NodeState, PoolState

Key = tuple[str, ...]
Order = tuple[str, str, tuple[str, ...], str]


class Level(IntEnum):
    """How wide a subtree is; every subtree lies inside exactly one of the next level."""

    LEAF = 0
    SPINE = 1
    FABRIC = 2
    ZONE = 3
    ANY = 4


def subtree_keys(node: NodeState) -> tuple[Key, ...]:
    """The node's subtree at every level, widest last.

    Real and emulated nodes share none, so no group of nodes can mix them. What is not known is never
    shared: a node without a path is a leaf of its own, and nodes without a fabric are together only
    where a switch they both name says so.
    """
    zone = ("emulated" if node.emulated else "", node.zone)
    network = (*zone, node.fabric or "")
    leaf: Key
    spine: Key
    match node.path:
        case ():
            leaf = spine = (*network, "", "", node.name)
        case (only,):
            leaf = spine = (*network, "", only)
        case _:
            leaf, spine = (*network, *node.path), (*network, *node.path[:-1])
    return leaf, spine, network if node.fabric else spine, zone, zone[:1]


def topology_order(node: NodeState) -> Order:
    """Sorts nodes so that every subtree is one run; ends in the name, so it has no ties."""
    return node.zone, node.fabric or "", node.path, node.name


def subtree_name(level: Level, key: Key) -> str:
    """How a person calls the subtree: "fabric ib-1", "zone zone-1"; "the fleet" for everything."""
    match level:
        case Level.ANY:
            return "the fleet"
        case Level.ZONE:
            return f"zone {key[1]}"
        case Level.FABRIC if len(key) == 3:
            return f"fabric {key[2]}"
        case Level.LEAF | Level.SPINE | Level.FABRIC if key[3:5] == ("", ""):
            return f"node {key[-1]}"
        case Level.SPINE if key[3]:
            return f"spine {key[-1]}"
        case Level.LEAF | Level.SPINE | Level.FABRIC:
            return f"leaf {key[-1]}"


def growth_path(pool: PoolState, nodes: tuple[NodeState, ...]) -> tuple[str, ...]:
    """The switch path a new node of the pool will have, or () when that cannot be known.

    A pool without nodes starts on one leaf of its own; one whose nodes all share a path grows there.
    """
    paths = {node.path for node in nodes if node.pool == pool.name and not node.gone}
    if not paths:
        return (f"{pool.name}-leaf",)
    return paths.pop() if len(paths) == 1 else ()
