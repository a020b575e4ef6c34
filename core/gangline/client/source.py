"""What a Python source file defines, read from its syntax tree and never by running it."""

from __future__ import annotations

import ast
import difflib
import threading
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gangline.model.errors import NotFound, Rejected

_PARSING = threading.Lock()  # Python 3.11 counts the depth of syntax trees over all threads at once
_Body = Iterable[ast.stmt]
_DEFS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


@dataclass(frozen=True, slots=True)
class Source:
    """The names a file binds at its top level, and whether it may bind more than can be read."""

    path: Path
    definitions: dict[str, ast.AST] = field(default_factory=dict)
    bound: frozenset[str] = frozenset()
    open_ended: bool = False  # a star import or a module __getattr__ may provide any name
    guarded: bool = False  # has `if __name__ == "__main__":`

    def check_function(self, qualname: str) -> None:
        """Raise unless `qualname` is, or may well be, a function that can be called by name.

        Raises:
            NotFound: no such name; the nearest one is offered.
            Rejected: the name is something that cannot run as a gang's function.
        """
        head, *rest = qualname.split(".")
        node = self.definitions.get(head)
        if node is None:
            if head in self.bound or self.open_ended:
                return
            raise NotFound(f"no function {head} in {self.path.name}", fix=self._nearest(head))
        for part in rest:
            inner = _definitions(node.body) if isinstance(node, ast.ClassDef) else {}
            if part not in inner:
                raise NotFound(f"no function {qualname} in {self.path.name}",
                               fix=_nearest(part, inner) or "check the name")
            node = inner[part]
        if isinstance(node, ast.ClassDef):
            raise Rejected(f"{qualname} in {self.path.name} is a class", fix="name a function")
        if isinstance(node, ast.AsyncFunctionDef):
            raise Rejected(f"{qualname} in {self.path.name} is an async function",
                           fix="name a plain function; it may call asyncio.run itself")

    def check_call(self, qualname: str, args: Iterable[str]) -> None:
        """Raise `Rejected` when a top-level function cannot take exactly these arguments by name.

        Says nothing of functions that are decorated by others, which may take what they like.
        """
        node = self.definitions.get(qualname)
        if not isinstance(node, ast.FunctionDef) or not all(_keeps_signature(d) for d in node.decorator_list):
            return
        given, spec = set(args), node.args
        required = spec.args[:len(spec.args) - len(spec.defaults)]
        required += [a for a, value in zip(spec.kwonlyargs, spec.kw_defaults, strict=True) if value is None]
        names = [a.arg for a in (*spec.args, *spec.kwonlyargs)]
        for name in sorted(given - set(names)):
            if spec.kwarg is None:
                raise Rejected(f"{qualname} takes no argument {name!r}", field="args",
                               fix=_nearest(name, names) or f"it takes {', '.join(names) or 'none'}")
        missing = [a.arg for a in required if a.arg not in given]
        if missing:
            raise Rejected(f"{qualname} needs the argument {missing[0]!r}", field="args",
                           fix="give it a value")
        if spec.posonlyargs:
            raise Rejected(f"{qualname} has positional-only arguments; arguments are passed by name",
                           field="args", fix="remove the / from its signature")

    def clustered_options(self, qualname: str, given: Container[str]) -> dict[str, Any]:
        """The options its `@clustered(...)` gives a function, but for those `given` elsewhere.

        Raises:
            Rejected: an option is computed, so that only running the file would tell it.
        """
        node = self.definitions.get(qualname)
        decorators = node.decorator_list if isinstance(node, ast.FunctionDef) else []
        options: dict[str, Any] = {}
        for call in decorators:
            if not isinstance(call, ast.Call) or not _keeps_signature(call):
                continue
            for keyword in call.keywords:
                if keyword.arg is not None and keyword.arg in given:
                    continue
                try:
                    options[keyword.arg or "**"] = ast.literal_eval(keyword.value)
                except ValueError:
                    raise Rejected(f"the decorator of {qualname} computes it", field=keyword.arg or "**",
                                   fix="give it here too, or submit from Python") from None
        return {**options.pop("**", {}), **options}

    def _nearest(self, name: str) -> str:
        functions = sorted(n for n, d in self.definitions.items() if isinstance(d, ast.FunctionDef))
        close = _nearest(name, functions)
        if close:
            return close
        return f"it defines {', '.join(functions[:8])}" if functions else "it defines no function"


def read_source(path: Path) -> Source:
    """The `Source` of a file; `Rejected` when it cannot be read or is not Python."""
    try:
        with _PARSING:
            tree = ast.parse(path.read_bytes(), filename=str(path))
    except SyntaxError as exc:
        raise Rejected(f"{path} line {exc.lineno}: {exc.msg}", fix="the file is not valid Python") from None
    except (OSError, ValueError) as exc:
        raise Rejected(f"cannot read {path}: {exc}") from None
    definitions = _definitions(tree.body)
    bound: set[str] = set()
    star = False
    for statement in _flat(tree.body):
        if isinstance(statement, ast.Import | ast.ImportFrom):
            names = [alias.asname or alias.name.split(".")[0] for alias in statement.names]
            star = star or "*" in names
            bound.update(names)
        elif isinstance(statement, ast.Assign | ast.AnnAssign):
            bound.update(n.id for n in ast.walk(statement)
                         if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))
    return Source(path, definitions, frozenset(bound), star or "__getattr__" in definitions,
                  any(_is_main_guard(s) for s in tree.body))


def _definitions(body: _Body) -> dict[str, ast.AST]:
    return {s.name: s for s in _flat(body) if isinstance(s, _DEFS)}


def _flat(body: _Body) -> Iterator[ast.stmt]:
    """Statements that run in this scope, including those under if, try, with and loops."""
    for statement in body:
        yield statement
        if isinstance(statement, _DEFS):
            continue
        for name in ("body", "orelse", "finalbody"):
            yield from _flat(getattr(statement, name, ()))
        for handler in getattr(statement, "handlers", ()):
            yield from _flat(handler.body)


def _keeps_signature(decorator: ast.expr) -> bool:
    call = decorator.func if isinstance(decorator, ast.Call) else decorator
    return (call.attr if isinstance(call, ast.Attribute) else getattr(call, "id", "")) == "clustered"


def _is_main_guard(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.If) and any(
        isinstance(n, ast.Name) and n.id == "__name__" for n in ast.walk(statement.test))


def _nearest(name: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, list(known), n=1)
    return f"did you mean {close[0]}?" if close else ""
