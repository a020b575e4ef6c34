"""YAML and JSON as plain values whose mappings still know their line."""

from __future__ import annotations

import json
from typing import Any

import yaml

from gangline.fabric.topology.values import Source

_BASE: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml's where it is there: ten times as fast


class Marked(dict[Any, Any]):
    """A mapping read from line `line` of its file."""

    line: int = 1


class _Loader(_BASE):  # type: ignore[misc]
    """Safe values only; a key that is written twice is refused, which YAML forbids and PyYAML lets pass."""


def _mapping(loader: Any, node: yaml.MappingNode) -> Any:
    made = Marked()
    made.line = node.start_mark.line + 1
    yield made
    seen = set()
    for key, _ in node.value:
        if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
            if key.value in seen:
                raise yaml.constructor.ConstructorError(None, None, f"{key.value!r} is written twice", key.start_mark)
            seen.add(key.value)
    loader.flatten_mapping(node)
    made.update(loader.construct_mapping(node))


_Loader.add_constructor("tag:yaml.org,2002:map", _mapping)


def load_documents(text: str, source: Source) -> list[Any]:
    """The documents of a file, mappings as `Marked`; those of JSON do not know their line.

    Raises:
        Rejected: it is neither JSON nor YAML; the line is named.
    """
    if text.lstrip()[:1] in ("{", "["):
        try:
            return [json.loads(text)]
        except (ValueError, RecursionError):
            pass  # a flow-style YAML file begins so too; if it is none, YAML tells the line
    try:
        return [value for value in yaml.load_all(text, Loader=_Loader) if value is not None]
    except yaml.YAMLError as exc:
        mark = getattr(exc, "problem_mark", None)
        problem = getattr(exc, "problem", None) or getattr(exc, "reason", None) or "it is not YAML"
        raise source.refuse(str(problem), line=0 if mark is None else mark.line + 1,
                            fix="correct the YAML") from None
    except (ValueError, RecursionError, TypeError) as exc:
        raise source.refuse(f"it cannot be read: {exc}", fix="correct the YAML") from None


def line_of(value: object) -> int:
    """The line a mapping began in; 0 when that is not known."""
    return value.line if isinstance(value, Marked) else 0
