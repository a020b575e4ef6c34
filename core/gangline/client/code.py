"""Where a function lives: a reference a rank can import, and the import root that must travel with it.

Code is never pickled. A target becomes `module:qualname` plus the directory that has to be on the
import path for that module to be found; the directory is snapshotted by `gangline.client.snapshot`.
Targets given as text are checked by the finders and the syntax tree, without importing them.
"""

from __future__ import annotations

import inspect
import re
import site
import sys
import sysconfig
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from gangline.client.finding import find_module, nearest_module
from gangline.client.source import read_source
from gangline.model.errors import NotFound, Rejected

_MANGLED = re.compile(r"unusual_prefix_[0-9a-f]{40}_")  # how Airflow names the modules of DAG files
_IDENTIFIERS = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


@dataclass(frozen=True, slots=True)
class Code:
    """A function by reference. `root` is None when its module is installed with the interpreter."""

    reference: str
    root: Path | None
    file: Path | None = None


def locate(target: Callable[..., Any] | str, search: Sequence[Path] = ()) -> Code:
    """The reference and import root of a function object, or of text "package.module:function".

    `search` lists directories to look in before the interpreter's own path; it matters for text only.

    Raises:
        NotFound: text that names no module or function; what was found nearby is said.
        Rejected: something that cannot be called by name in another process, and why.
    """
    if isinstance(target, str):
        return _from_text(target, search)
    return _from_function(target)


def is_installed(directory: Path) -> bool:
    """True when the directory comes with the interpreter or was installed as a package."""
    if {"site-packages", "dist-packages"} & set(directory.parts):
        return True
    return any(directory == lib or lib in directory.parents for lib in _library_roots())


def _from_text(text: str, search: Sequence[Path]) -> Code:
    module, colon, qualname = text.partition(":")
    if not (colon and _IDENTIFIERS.fullmatch(module) and _IDENTIFIERS.fullmatch(qualname)):
        raise Rejected(f"{text!r} is not a function", fix="write package.module:function")
    places = [str(path) for path in search]
    found = find_module(module, places)
    if found is None:
        looked = ", ".join(places) or "the import path"
        raise NotFound(f"no module {module} in {looked}",
                       fix=nearest_module(module, places) or "check the name and where you run this")
    if found.file is None:
        return Code(text, None)
    if found.file.suffix == ".py":
        read_source(found.file).check_function(qualname)
    root = _parent(found.file, _depth(module, found.file))
    return Code(text, None if is_installed(root) else root, found.file)


def _from_function(target: Callable[..., Any]) -> Code:
    name = _plain_name(target)
    path = _file_of(target, name)
    source = read_source(path)
    source.check_function(name)
    module = target.__module__
    if module == "__main__" and not source.guarded and _main_name(path) == path.stem:
        raise Rejected(f"{path.name} would submit again on every rank, because ranks import it",
                       fix='put what it runs under if __name__ == "__main__":')
    loaded_as = _main_name(path) if module == "__main__" else _MANGLED.sub("", module)
    dotted, root = _importable(loaded_as, path, is_main=module == "__main__")
    return Code(f"{dotted}:{name}", None if is_installed(root) else root, path)


