"""Changing a fleet file the way a person would: only what changes is written anew, comments stay."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import yaml

from gangline.fabric.merging import Merge
from gangline.model.errors import Rejected
from gangline.model.fleet import Fleet

LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True, slots=True)
class Edited:
    """The new text of a file, and the comments that are not in it any more."""

    text: str
    lost: tuple[str, ...] = ()


def edited(text: str, merge: Merge) -> Edited:
    """The text of a fleet file (empty for a new one) with a merge in it.

    Where a file is written in a way that cannot be changed in place, all of it is written anew.
    """
    new = _in_place(text, merge) if text.strip() else None
    if new is None:
        new = yaml.safe_dump(merge.fleet.wire(), sort_keys=False, default_flow_style=None, width=110)
    return Edited(new, tuple((Counter(comments(text)) - Counter(comments(new))).elements()))


def comments(text: str) -> list[str]:
    """Every comment of a YAML text: what lies between its tokens and begins with a hash."""
    found: list[str] = []
    end = 0
    for token in yaml.scan(text, Loader=LOADER):
        between = text[end:token.start_mark.index] if token.start_mark.index > end else ""
        found += [line[line.index("#"):].rstrip() for line in between.splitlines() if "#" in line]
        end = max(end, token.end_mark.index)
    return found


def _in_place(text: str, merge: Merge) -> str | None:
    root = yaml.compose(text, Loader=LOADER)
    if not isinstance(root, yaml.MappingNode) or root.flow_style:
        return None
    edit = _Edit(text)
    nodes, pools = _by_name(_value(root, "nodes")), _by_name(_value(root, "pools"))
    for before, after in merge.changed:
        for key in ("path", "domain"):
            if after.name in nodes and getattr(before, key) != getattr(after, key):
                edit.set(nodes[after.name], key, after.wire()[key])
    for _, pool in merge.grown:
        if pool.name in pools:
            edit.set(pools[pool.name], "max", pool.max)
    edit.append(root, "pools", [pool.wire() for pool in merge.pools])
    edit.append(root, "nodes", [node.wire() for node in merge.added])
    return edit.done(merge.fleet)


@dataclass(slots=True)
class _Edit:
    """Replacements of stretches of a text, all of them made at the end."""

    text: str
    cuts: list[tuple[int, int, str]] = field(default_factory=list)

    def set(self, mapping: yaml.MappingNode, key: str, value: object) -> None:
        """Gives a field a value, in the style of the mapping."""
        written = _flow(value)
        for known, old in mapping.value:
            if known.value == key:
                self.cuts.append((known.end_mark.index, _end(old), f": {written}"))
                return
        last = _end(mapping.value[-1][1])
        if mapping.flow_style:
            self.cuts.append((last, last, f", {key}: {written}"))
        else:
            self._line_after(last, " " * mapping.value[0][0].start_mark.column + f"{key}: {written}")

    def append(self, root: yaml.MappingNode, key: str, items: list[dict[str, Any]]) -> None:
        """Adds items to the end of a list, which is begun if there is none."""
        if not items:
            return
        known = next((pair for pair in root.value if pair[0].value == key), None)
        lines = "".join(f"\n  - {_flow(item)}" for item in items)
        if known is None:
            self.cuts.append((len(self.text), len(self.text), f"{'' if self.text.endswith(chr(10)) else chr(10)}"
                              f"{key}:{lines}\n"))
        elif not isinstance(known[1], yaml.SequenceNode) or not known[1].value:
            self.cuts.append((known[0].end_mark.index, _end(known[1]), f":{lines}"))
        elif known[1].flow_style:
            last = _end(known[1].value[-1])
            self.cuts.append((last, last, "".join(f",\n  {_flow(item)}" for item in items)))
        else:
            indent = " " * known[1].start_mark.column
            self._line_after(_end(known[1]), "\n".join(f"{indent}- {_flow(item)}" for item in items))

    def done(self, wanted: Fleet) -> str | None:
        """The new text, if it says what it should."""
        pieces, at = [], 0
        for start, end, written in sorted(self.cuts, key=lambda cut: cut[:2]):  # of two at one place the first stays so
            pieces += [self.text[at:start], written]
            at = end
        new = "".join([*pieces, self.text[at:]])
        try:
            return new if Fleet.parse(yaml.load(new, Loader=LOADER)) == wanted else None  # noqa: S506 - a safe one
        except (yaml.YAMLError, Rejected):
            return None

    def _line_after(self, at: int, written: str) -> None:
        found = self.text.find("\n", at)
        at = len(self.text) if found < 0 else found
        self.cuts.append((at, at, f"\n{written}"))


def _value(mapping: yaml.MappingNode, key: str) -> yaml.Node | None:
    return next((value for known, value in mapping.value if known.value == key), None)


def _by_name(items: yaml.Node | None) -> dict[str, yaml.MappingNode]:
    listed = items.value if isinstance(items, yaml.SequenceNode) else ()
    found = {name.value: item for item in listed
             if isinstance(item, yaml.MappingNode) and (name := _value(item, "name")) is not None}
    return {name: item for name, item in found.items() if isinstance(name, str)}


def _end(node: yaml.Node) -> int:
    """Where what is written of a value ends: the end of a block reaches over the comments after it."""
    while isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        last = node.value[-1]
        node = last[1] if isinstance(last, tuple) else last
    return int(node.end_mark.index)


def _flow(value: object) -> str:
    return yaml.safe_dump([value], default_flow_style=True, width=float("inf"), sort_keys=False).strip()[1:-1]
