"""Ray's tables, read and turned into plain facts.

What Ray offers publicly of its tables needs its dashboard, or sums over all nodes; so this reads what that is made
of. Everything of Ray that is not public is used here and nowhere else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gangline.engines.ray.wire import NodeFacts
from gangline.model.spec import check_name

_COUNTED = ("GPU", "CPU")
_MOST_HOLDERS = 8
NAME_LABEL = "gangline/node"
ID_LABEL = "ray.io/node-id"  # Ray gives it to every node
# Why a node died, as `ray.nodes()` numbers it (NodeDeathInfo.Reason). A node that was taken away on purpose is
# not dead: it is no longer there.
_DEATHS = {0: "unspecified", 1: "", 2: "unexpected", 3: "", 4: ""}


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """A part of a placement group: what it asks for, where it is ("" until placed) and where alone it may be."""

    resources: Mapping[str, float]
    node: str
    pinned: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A placement group, anybody's; one that was removed stays in Ray's table."""

    id: str
    name: str
    state: str
    bundles: tuple[Bundle, ...]

    @property
    def removed(self) -> bool:
        return self.state == "REMOVED"

    @property
    def waiting(self) -> bool:
        return self.state in ("PENDING", "PREPARED")


class Tables:
    """One reading of nodes and placement groups, resources first: what is placed meanwhile counts as ours."""

    def __init__(self) -> None:
        import ray
        from ray._private.state import state

        self._total = state.total_resources_per_node()
        self._free = state.available_resources_per_node()
        self._draining = state.get_draining_nodes()
        self.groups = {group.id: group for group in map(_group, state._connect_and_get_accessor()
                                                        .get_placement_group_table())}
        nodes = ray.nodes()
        self._nodes = named_nodes(nodes)
        self._names = {node["NodeID"]: _own_name(node) for node in nodes}
        self._names |= {node["NodeID"]: name for name, node in self._nodes.items()}
        self._alive = {node["NodeID"] for node in nodes if node["Alive"]}

    def alive(self) -> dict[str, NodeFacts]:
        """Nodes that answer, by name, without who uses them."""
        return {name: self._facts(name, node) for name, node in self._nodes.items() if node["Alive"]}

    def places(self, group: Group) -> list[str]:
        """The names of the nodes that a group's bundles are meant for."""
        return [self._names.get(bundle.pinned, "") for bundle in group.bundles]

    def lost(self, group: Group) -> list[int]:
        """Bundles whose node will never come back: a raylet that starts anew has a new id."""
        return [index for index, bundle in enumerate(group.bundles) if bundle.pinned not in self._alive]

    def nodes(self, ours: set[str]) -> list[NodeFacts]:
        """All nodes; `ours` are the ids of the placement groups whose load is not foreign."""
        holders = self._holders(ours)
        found = []
        for name, node in self._nodes.items():
            facts = self._facts(name, node)
            facts["foreign"] = self._foreign(facts, ours)
            if facts["foreign"]:
                facts["holders"] = holders.get(facts["id"], [])[:_MOST_HOLDERS] or ["work of others"]
            found.append(facts)
        return found

    def _facts(self, name: str, node: Mapping[str, Any]) -> NodeFacts:
        id_, total = node["NodeID"], self._total.get(node["NodeID"], {})
        why = _DEATHS.get(node.get("DeathReason", 0), "unknown")
        return NodeFacts(
            name=name, id=id_, address=node["NodeManagerAddress"], alive=node["Alive"],
            head="node:__internal_head__" in total, draining=id_ in self._draining,
            death=node.get("DeathReasonMessage", "") or why, labels=dict(node.get("Labels", {})),
            total={unit: count for unit, count in total.items() if "_group_" not in unit}, foreign={}, holders=[])

    def _foreign(self, node: NodeFacts, ours: set[str]) -> dict[str, float]:
        total, free = self._total.get(node["id"], {}), self._free.get(node["id"], {})
        foreign = {}
        for unit in _COUNTED:
            held = sum(self._held(group, node["id"], unit) for group in ours)
            load = round(total.get(unit, 0.0) - free.get(unit, 0.0) - held, 4)  # Ray counts in ten thousandths
            if load > 0:
                foreign[unit] = load
        return foreign

    def _held(self, group: str, node: str, unit: str) -> float:
        """What a group of ours holds on a node: the group's own table and the node's tell of it at different times."""
        held = 0.0
        if not self.groups[group].removed:
            held = sum(bundle.resources.get(unit, 0.0) for bundle in self.groups[group].bundles if bundle.node == node)
        return max(held, float(self._total.get(node, {}).get(f"{unit}_group_{group}", 0.0)))

    def _holders(self, ours: set[str]) -> dict[str, list[str]]:
        """Who else has something on each node: groups by name, else actors."""
        from ray._private.state import actors

        found: dict[str, list[str]] = {}
        for id_, group in self.groups.items():
            if id_ not in ours and not group.removed:
                for node in {bundle.node for bundle in group.bundles}:
                    found.setdefault(node, []).append(group.name or f"placement group {id_}")
        grouped = set(found)
        for actor in actors(actor_state_name="ALIVE").values():
            node = actor["Address"]["NodeID"]
            if node not in grouped and actor["ActorClassName"] != "Warden":
                found.setdefault(node, []).append(actor["Name"] or actor["ActorClassName"])
        return found


def unready_actors() -> set[str]:
    """Names of actors that would be forgotten if their creator died now."""
    from ray._private.state import actors

    return {actor["Name"] for actor in actors(actor_state_name="DEPENDENCIES_UNREADY").values()}


def _group(row: bytes) -> Group:
    from ray.core.generated import gcs_pb2

    table = gcs_pb2.PlacementGroupTableData.FromString(row)
    return Group(
        id=table.placement_group_id.hex(), name=table.name,
        state=gcs_pb2.PlacementGroupTableData.PlacementGroupState.Name(table.state),
        bundles=tuple(Bundle(
            resources=dict(bundle.unit_resources), pinned=bundle.label_selector.get(ID_LABEL, ""),
            node="" if set(bundle.node_id) == {0xFF} else bundle.node_id.hex()) for bundle in table.bundles))


def named_nodes(nodes: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Nodes by name: their label, else the name they were started with; Ray's id where that is no name, or shared.

    A dead node gives way to a living one of its name, and one that was taken away on purpose is left out.
    """
    kept = [node for node in nodes if node["Alive"] or _DEATHS.get(node.get("DeathReason", 0), "unknown")]
    shared = Counter(_own_name(node) for node in kept if node["Alive"])
    named: dict[str, dict[str, Any]] = {}
    for node in sorted(kept, key=lambda node: node["Alive"]):
        name = _own_name(node)
        if not name or (node["Alive"] and shared[name] > 1):
            name = f"ray-{node['NodeID'][:16]}"
        named[name] = node
    return named


def _own_name(node: Mapping[str, Any]) -> str:
    name = node.get("Labels", {}).get(NAME_LABEL) or node.get("NodeName") or node["NodeManagerAddress"]
    try:
        return check_name(name)
    except ValueError:
        return ""
