"""The protocol between the loop and whatever provides nodes. An internal seam, free to change."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from gangline.model.node import NodeView


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLoss:
    """A supervisor that is gone. `swept` says that no process of its gangs is left on the node."""

    node: str
    text: str
    swept: bool


class Engine(Protocol):
    """Provides nodes. Every call is idempotent; none of them decides anything."""

    name: str

    def ensure(self, nodes: Iterable[NodeView]) -> None:
        """Start a supervisor on each of these nodes that has none. Returns before they say hello."""

    def losses(self, nodes: Iterable[NodeView]) -> tuple[NodeLoss, ...]:
        """Those of these nodes whose supervisor has ended since it said hello."""

    def shutdown(self, nodes: Iterable[NodeView]) -> None:
        """End the supervisors of these nodes with everything they run, and whatever else was started
        for them; returns when all of it is gone."""

    def on_change(self, callback: Callable[[], None]) -> None:
        """Call `callback` (from any thread) whenever `losses` may have something new."""

    def close(self) -> None:
        """Stop watching. Supervisors go on."""
