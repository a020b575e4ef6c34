"""Verbs on nodes."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Literal

from sqlalchemy import func, insert, or_, select, update

from gangline.model.errors import NotFound
from gangline.model.node import Strike
from gangline.model.states import NodeLifecycle
from gangline.store.schema import nodes
from gangline.store.scope import Scope, columns, key
from gangline.store.values import Node

_GET = select(nodes).where(nodes.c.name == key("name"))
_ALL = select(nodes).order_by(nodes.c.ordinal)
_PRESENT = _ALL.where(nodes.c.lifecycle != NodeLifecycle.GONE, nodes.c.pool == key("pool"))
_PAGE = _ALL.where(nodes.c.lifecycle != NodeLifecycle.GONE, nodes.c.ordinal > key("ordinal")).limit(key("most"))
_UNSETTLED = _ALL.where(nodes.c.lifecycle != NodeLifecycle.GONE, or_(
    nodes.c.lifecycle == NodeLifecycle.BOOTING, nodes.c.origin == "dropped", nodes.c.drain_owner == key("owner")))
_STAYING = select(func.count()).select_from(nodes).where(
    nodes.c.lifecycle != NodeLifecycle.GONE, nodes.c.pool == key("pool"), nodes.c.origin != "dropped",
    or_(nodes.c.drain_owner.is_(None), nodes.c.drain_owner != key("owner")))
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

    def present(self, pool: str) -> tuple[Node, ...]:
        """The nodes of a pool that have not left, in order."""
        return tuple(Node(**row._mapping) for row in self._scope.rows(_PRESENT, key_pool=pool))

    def present_after(self, ordinal: int, most: int) -> tuple[Node, ...]:
        """The first `most` nodes that have not left, of those with a higher ordinal."""
        return tuple(Node(**row._mapping) for row in self._scope.rows(_PAGE, key_ordinal=ordinal, key_most=most))

    def unsettled(self, owner: str) -> tuple[Node, ...]:
        """Nodes that boot or are to leave: dropped by the fleet file, or drained by this owner."""
        return tuple(Node(**row._mapping) for row in self._scope.rows(_UNSETTLED, key_owner=owner))

    def staying(self, pool: str, owner: str) -> int:
        """How many nodes of a pool are there to stay: neither dropped nor drained by this owner."""
        return int(self._scope.scalar(_STAYING, key_pool=pool, key_owner=owner))

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

    def add_all(self, new: Sequence[Node]) -> None:
        """Adds nodes, many at a time."""
        self._scope.run_all(insert(nodes), [columns(node) for node in new])
        for node in new:
            self._scope.move(node=node.name)

    def replace_all(self, known: Sequence[Node]) -> None:
        """Writes the records of nodes that exist, many at a time."""
        self._scope.run_all(_SET, [{"key_name": node.name, **columns(node)} for node in known])
        for node in known:
            self._scope.move(node=node.name)

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

    def gone(self, name: str, *, origin: Literal["file", "made", "dropped", "retired"] | None = None) -> None:
        """It has left; `origin` says why when that decides how it may come back. Its drain stays known."""
        self._set(name, lifecycle=NodeLifecycle.GONE, incarnation=None, boot_done_ms=None,
                  **({} if origin is None else {"origin": origin}))

    def stir(self, pool: str) -> None:
        """A plan is due again though no node has changed: what can be asked of this pool has."""
        self._scope.move(node=pool)  # whoever looks for news finds that there is no node to read

    def _set(self, node: str, **values: Any) -> None:
        self._scope.run(_SET, key_name=node, **values)
        self._scope.move(node=node)
