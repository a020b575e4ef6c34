"""The first lines of a rank that runs Python: the same for a warm fork and for a cold interpreter.

Run by file path by any interpreter (standard library only), or called in a fork of the template. A SPEC:

    kind      function | script | module
    target    "pkg.mod:qualname", a path, or a module's name
    argv      what follows the target, for script and module
    args      keyword arguments, for a function
    root      import root of a function (sys.path[0]); null: the working directory
    result    file for the function's value as JSON
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import json
import os
import runpy
import sys
import threading
import time
import types
from collections.abc import Callable, Mapping
from typing import Any

SIGN_FD = "GANGLINE_SIGN_FD"  # descriptor that tells the keeper that user code begins
RESULT_MAX_BYTES = 1 << 20
RESULT_MAX_DEPTH = 100  # far below what the JSON on its way can take

_INFINITY = float("inf")


class NotRunnable(Exception):
    """The spec cannot be run, or its value not kept; the message says which and why."""


def run(spec: Mapping[str, Any], begin: Callable[[], None]) -> int:
    """Run the user's code as this process's main program, threads and exit hooks included; its exit code."""
    try:
        code = _exit_code_of(_RUNNERS[spec["kind"]], spec, begin)
        # As the interpreter does at its end: threads that are not daemons, then exit hooks, then output.
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
    return code


def run_forked(order: Mapping[str, Any], sign_fd: int) -> int:
    """Run a rank in this fork of the template as if a fresh interpreter had been started for it."""
    os.environ.clear()
    os.environ.update(order["env"])
    time.tzset()
    os.chdir(order["cwd"])
    _reseed()
    return run(order["boot"], lambda: _sign(sign_fd))


def main() -> int:
    """`boot.py SPEC.json`, in the environment of the rank."""
    with open(sys.argv[1], encoding="utf-8") as file:
        spec = json.load(file)
    sign_fd = int(os.environ.pop(SIGN_FD))
    return run(spec, lambda: _sign(sign_fd))


def _exit_code_of(runner: Callable[..., None], spec: Mapping[str, Any], begin: Callable[[], None]) -> int:
    try:
        runner(spec, begin)
    except SystemExit as exc:
        if exc.code is None or isinstance(exc.code, int):
            return (exc.code or 0) & 0xFF
        print(exc.code, file=sys.stderr)  # noqa: T201 - what the interpreter does with a message
        return 1
    except NotRunnable as exc:
        print(f"gangline: {exc}", file=sys.stderr)  # noqa: T201
        return 1
    except BaseException as exc:  # noqa: BLE001 - the last frame of the program
        trace = exc.__traceback__
        while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
            trace = trace.tb_next
        sys.excepthook(type(exc), exc.with_traceback(trace), trace)
        return 130 if isinstance(exc, KeyboardInterrupt) else 1
    return 0


def _run_function(spec: Mapping[str, Any], begin: Callable[[], None]) -> None:
    sys.path[0] = spec["root"] or os.getcwd()
    sys.argv = [spec["target"]]
    _fresh_main()
    begin()
    function = _resolve(spec["target"])
    value = function(**spec["args"])
    _keep_result(value, spec["target"], spec["result"])


def _run_script(spec: Mapping[str, Any], begin: Callable[[], None]) -> None:
    path = os.path.abspath(spec["target"])
    sys.path[0] = os.path.dirname(os.path.realpath(path))
    sys.argv = [spec["target"], *spec["argv"]]
    module = _fresh_main()
    module.__file__ = path
    with open(path, "rb") as file:
        source = file.read()
    begin()
    exec(compile(source, path, "exec", dont_inherit=True), module.__dict__)  # noqa: S102 - the user's program


def _run_module(spec: Mapping[str, Any], begin: Callable[[], None]) -> None:
    sys.path[0] = os.getcwd()
    sys.argv = [spec["target"], *spec["argv"]]
    _fresh_main()
    begin()
    # What the interpreter itself calls for -m: same errors, same __spec__, same argv[0].
    runpy._run_module_as_main(spec["target"])  # type: ignore[attr-defined]


_RUNNERS = {"function": _run_function, "script": _run_script, "module": _run_module}


def _fresh_main() -> types.ModuleType:
    """An empty `__main__`, as a program finds it: pickles and thread ends look there."""
    module = types.ModuleType("__main__")
    module.__dict__["__builtins__"] = sys.modules["builtins"]
    sys.modules["__main__"] = module
    importlib.invalidate_caches()
    return module


def _resolve(target: str) -> Callable[..., Any]:
    module_name, _, qualname = target.partition(":")
    value: Any = importlib.import_module(module_name)
    for part in qualname.split("."):
        if not hasattr(value, part):
            raise NotRunnable(f"module {module_name} has no {qualname}")
        value = getattr(value, part)
    if type(value).__module__.partition(".")[0] == "gangline" and callable(getattr(value, "fn", None)):
        value = value.fn  # a decorated function: here it is called, not submitted
    if not callable(value):
        raise NotRunnable(f"{target} is a {type(value).__name__}, not a function")
    return value  # type: ignore[no-any-return]


def _keep_result(value: Any, target: str, path: str) -> None:
    text = json.dumps(_plain(value, "result", target), allow_nan=False, ensure_ascii=False)
    size_bytes = len(text.encode())
    if size_bytes > RESULT_MAX_BYTES:
        raise NotRunnable(f"the result of {target} is {size_bytes} bytes of JSON, at most {RESULT_MAX_BYTES} "
                          "are kept: write larger things to a volume")
    fresh = f"{path}.tmp"
    with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(fresh, path)


def _plain(value: Any, where: str, target: str, depth: int = 0) -> Any:
    """The value as JSON types only, non-finite floats as strings; `NotRunnable` names what is not."""
    if depth > RESULT_MAX_DEPTH:
        raise NotRunnable(f"the result of {target} is nested more than {RESULT_MAX_DEPTH} deep: "
                          "flatten it, or write it to a volume")
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _plain_text(value, where, target)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return _plain_float(float(value))
    if isinstance(value, Mapping):
        return {_plain_key(key, where, target): _plain(item, f"{where}[{key!r}]", target, depth + 1)
                for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, f"{where}[{index}]", target, depth + 1) for index, item in enumerate(value)]
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    raise NotRunnable(f"the result of {target} is not JSON: {where} is a {kind}; "
                      "return numbers, strings, lists and dicts, and write anything else to a volume")


def _plain_text(value: str, where: str, target: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise NotRunnable(f"the result of {target} is not JSON: {where} holds half of a character (a lone "
                          "surrogate); decode bytes with errors='replace', or write them to a volume") from None
    return value


def _plain_float(value: float) -> float | str:
    if value != value:  # only NaN is not itself
        return "NaN"
    if value in (_INFINITY, -_INFINITY):
        return "Infinity" if value > 0 else "-Infinity"
    return value


def _plain_key(key: Any, where: str, target: str) -> str:
    if isinstance(key, str):
        return _plain_text(key, f"a key of {where}", target)
    if isinstance(key, int) and not isinstance(key, bool):
        return str(key)
    raise NotRunnable(f"the result of {target} is not JSON: a key of {where} is a {type(key).__name__}; "
                      "keys must be strings")


def _reseed() -> None:
    """Undo what forks would share and fresh processes would not; torch starts from a fixed seed anyway."""
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed()
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(1)


def _sign(fd: int) -> None:
    os.write(fd, b"1")
    os.close(fd)


if __name__ == "__main__":
    os._exit(main())
