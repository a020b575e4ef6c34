"""Column types that keep values whole: enums, tuples and frozen models as portable text."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from enum import StrEnum
from functools import lru_cache
from typing import Any

from sqlalchemy import Text
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeDecorator

from gangline.model.base import Wire, canonical_json
from gangline.model.spec import GangSpec


class Choice(TypeDecorator[Any]):
    """A string enum as its value."""

    impl = Text
    cache_ok = True

    def __init__(self, kind: type[StrEnum]) -> None:
        super().__init__()
        self.kind = kind

    def process_bind_param(self, value: Any, dialect: Dialect) -> str | None:
        return None if value is None else str(self.kind(value))

    def process_result_value(self, value: Any, dialect: Dialect) -> StrEnum | None:
        return None if value is None else self.kind(value)


class Json(TypeDecorator[Any]):
    """Plain JSON as text. NULL is "nothing recorded", so a stored null stays apart from it."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> str | None:
        return None if value is None else plain_json(value)

    def process_result_value(self, value: Any, dialect: Dialect) -> Any:
        return None if value is None else json.loads(value)


class Listed(Json):
    """A tuple of plain values as a JSON list."""

    cache_ok = True

    def process_result_value(self, value: Any, dialect: Dialect) -> Any:
        return None if value is None else _parse_list(value)


class Value(TypeDecorator[Any]):
    """A frozen model as its JSON."""

    impl = Text
    cache_ok = True

    def __init__(self, kind: type[Wire]) -> None:
        super().__init__()
        self.kind = kind

    def process_bind_param(self, value: Any, dialect: Dialect) -> str | None:
        return None if value is None else canonical_json(value.wire())

    def process_result_value(self, value: Any, dialect: Dialect) -> Wire | None:
        return None if value is None else _parse(self.kind, value)


class Values(TypeDecorator[Any]):
    """A tuple of frozen models of one kind as a JSON list."""

    impl = Text
    cache_ok = True

    def __init__(self, kind: type[Wire]) -> None:
        super().__init__()
        self.kind = kind

    def process_bind_param(self, value: Any, dialect: Dialect) -> str | None:
        return None if value is None else canonical_json([item.wire() for item in value])

    def process_result_value(self, value: Any, dialect: Dialect) -> tuple[Wire, ...] | None:
        return None if value is None else tuple(self.kind.model_validate(item) for item in json.loads(value))


class Spec(TypeDecorator[Any]):
    """A gang's spec. It never changes, and every pass reads them all: parsed ones are remembered.

    Keys stay in their order, for ranks run through the roles in the order they were written.
    """

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> str | None:
        return None if value is None else json.dumps(value.wire(), separators=(",", ":"), ensure_ascii=False)

    def process_result_value(self, value: Any, dialect: Dialect) -> GangSpec | None:
        return None if value is None else _parse_spec(value)


def plain_json(value: Any) -> str:
    """Canonical JSON; numbers that JSON does not know (NaN, infinities) become strings."""
    try:
        return canonical_json(value)
    except ValueError:
        return canonical_json(_finite(value))


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value


@lru_cache(maxsize=1024)
def _parse_list(text: str) -> tuple[Any, ...]:
    return tuple(json.loads(text))


@lru_cache(maxsize=1024)
def _parse(kind: type[Wire], text: str) -> Wire:
    """Of a backlog nearly all rows hold the same: frozen models that read the same are one."""
    return kind.model_validate_json(text)


_parse_spec: Callable[[str], GangSpec] = lru_cache(maxsize=8192)(GangSpec.model_validate_json)
