"""Finding a module's file by name without importing anything, its parent packages included."""

from __future__ import annotations

import difflib
import importlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Found:
    """A module that exists. `file` is None for one built into the interpreter."""

    file: Path | None


def find_module(name: str, places: Sequence[str]) -> Found | None:
    """The module `name` as an interpreter with `places` before its own path would find it; None if none."""
    importlib.invalidate_caches()  # the file may be younger than the finders' directory listings
    first, *rest = name.split(".")
    spec = _find_top(first, places)
    for part in rest:
        if spec is None or not spec.submodule_search_locations:
            return None
        # The bare part, not the dotted name: that would look for the parent among imported modules.
        spec = PathFinder.find_spec(part, list(spec.submodule_search_locations))
    if spec is None or spec.loader is None:  # a bare directory: nothing in it could be called
        return None
    return Found(Path(spec.origin).resolve() if spec.has_location and spec.origin else None)


def nearest_module(name: str, places: Sequence[str]) -> str:
    """A hint naming the module most like the last part of `name` where that part was looked for."""
    parent, _, last = name.rpartition(".")
    folders = [Path(p).joinpath(*parent.split(".") if parent else ()) for p in (*places, *sys.path) if p]
    for folder in folders:
        close = difflib.get_close_matches(last, _importable_names(folder), n=1)
        if close:
            return f"did you mean {parent + '.' if parent else ''}{close[0]}?"
    return ""


def _find_top(name: str, places: Sequence[str]) -> ModuleSpec | None:
    spec = PathFinder.find_spec(name, [*places, *sys.path])
    if spec is not None and spec.loader is not None:
        return spec
    for finder in sys.meta_path:  # built-in modules, and editable installs, which bring finders of their own
        find = getattr(finder, "find_spec", None)
        other: ModuleSpec | None = find(name, None) if find else None
        if other is not None and other.loader is not None:
            return other
    return spec


def _importable_names(folder: Path) -> list[str]:
    try:
        return sorted({p.stem for p in folder.iterdir()
                       if p.suffix == ".py" or (p.is_dir() and p.name.isidentifier())})
    except OSError:
        return []