def _plain_name(target: Callable[..., Any]) -> str:
    """The function's name at the top level of its module; Rejected when it has none."""
    if inspect.ismethod(target) or not inspect.isfunction(inspect.unwrap(target)):
        kind = "a method" if inspect.ismethod(target) else f"a {type(target).__name__}, not a function"
        raise Rejected(f"{target!r} is {kind}", fix="name a function defined with def at the top of a module")
    name: str = target.__qualname__
    if "<lambda>" in name:
        raise Rejected("a lambda has no name that another process could import",
                       fix="write it as a function with def at the top of a module")
    if "<locals>" in name:
        outer, _, inner = name.rpartition(".<locals>.")
        raise Rejected(f"{inner} is defined inside {outer}, so another process cannot import it",
                       fix="move it to the top of its module and pass what it needs as arguments; "
                           "if a decorator made it, the decorator should use functools.wraps")
    if "." in name:
        owner, _, method = name.rpartition(".")
        raise Rejected(f"{method} is a method of {owner}; a gang runs plain functions",
                       fix=f"move {method} out of the class")
    inner_fn: Any = inspect.unwrap(target)
    if inspect.iscoroutinefunction(inner_fn) or inspect.isasyncgenfunction(inner_fn):
        raise Rejected(f"{name} is an async function", fix="make it plain; it may call asyncio.run itself")
    if inspect.isgeneratorfunction(inner_fn):
        raise Rejected(f"{name} is a generator; a gang's function returns one value", fix="return a list")
    return name


def _file_of(target: Callable[..., Any], name: str) -> Path:
    inner: Any = inspect.unwrap(target)
    compiled_from: str = inner.__code__.co_filename
    module = sys.modules.get(target.__module__)
    of_module: str | None = getattr(module, "__file__", None)
    if not compiled_from.startswith("<"):
        for candidate in (of_module, compiled_from):
            if candidate and candidate.endswith(".py") and Path(candidate).is_file():
                return Path(candidate).resolve()
    raise Rejected(f"{name} has no source file: it was made in a notebook, an interactive session or by exec",
                   fix="put it into a .py file and import it from there")


def _main_name(path: Path) -> str:
    """The importable name of the program being run: `python -m pkg.mod` or `python path/mod.py`."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    name = getattr(spec, "name", None)
    return name if isinstance(name, str) and name.rpartition(".")[2] == path.stem else path.stem


def _importable(name: str, path: Path, *, is_main: bool) -> tuple[str, Path]:
    """(dotted name, import root) under which `path` can be imported elsewhere.

    A root the running interpreter itself imports from is preferred, so that the file's own imports
    work on a rank as they do here, whatever name a host such as Airflow loaded the file under.
    """
    on_path = {Path(entry).resolve() for entry in sys.path if entry}
    usable = [(dotted, root) for dotted, root in _candidates(name, path, on_path)
              if _IDENTIFIERS.fullmatch(dotted)]
    if not usable:
        raise Rejected(f"{path.name} cannot be imported under that name",
                       fix="rename it to letters, digits and underscores")
    if is_main and (main := _by_name(name, path)) in usable:
        return main  # the script's directory is what its imports were resolved against
    return next(((dotted, root) for dotted, root in usable if root in on_path), usable[0])


def _candidates(name: str, path: Path, on_path: set[Path]) -> Iterator[tuple[str, Path]]:
    package_root = path.parent
    while (package_root / "__init__.py").is_file():
        package_root = package_root.parent
    loaded = _by_name(name, path)
    if package_root != path.parent:  # inside a package its dotted name comes first, for relative imports
        yield _dotted(path, package_root), package_root
    if loaded:
        yield loaded
    yield _dotted(path, package_root), package_root
    for parent in package_root.parents:
        if parent in on_path and parent not in (Path("/"), Path.home()):
            yield _dotted(path, parent), parent


def _by_name(name: str, path: Path) -> tuple[str, Path] | None:
    root = _parent(path, _depth(name, path))
    return (name, root) if _dotted(path, root) == name else None


def _dotted(path: Path, root: Path) -> str:
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _depth(module: str, path: Path) -> int:
    return module.count(".") + (2 if path.name.startswith("__init__.") else 1)


def _parent(path: Path, levels: int) -> Path:
    for _ in range(levels):
        path = path.parent
    return path


@lru_cache(maxsize=1)
def _library_roots() -> tuple[Path, ...]:
    paths = sysconfig.get_paths()
    named = [paths[key] for key in ("stdlib", "platstdlib", "purelib", "platlib")]
    return tuple(Path(p).resolve() for p in (*named, *site.getsitepackages(), site.getusersitepackages()))
