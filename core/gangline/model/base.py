"""The base of every boundary value, and how its errors become one clear line."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from gangline.model.errors import Rejected
from gangline.model.wording import worded


class Wire(BaseModel):
    """A frozen value that crosses a boundary as JSON; unknown fields are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, populate_by_name=True)

    @classmethod
    def parse(cls, data: object, *, where: str = "") -> Self:
        """The value in `data`, or `Rejected` naming the first wrong field and what it should be."""
        try:
            return cls.model_validate(data)
        except ValidationError as exc:
            raise rejected(exc, where=where) from None

    def wire(self) -> dict[str, Any]:
        """Plain JSON values, unset defaults left out, field names as users write them."""
        return self.model_dump(mode="json", by_alias=True, exclude_defaults=True)

    def full(self) -> dict[str, Any]:
        """Plain JSON values with every default filled in."""
        return self.model_dump(mode="json", by_alias=True)


def rejected(exc: ValidationError, *, where: str = "") -> Rejected:
    """The first problem of a validation, as a `Rejected` with its field path and a fix."""
    first = exc.errors(include_url=False)[0]
    path = ".".join(str(part) for part in first["loc"])
    field = f"{where}.{path}".strip(".") if path else where or None
    message, fix = worded(first)
    return Rejected(message, field=field, fix=fix)


def canonical_json(value: object) -> str:
    """JSON with sorted keys and no spaces: the same value always gives the same text."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def sha256_of(value: Mapping[str, Any] | list[Any]) -> str:
    """Hex SHA-256 of a value's canonical JSON."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()
