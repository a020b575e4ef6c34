"""Nodes as members of gangs, made once: a fleet's nodes are placed again and again."""

from __future__ import annotations

from collections.abc import Sequence

from gangline.model.gpu import GpuAsk
from gangline.plan.outcome import NodeChoice


class Members(dict[int, NodeChoice]):
    """Whole rows as members that play one role with one ask, by row."""

    def __init__(self, names: Sequence[str], gpus: Sequence[tuple[int, ...]], ask: GpuAsk, role: str) -> None:
        self._names, self._gpus, self._ask, self._role = names, gpus, ask, role

    def __missing__(self, row: int) -> NodeChoice:
        made = self[row] = NodeChoice(self._names[row], self._gpus[row], self._ask, self._role)
        return made
