"""From what a user wrote to what a server takes: a checked spec, and the archive of its code."""

from __future__ import annotations

import os
import re
import sys
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gangline.client.address import home_dir
from gangline.client.code import Code, locate
from gangline.client.snapshot import Snapshot, take_snapshot
from gangline.client.source import read_source
from gangline.model.errors import Bug, Rejected
from gangline.model.gang import Ensured, Submission
from gangline.model.spec import GangSpec, OnOrphan

if TYPE_CHECKING:
    from gangline.client.http import Client

Target = Callable[..., Any] | str | GangSpec | Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where a request comes from.

    `slot` and `epoch` are those of the pipeline step; without a slot every submission is a new one.
    `watched` says that the submitter means to watch until the end, so that a gang it has forgotten
    may be ended; it takes a slot. A relative `workdir` is taken from `base`. `search` lists
    directories to find modules in before the interpreter's own path. `home` holds the cache of archives.
    """

    slot: str | None = None
    epoch: int = 0
    watched: bool = True
    base: Path | None = None
    search: tuple[Path, ...] = ()
    home: Path | None = None


@dataclass(frozen=True, slots=True)
class Prepared:
    """A submission, and the archive to upload before it if the server lacks it."""

    submission: Submission
    archive: Path | None


def prepare(target: Target, args: Mapping[str, Any] | None = None, *,
            options: Mapping[str, Any] | None = None, origin: Origin | None = None) -> Prepared:
    """A target ready for `submit`.

    `target` is a function (clustered or not), text "package.module:function", a `GangSpec` or its plain
    form. `options` are fields of `GangSpec` that override what the target says itself; `args` are the
    function's arguments, added to those of a spec.

    Raises:
        Rejected: naming the field, what is wrong with it and what to do.
    """
    return prepare_many(target, [args or {}], options=options, origin=origin)[0]


def prepare_many(target: Target, each: Sequence[Mapping[str, Any]], *,
                 options: Mapping[str, Any] | None = None, origin: Origin | None = None) -> list[Prepared]:
    """One `Prepared` for every set of arguments, in order, sharing one archive.

    With more than one the slots are `slot#0`, `slot#1`, …

    Raises:
        Rejected: as `prepare` does.
    """
    origin = origin or Origin()
    specs = [build_spec(target, args, options=options, origin=origin) for args in each]
    if not specs:
        return []
    snapshot = _snapshot(target, specs[0], origin)
    base = origin.slot or f"cli/{specs[0].name}/{uuid.uuid4().hex}"
    slots = [base] if len(specs) == 1 else [f"{base}#{i}" for i in range(len(specs))]
    return [Prepared(_submission(slot, spec, snapshot, origin), snapshot.archive if snapshot else None)
            for slot, spec in zip(slots, specs, strict=True)]


def build_spec(target: Target, args: Mapping[str, Any], *, options: Mapping[str, Any] | None = None,
               origin: Origin | None = None) -> GangSpec:
    """The checked spec alone, without reading the code it will run beyond its names.

    Raises:
        Rejected: as `prepare` does.
    """
    written = _written(target, options or {}, origin or Origin())
    written.update(options or {})
    if args:
        written["args"] = {**_mapping(written.get("args", {}), "args"), **args}
    spec = GangSpec.parse(written)
    spec.refuse_unsupported()
    return spec


def submit(client: Client, prepared: Sequence[Prepared]) -> list[Ensured]:
    """Upload what the server lacks, then ensure every gang in one transaction, in order.

    Raises:
        Rejected: the server refuses a spec; nothing is stored.
        Conflict: a slot is taken by other work, or a newer epoch of it.
        Unavailable: no server answers.
    """
    for sha256, archive in {p.submission.snapshot: p.archive for p in prepared}.items():
        if sha256 is not None and archive is not None and not client.has_blob(sha256):
            client.put_blob(sha256, archive)
    ensured = client.ensure_many([p.submission for p in prepared])
    if len(ensured) != len(prepared):
        raise Bug(f"the server answered {len(ensured)} gangs for {len(prepared)} submissions")
    return ensured


def default_name(text: str) -> str:
    """A gang's name made from a function's or file's: what is not allowed in names becomes "-"."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("._-")[:63].strip("._-")
    return name or "gang"


