"""What an import changes, as lines and as JSON. Pure functions over a merge."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.text import Text

from gangline.cli.output import Lines
from gangline.fabric.merging import Merge
from gangline.model.fleet import DeclaredNode

MOST_LINES = 40  # of one kind; --json has them all


def merge_lines(merged: Merge) -> Lines:
    """One change a line: + added, ~ changed, - replaced, ? not told of."""
    lines = [Text(f"+ pool {pool.name}: {pool.gpu} in zone {pool.zone}, {pool.min} nodes, engine {pool.engine}"
                  + (", emulated" if pool.emulated else ""), style="green") for pool in merged.pools]
    lines += [Text(f"~ pool {after.name}: max {before.max} -> {after.max}", style="yellow")
              for before, after in merged.grown]
    lines += _some([f"+ {node.name}  pool {node.pool}  {_place(node)}" for node in merged.added], "green")
    lines += _some([f"~ {after.name}  {_place(before)} -> {_place(after)}" for before, after in merged.changed],
                   "yellow")
    lines += _some([f"- {name}  its pool names its nodes now" for name in merged.replaced], "red")
    lines += _some([f"? {name}  not told of; stays as it is" for name in merged.unknown], "dim")
    lines += _some([f"  {name}  has no GPUs; left out (--pool NAME takes it in)" for name in merged.left_out], "dim")
    return lines


def merge_json(merged: Merge, **more: Any) -> dict[str, Any]:
    """The same as plain values."""
    return {
        **more,
        "pools": [pool.full() for pool in merged.pools],
        "grown": [{"pool": after.name, "max": {"from": before.max, "to": after.max}}
                  for before, after in merged.grown],
        "added": [node.full() for node in merged.added],
        "changed": [{"node": after.name, "path": {"from": list(before.path), "to": list(after.path)},
                     "domain": {"from": before.domain, "to": after.domain}} for before, after in merged.changed],
        "replaced": list(merged.replaced), "unknown": list(merged.unknown), "left_out": list(merged.left_out),
        "findings": [str(finding) for finding in merged.findings],
    }


def _place(node: DeclaredNode) -> str:
    path = "/".join(node.path) or "(no path)"
    return path if node.domain is None else f"{path} [{node.domain}]"


def _some(texts: Sequence[str], style: str) -> Lines:
    lines = [Text(text, style=style) for text in texts[:MOST_LINES]]
    if len(texts) > MOST_LINES:
        lines.append(Text(f"  and {len(texts) - MOST_LINES} more like these (--json has them all)", style="dim"))
    return lines
