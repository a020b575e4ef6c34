"""What a node is asked for: a GPU type and a count, or processors alone."""

from __future__ import annotations

import re
from dataclasses import dataclass

CPU = "cpu"
_ASK = re.compile(r"([A-Za-z][A-Za-z0-9._-]*)(?::(\d+))?")


@dataclass(frozen=True, slots=True, order=True)
class GpuAsk:
    """`count` accelerators of `type` on one node; type "cpu" counts processor slots instead."""

    type: str
    count: int

    def __str__(self) -> str:
        return self.type if self.type == CPU and self.count == 1 else f"{self.type}:{self.count}"


def parse_gpu(text: str) -> GpuAsk:
    """The ask written as "H100:8", "H100" (one) or "cpu"; ValueError otherwise."""
    match = _ASK.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not a GPU; write TYPE:COUNT such as H100:8, or cpu")
    kind, count = match[1], int(match[2] or 1)
    if count < 1:
        raise ValueError(f"{text!r} asks for no GPU at all; write a count of at least 1, or cpu")
    return GpuAsk(CPU if kind.lower() == CPU else kind, count)
