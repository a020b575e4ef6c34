"""Profiles from their file, with a user's own file over them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

import yaml

from gangline.fabric.profiles.values import Catalogue, Profile
from gangline.model.errors import Rejected

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times as fast, where libyaml is there
_NAMED = ("env", "avoid", "undoes")  # lists whose rows have names, so that one row can be replaced
_FIRST = ("libraries",)  # lists whose rows are added
_MOST_BASES = 16


def load_catalogue(own: Mapping[str, Any] | None = None, *, where: str = "profiles") -> Catalogue:
    """The shipped profiles; those in `own` (what a file of the user's holds) replace or join them.

    An own profile may extend a shipped one by its name. It comes before the shipped ones, so it wins where
    both fit a host.

    Raises:
        Rejected: `own` is no file of profiles; the profile and the field are named.
    """
    shipped = _shipped()
    if own is None:
        return _shipped_catalogue()
    unknown = sorted(set(own) - {"bases", "profiles"})
    if unknown:
        raise Rejected("unknown field", field=f"{where}.{unknown[0]}", fix="a file of profiles has bases and profiles")
    bases = {**shipped["bases"], **{row["name"]: row for row in shipped["profiles"]}, **_mapping(own, "bases", where)}
    rows = _rows(own, where)
    return _catalogue(shipped, [_whole(row, bases, where) for row in rows], where)


@cache
def _shipped() -> dict[str, Any]:
    text = files("gangline.fabric.profiles").joinpath("profiles.yaml").read_text()
    data: dict[str, Any] = yaml.load(text, Loader=_LOADER)  # noqa: S506 - a safe loader
    return data


@cache
def _shipped_catalogue() -> Catalogue:
    return _catalogue(_shipped(), [], "profiles")


def _catalogue(shipped: Mapping[str, Any], own: list[dict[str, Any]], where: str) -> Catalogue:
    names = {row["name"] for row in own}
    rows = [_whole(row, shipped["bases"], "profiles") for row in shipped["profiles"] if row["name"] not in names]
    profiles = [*(Profile.parse(row, where=f"{where}.{row['name']}") for row in own),
                *(Profile.parse(row, where=row["name"]) for row in rows)]
    tables = {name: value for name, value in shipped.items() if name not in ("bases", "profiles")}
    return Catalogue.parse({**tables, "profiles": profiles})


def _whole(row: Mapping[str, Any], bases: Mapping[str, Any], where: str, depth: int = 0) -> dict[str, Any]:
    """A row with everything it extends; what is written later counts."""
    if depth > _MOST_BASES:
        raise Rejected("extends itself", field=f"{where}.{row.get('name', '')}.extends")
    whole: dict[str, Any] = {}
    extends = row.get("extends") or ()
    if not isinstance(extends, list | tuple):
        raise Rejected("expected a list of names", field=f"{where}.{row.get('name', '')}.extends")
    for base in extends:
        if not isinstance(base, str) or base not in bases:
            raise Rejected(f"{base!r} is neither a base nor a profile", field=f"{where}.{row.get('name', '')}.extends")
        whole = _over(whole, _whole(bases[base], bases, where, depth + 1))
    return _over(whole, {name: value for name, value in row.items() if name != "extends"})


def _over(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    result = dict(under)
    for name, value in over.items():
        before = result.get(name)
        if name in _NAMED and isinstance(before, list) and isinstance(value, list):
            # Of one name several rows may stand side by side (a value for each version).
            replaced = {_name(row) for row in value}
            result[name] = [*(row for row in before if _name(row) not in replaced), *value]
        elif name in _FIRST and isinstance(before, list) and isinstance(value, list):
            result[name] = [*value, *before]
        elif isinstance(value, Mapping) and isinstance(before, Mapping):
            result[name] = {**before, **value}
        else:
            result[name] = value
    return result


def _name(row: object) -> str:
    return str(row.get("name")) if isinstance(row, Mapping) else ""


def _mapping(own: Mapping[str, Any], name: str, where: str) -> dict[str, Any]:
    value = own.get(name) or {}
    if not isinstance(value, Mapping) or not all(isinstance(row, Mapping) for row in value.values()):
        raise Rejected("expected NAME: FIELDS", field=f"{where}.{name}")
    return dict(value)


def _rows(own: Mapping[str, Any], where: str) -> list[dict[str, Any]]:
    rows = own.get("profiles") or []
    if not isinstance(rows, list) or not all(isinstance(row, Mapping) and isinstance(row.get("name"), str)
                                             for row in rows):
        raise Rejected("expected a list of profiles, each with a name", field=f"{where}.profiles")
    return [dict(row) for row in rows]
