"""`@clustered`: a function that can run as a gang, and still be called as a function."""

from __future__ import annotations

import atexit
import functools
import inspect
import json
import os
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypedDict, TypeVar, Unpack, cast, overload

from gangline.client.run import Run, failed
from gangline.client.submission import Origin, Prepared, build_spec, prepare_many, submit
from gangline.model.errors import Rejected
from gangline.model.gang import GangView
from gangline.model.spec import GangSpec
from gangline.model.states import GangState

if TYPE_CHECKING:
    from gangline.client.http import Client

P = ParamSpec("P")
R = TypeVar("R")


class GangOptions(TypedDict, total=False):
    """The fields of `GangSpec` that go with a function, written as in a spec file."""

    name: str
    size: int | str
    gpu: str | list[str] | tuple[str, ...]
    ranks_per_node: int
    rdma: bool
    volumes: Mapping[str, str | Mapping[str, str]]
    timeout: str | float
    grace: str | float
    env: Mapping[str, str]
    secrets: list[str] | tuple[str, ...]
    buckets: Mapping[str, str]
    retries: Mapping[str, int | str]
    priority: int | str
    tenant: str
    labels: Mapping[str, str]
    placement: Mapping[str, Any]
    workdir: str
    interpreter: str
    image: str
    domain_size: int
    orphan_after: str | float
    on_orphan: str