def _written(target: Target, options: Mapping[str, Any], origin: Origin) -> dict[str, Any]:
    """The fields a target says itself, as a user would write them."""
    if isinstance(target, GangSpec):
        return target.wire()
    if isinstance(target, Mapping):
        return dict(target)
    if isinstance(target, str):
        name = target.rpartition(":")[2]
        code = _found(target, origin.search, "function")
        source = None if code.file is None or code.file.suffix != ".py" else read_source(code.file)
        own = source.clustered_options(name, options) if source else {}
        return {"name": default_name(name), **own, "function": target}
    own = dict(getattr(target, "gang_options", {}))
    code = locate(getattr(target, "fn", target))
    return {"name": default_name(code.reference.rpartition(":")[2]), **own, "function": code.reference}


def _snapshot(target: Target, spec: GangSpec, origin: Origin) -> Snapshot | None:
    workdir = _workdir(spec, origin)
    codes = _codes(target, spec, origin, workdir)
    if workdir is None:
        roots = {code.root for code in codes if code.root is not None}
        if len(roots) > 1:
            raise Rejected(f"the roles' functions live in {len(roots)} directories: "
                           f"{', '.join(sorted(map(str, roots)))}",
                           field="workdir", fix="name the one directory that holds them all")
        workdir = roots.pop() if roots else None
    if workdir is None:
        return None
    home = home_dir(origin.home, os.environ).resolve()
    cache = home / "cache" / "snapshots"
    needed = [code.file for code in codes if code.file is not None]
    try:
        return take_snapshot(workdir, cache, needed, without=home)
    except OSError as exc:
        raise Rejected(f"cannot keep the code's archive in {cache}: {exc.strerror}",
                       fix="set GANGLINE_HOME to a directory you can write, with space left") from None


def _codes(target: Target, spec: GangSpec, origin: Origin, workdir: Path | None) -> list[Code]:
    if callable(target):
        found = locate(getattr(target, "fn", target))
        return [_inside(found, workdir)]
    search = (workdir, *origin.search) if workdir else origin.search
    codes = []
    for label, part in spec.parts():
        if part.function is None:
            continue
        found = _found(part.function, search, f"{label.replace(': ', '.')}function")
        if found.file is not None and found.file.suffix == ".py":
            read_source(found.file).check_call(part.function.partition(":")[2], part.args)
        codes.append(_inside(found, workdir))
    return codes


def _found(text: str, search: Sequence[Path], field: str) -> Code:
    try:
        return locate(text, search)
    except Rejected as error:
        error.field = error.field or field
        raise


def _inside(code: Code, workdir: Path | None) -> Code:
    if workdir is not None and code.root is not None and code.root != workdir:
        raise Rejected(f"{code.reference} is imported from {code.root}, not from {workdir}",
                       field="workdir", fix="leave workdir out, or name the directory of the import")
    return code


def _workdir(spec: GangSpec, origin: Origin) -> Path | None:
    if spec.workdir is None:
        return None
    path = Path(spec.workdir).expanduser()
    if not path.is_absolute():
        if origin.base is None:
            raise Rejected(f"{spec.workdir!r} is relative, and there is no file it could be relative to",
                           field="workdir", fix="write an absolute path")
        path = origin.base / path
    if not path.is_dir():
        raise Rejected(f"{path} is not a directory", field="workdir")
    return path.resolve()


def _submission(slot: str, spec: GangSpec, snapshot: Snapshot | None, origin: Origin) -> Submission:
    changes: dict[str, Any] = {}
    if spec.workdir is not None:
        changes["workdir"] = "."  # the archive's root: where it lay here is no part of the work's identity
    if spec.on_orphan is None and (origin.slot is None or not origin.watched):
        changes["on_orphan"] = OnOrphan.KEEP
    return Submission(slot=slot, epoch=origin.epoch, spec=spec.model_copy(update=changes),
                      snapshot=snapshot.sha256 if snapshot else None, interpreter=sys.executable or None)


def _mapping(value: object, field: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise Rejected("expected names and values", field=field, fix="write {name: value}")
    return value
