"""Files people write: YAML read safely, with errors that name the file and the line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from gangline.model.errors import NotFound, Rejected
from gangline.model.fleet import Fleet

MAX_BYTES = 1 << 20


def read_yaml(path: Path) -> Any:
    """The plain values in a YAML (or JSON) file.

    Raises:
        NotFound: there is no such file.
        Rejected: it cannot be read, is larger than 1 MiB, or is not YAML; the line is named.
    """
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise NotFound(f"no file {path}") from None
    except OSError as exc:
        raise Rejected(f"cannot read {path}: {exc.strerror}") from None
    if len(data) > MAX_BYTES:
        raise Rejected(f"{path} is larger than 1 MiB", fix="a file of this kind is never that large")
    try:
        return yaml.load(data, Loader=_Loader)  # noqa: S506 - a SafeLoader with one rule more
    except yaml.YAMLError as exc:
        mark = getattr(exc, "problem_mark", None)
        line = f" line {mark.line + 1}" if mark is not None else ""
        problem = getattr(exc, "problem", None) or getattr(exc, "reason", None) or "not YAML"
        raise Rejected(f"{path}{line}: {problem}", fix="correct the YAML") from None
    except (UnicodeDecodeError, ValueError, RecursionError) as exc:
        raise Rejected(f"{path}: {exc}", fix="correct the YAML") from None


def read_mapping(path: Path, what: str) -> dict[str, Any]:
    """The mapping a YAML file holds; Rejected when it holds something else."""
    value = read_yaml(path)
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise Rejected(f"{path} holds no {what}", fix="write fields as NAME: VALUE, one a line")
    return value


def read_fleet(path: Path) -> Fleet:
    """The fleet a file declares; errors name the file and the field."""
    data = read_mapping(path, "fleet")
    try:
        return Fleet.parse(data)
    except Rejected as error:
        error.field = f"{path}: {error.field}" if error.field else str(path)
        raise


class _Loader(yaml.SafeLoader):
    """Refuses a key that is written twice, which YAML forbids and PyYAML lets pass."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                if key.value in seen:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"{key.value!r} is written twice", key.start_mark)
                seen.add(key.value)
        return super().construct_mapping(node, deep)