class Clustered(Generic[P, R]):
    """A function with the gang it runs as. Calling it runs it here, as if it were not decorated.

    Arguments are bound by the function's signature and must be plain JSON values.
    """

    def __init__(self, fn: Callable[P, R], options: GangOptions, *, slot: str | None = None,
                 epoch: int = 0) -> None:
        functools.update_wrapper(self, fn)
        self.fn = fn
        self.gang_options = options
        self._slot = slot
        self._epoch = epoch
        _refuse_method(fn)
        _check_options(options)

    def __repr__(self) -> str:
        return f"<clustered {self.fn.__module__}.{self.fn.__qualname__}>"

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.fn(*args, **kwargs)

    def local(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """The function's value, computed here."""
        return self.fn(*args, **kwargs)

    def spec(self, *args: P.args, **kwargs: P.kwargs) -> GangSpec:
        """The gang a submission with these arguments would ask for.

        Raises:
            Rejected: as `submit` does.
        """
        return build_spec(self, _bind(self.fn, args, kwargs))

    def submit(self, *args: P.args, **kwargs: P.kwargs) -> Run:
        """Hand the gang to the server; returns at once.

        Raises:
            Rejected: an argument, an option or the function itself cannot be used; nothing is stored.
            Unavailable: no server answers.
        """
        return self._submit([_bind(self.fn, args, kwargs)])[0]

    def remote(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Rank 0's value, once the gang has run.

        Raises:
            GangFailed: it ended without success.
            Rejected: as `submit` does.
        """
        return cast(R, self.submit(*args, **kwargs).result())

    def map(self, items: Iterable[Any], /, **shared: Any) -> list[R]:
        """The values for every item as the first argument, in order, each from a gang of its own.

        All gangs are submitted in one transaction. `shared` arguments go to each of them.

        Raises:
            GangFailed: at least one ended without success; the others were waited for.
            Rejected: as `submit` does.
        """
        runs = self._submit([_bind(self.fn, (item,), shared) for item in items])
        views = [run.wait() for run in runs]
        return cast("list[R]", _results(views))

    def options(self, *, slot: str | None = None, epoch: int | None = None,
                **changes: Unpack[GangOptions]) -> Clustered[P, R]:
        """The same function with some options changed.

        `slot` and `epoch` name the pipeline step a submission belongs to: submitting the same work again
        in the same slot and epoch finds the gang that is there.
        """
        merged = cast(GangOptions, {**self.gang_options, **changes})
        return Clustered(self.fn, merged, slot=self._slot if slot is None else slot,
                         epoch=self._epoch if epoch is None else epoch)

    def prepare(self, each: Iterable[Mapping[str, Any]]) -> list[Prepared]:
        """What submitting every set of named arguments would send, in order."""
        return prepare_many(self, list(each),
                            origin=Origin(slot=self._slot, epoch=self._epoch, watched=False))

    def _submit(self, each: list[dict[str, Any]]) -> list[Run]:
        prepared = self.prepare(each)
        if not prepared:
            return []
        client = _shared_client()
        return [Run(client, ensured) for ensured in submit(client, prepared)]


@overload
def clustered(fn: Callable[P, R], /) -> Clustered[P, R]: ...
@overload
def clustered(**options: Unpack[GangOptions]) -> Callable[[Callable[P, R]], Clustered[P, R]]: ...
def clustered(fn: Callable[..., Any] | None = None, /, **options: Unpack[GangOptions]) -> Any:
    """Make a module-level function one that can run as a gang.

    Options are the fields of a gang's spec: `@clustered(size=4, gpu="H100:8", rdma=True,
    volumes={"/ckpt": "sft"}, timeout="6h")`. The function runs once per rank; rank 0's value is the result.

    Raises:
        Rejected: an option is wrong, or the function is a method.
    """
    if fn is not None:
        return Clustered(fn, options)
    return lambda function: Clustered(function, options)


def _results(views: list[GangView]) -> list[Any]:
    bad = [view for view in views if view.state is not GangState.SUCCEEDED]
    if not bad:
        return [view.result for view in views]
    error = failed(bad[0])
    if len(views) > 1:
        error.message = f"{len(bad)} of {len(views)} gangs failed; the first: {error.message}"
    raise error


def _refuse_method(fn: Callable[..., Any]) -> None:
    qualname: str = getattr(fn, "__qualname__", repr(fn))
    container, _, name = qualname.rpartition(".")
    if isinstance(fn, staticmethod | classmethod) or not ("." + container).endswith((".", ".<locals>")):
        raise Rejected(f"{name} is a method; a gang runs plain functions",
                       fix=f"move {name} out of its class")
    if isinstance(fn, Clustered):
        raise Rejected(f"{name} is clustered already", fix="use .options(...) to change it")
    if not callable(fn) or isinstance(fn, type):
        raise Rejected(f"{fn!r} is not a function", fix="decorate a function")


def _check_options(options: Mapping[str, Any]) -> None:
    for field in ("function", "command", "args", "roles"):
        if field in options:
            raise Rejected("is not an option of a clustered function", field=field,
                           fix="write a spec file for it")
    GangSpec.parse({"name": "gang", "function": "module:function", **options}).refuse_unsupported()


def _bind(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """All arguments by name, as plain JSON values."""
    try:
        bound = inspect.signature(fn).bind(*args, **kwargs)
    except TypeError as exc:
        raise Rejected(f"{fn.__name__}: {exc}", field="args") from None
    named: dict[str, Any] = {}
    for name, value in bound.arguments.items():
        kind = inspect.signature(fn).parameters[name].kind
        if kind is inspect.Parameter.VAR_KEYWORD:
            named.update(value)
        elif kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.POSITIONAL_ONLY):
            raise Rejected(f"{fn.__name__} takes {name!r} by position only; a gang's arguments go by name",
                           field=f"args.{name}", fix="name the arguments in the signature")
        else:
            named[name] = value
    return {name: _plain(value, f"args.{name}") for name, value in named.items()}


def _plain(value: Any, field: str) -> Any:
    """The value as ranks will see it; Rejected, naming where, when JSON would lose or change it."""
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise Rejected(f"the key {key!r} is not text, which JSON needs", field=field,
                               fix="use text keys")
        return {key: _plain(item, f"{field}.{key}") for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, f"{field}.{i}") for i, item in enumerate(value)]
    try:
        return json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError):
        what = f"{value!r:.60}" if isinstance(value, float) else f"a {type(value).__name__}"
        raise Rejected(f"{what} is not JSON", field=field,
                       fix="pass numbers, text, lists and mappings; larger things through a volume") from None


_clients: dict[tuple[int, str, str], Client] = {}
_clients_lock = threading.Lock()


def _shared_client() -> Client:
    """One client per process and server; a forked child makes its own."""
    from gangline.client import connect  # an HTTP library, which a rank's import must not pay for

    key = (os.getpid(), os.environ.get("GANGLINE_URL", ""), os.environ.get("GANGLINE_HOME", ""))
    with _clients_lock:
        if key not in _clients:
            _clients[key] = connect()
            atexit.register(_clients[key].close)
        return _clients[key]
