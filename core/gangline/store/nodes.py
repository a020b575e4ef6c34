"""Verbs on nodes."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from sqlalchemy import func, insert, select, update

from gangline.model.errors import NotFound
from gangline.model.node import Strike
from gangline.model.states import NodeLifecycle
from gangline.store.schema import nodes
from gangline.store.scope import Scope, columns, key
from gangline.store.values import Node

_GET = select(nodes).where(nodes.c.name == key("name"))
_ALL = select(nodes).order_by(nodes.c.ordinal)
_SOME = select(nodes).where(nodes.c.name.in_(key("names", many=True)))
_SET = update(nodes).where(nodes.c.name == key("name"))


class Nodes:
    """The inventory: what the fleet file declares and what is observed of it."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope

    def get(self, name: str) -> Node:
        """The node; NotFound when there never was one of that name."""
        found = self.find(name)
        if found is None:
            raise NotFound(f"there is no node {name}", fix="gangline fleet show lists them")
        return found

    def find(self, name: str) -> Node | None:
        row = self._scope.row(_GET, key_name=name)
        return None if row is None else Node(**row._mapping)

    def all(self) -> tuple[Node, ...]:
        """Every node, gone ones too, in the order they were first declared."""
        return tuple(Node(**row._mapping)
                     for row in self._scope.rows(_ALL))

    def some(self, names: Collection[str]) -> dict[str, Node]:
        if len(names) == 1:  # the common case, and a plan that stays in the cache
            found = self.find(next(iter(names)))
            return {} if found is None else {found.name: found}
        return {row.name: Node(**row._mapping) for row in self._scope.each(_SOME, "names", names)}

    def next_ordinal(self) -> int:
        return int(self._scope.scalar(select(func.coalesce(func.max(nodes.c.ordinal), 0)))) + 1

    def add(self, node: Node) -> None:
        self._scope.run(insert(nodes), **columns(node))
        self._scope.move(node=node.name)

    def replace(self, node: Node) -> None:
        """Writes the record of a node that exists."""
        self._set(node.name, **columns(node))

    def joined(self, name: str, incarnation: str) -> None:
        """Its supervisor answers: the node is ready and healthy."""
        self._set(name, incarnation=incarnation, lifecycle=NodeLifecycle.READY, healthy=True,
                  boot_done_ms=None)

    def recovered(self, name: str) -> None:
        """The supervisor that was thought lost answers again."""
        self._set(name, healthy=True)

    def lost(self, name: str, *, forget: bool) -> None:
        """Its supervisor is lost; `forget` its incarnation when that one can never speak again."""
        self._set(name, healthy=False, **({"incarnation": None} if forget else {}))

    def blamed(self, name: str, strikes: tuple[Strike, ...]) -> None:
        """Which ends of attempts are held against it."""
        self._set(name, strikes=strikes)

    def drain(self, name: str, owner: str | None, reason: str) -> None:
        self._set(name, drain_owner=owner, drain_reason=reason)

    def gone(self, name: str) -> None:
        self._set(name, lifecycle=NodeLifecycle.GONE, incarnation=None, boot_done_ms=None)

    def _set(self, node: str, **values: Any) -> None:
        self._scope.run(_SET, key_name=node, **values)
        self._scope.move(node=node)
