"""What pydantic found wrong with a value, in our words: what was expected, what is there, and how to mend it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MOST_SHOWN = 60  # characters of a wrong value
_LIST = ("a list", "write [a, b], or one entry a line after a dash")
_FIELDS = ("fields with values", "write {field: value}, or one field a line")
_WHOLE = ("a whole number", "write it without quotes and without a fraction")
_NUMBER = ("a number", "write it without quotes")
_BOOL = ("true or false", "write one of them without quotes")
_EXPECTED = {
    "tuple_type": _LIST, "list_type": _LIST, "set_type": _LIST, "frozen_set_type": _LIST, "iterable_type": _LIST,
    "dict_type": _FIELDS, "mapping_type": _FIELDS, "model_type": _FIELDS, "model_attributes_type": _FIELDS,
    "string_type": ("text", "put it in quotes"), "int_type": _WHOLE, "int_parsing": _WHOLE, "int_from_float": _WHOLE,
    "float_type": _NUMBER, "float_parsing": _NUMBER, "bool_type": _BOOL, "bool_parsing": _BOOL}
_BOUNDS = {"greater_than_equal": ("ge", "small", "{} or more"), "less_than_equal": ("le", "large", "{} or less"),
           "greater_than": ("gt", "small", "more than {}"), "less_than": ("lt", "large", "less than {}")}
_LENGTHS = {"too_short": ("min_length", "few", "{} or more"), "too_long": ("max_length", "many", "{} or less")}


def worded(problem: Mapping[str, Any]) -> tuple[str, str | None]:
    """The message and the fix for one entry of a validation's `errors()`."""
    kind, limits = problem["type"], problem.get("ctx", {})
    if kind == "extra_forbidden":
        return "unknown field", "remove it or check its spelling"
    if kind == "missing":
        return "is required", "add it"
    if kind in _EXPECTED:
        expected, fix = _EXPECTED[kind]
        return f"expected {expected}, not {shown(problem['input'])}", fix
    if kind in ("literal_error", "enum"):
        return f"{shown(problem['input'])} is not known here", f"write {limits['expected']}"
    if kind in _BOUNDS:
        name, size, wanted = _BOUNDS[kind]
        return f"{shown(problem['input'])} is too {size}", f"write {wanted.format(_plain(limits[name]))}"
    if kind in _LENGTHS:
        name, size, wanted = _LENGTHS[kind]
        return f"has too {size} entries, {limits['actual_length']}", f"give {wanted.format(limits[name])}"
    message = str(problem["msg"]).removeprefix("Value error, ")
    return (message[:1].lower() + message[1:] if message else "is not valid"), None


def shown(value: object) -> str:
    """A wrong value as it was written, the beginning of a long one."""
    text = "nothing" if value is None else repr(value)
    return text if len(text) <= MOST_SHOWN else text[:MOST_SHOWN] + "…"


def _plain(limit: float) -> str:
    return str(int(limit)) if limit == int(limit) else str(limit)
