"""One save from fresh directory to published version, in a gang or on this machine alone.

    begin       every rank asks for the directory; all ranks of the attempt get the same fresh one
    report      every rank tells which files it has written; the last report publishes
    published   every rank waits for the same version
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, SupportsFloat

from gangline.model.errors import Conflict, GanglineError, NotFound, Rejected, Unavailable
from gangline.runtime import local
from gangline.runtime.info import Membership, MountInfo, cluster_info, membership
from gangline.runtime.link import Link, supervisor
from gangline.runtime.progress import split_metrics

if TYPE_CHECKING:
    from gangline.model.gang import VersionRef
    from gangline.model.orders import SaveState
    from gangline.model.volume import FileEntry

PUBLISH_TIMEOUT_S = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Save:
    """A save that was begun: where to write. `number` is None outside a gang."""

    volume: str
    number: int | None
    root: Path
    directory: str
    path: Path
    step: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What one rank has written into a save, and what the version shall say of itself."""

    files: Sequence[FileEntry]
    format: str
    metrics: dict[str, float]
    extra: dict[str, Any]


def describe(metrics: Mapping[str, SupportsFloat] | None, extra: Mapping[str, Any] | None,
             **about: Any) -> tuple[dict[str, float], dict[str, Any]]:
    """Metrics and extra as a manifest keeps them; `Rejected` if `extra` is not JSON.

    Metrics that are not finite cannot be compared; they go as text into extra, not lost and not in the way.
    """
    finite, odd = split_metrics(dict(metrics or {}))
    kept = {**about, **(extra or {}), **({"non_finite_metrics": odd} if odd else {})}
    try:
        json.dumps(kept, allow_nan=False)
    except (TypeError, ValueError) as exc:
        raise Rejected(f"is not JSON: {exc}", field="extra", fix="keep larger things in the state") from None
    return finite, kept


def pick_mount(mount: str | None) -> tuple[str, MountInfo]:
    """The mount asked for, or the only one; `Rejected` names those there are."""
    mounts = cluster_info().volumes
    if mount is None and len(mounts) == 1:
        mount = next(iter(mounts))
    if mount in mounts:
        assert mount is not None
        return mount, mounts[mount]
    there = ", ".join(sorted(mounts)) or "none"
    if mount is None:
        raise Rejected(f"which volume? the gang mounts {there}", field="mount",
                       fix="name one of them" if mounts else "add volumes: {/ckpt: NAME} to the spec")
    raise Rejected(f"{mount!r} is not mounted; the gang mounts {there}", field="mount")


def begin(mount: str | None, key: str, step: int | None, *, one_group: bool = False) -> Save:
    """The fresh directory of this save, made; `Rejected` when the attempt already has one of this key.

    `one_group` says that a process group spans everyone who writes, so that workers below a launcher
    of the user's can be spoken for by one of them per node.
    """
    member, link = membership(), supervisor()
    if member is None or link is None:
        return _save(local.begin(mount), None, step)
    _check_launcher(member, one_group)
    name, info = pick_mount(mount)
    _claim_key(member, name, key)
    try:
        reply = link.request("open_save", mount=name, key=key, step=step)
        opened = (info.volume, Path(reply.get("root") or info.root), str(reply["directory"]))
        return _save(opened, int(reply["save"]), step)
    except GanglineError:
        _release_key(member, name, key)
        raise


def report(save: Save, written: Written) -> None:
    """Tell the supervisor that this rank's files are on disk. Nothing to tell outside a gang."""
    if save.number is None or (link := supervisor()) is None:
        return
    reply = link.request("report_save", save=save.number, files=[f.full() for f in written.files],
                         format=written.format, metrics=written.metrics, extra=written.extra)
    _refuse_failed(_state(reply))


def published(save: Save, written: Written, timeout_s: float) -> VersionRef:
    """The version this save became, once every rank has reported.

    Raises:
        Unavailable: not published within `timeout_s`; the message names the ranks still missing.
        Conflict: the save was given up; the message says why.
    """
    from gangline.model.gang import VersionRef

    link = supervisor()
    if save.number is None or link is None:
        return local.publish(save.volume, save.root, save.directory, step=save.step, files=written.files,
                             format=written.format, metrics=written.metrics, extra=written.extra)
    version = _await_version(link, save.number, timeout_s)
    return VersionRef(volume=save.volume, version=version, step=save.step, metrics=written.metrics,
                      manifest_sha256=_identity(save))


def _await_version(link: Link, number: int, timeout_s: float) -> int:
    give_up = time.monotonic() + timeout_s
    pause_s = 0.01
    while True:
        asked = time.monotonic()
        state = _state(link.request("save_state", save=number))
        if state.published is not None:
            return state.published
        _refuse_failed(state)
        now = time.monotonic()
        if now >= give_up:
            ranks = ", ".join(map(str, state.missing_ranks)) or "none"
            raise Unavailable(f"the version was not published within {timeout_s:g} s; "
                              f"ranks that have not reported: {ranks}", field="save",
                              fix="every rank of the gang must make the same save")
        # A supervisor that holds the question sets the pace itself.
        if now - asked < 1.0:
            time.sleep(min(pause_s, give_up - now))
            pause_s = min(2 * pause_s, 1.0)


def _state(reply: Mapping[str, Any]) -> SaveState:
    from gangline.model.orders import SaveState

    return SaveState.parse({k: v for k, v in reply.items() if k != "ok"}, where="save_state")


def _refuse_failed(state: SaveState) -> None:
    if state.error is not None and state.published is None:
        raise Conflict(f"the version was not published: {state.error}", field="save")


def _identity(save: Save) -> str:
    from gangline.volumes.publish import manifest_sha256, read_manifest_text

    try:
        return manifest_sha256(read_manifest_text(save.root, save.directory))
    except (NotFound, Unavailable):
        return ""  # a network file system may show the manifest a little later


def _save(opened: tuple[str, Path, str], number: int | None, step: int | None) -> Save:
    from gangline.volumes.layout import make_version

    volume, root, directory = opened
    try:
        path = make_version(root, directory)
    except OSError as exc:
        raise Unavailable(f"cannot make {root}/{directory}: {exc.strerror or exc}") from exc
    return Save(volume=volume, number=number, root=root, directory=directory, path=path, step=step)


def _check_launcher(member: Membership, one_group: bool) -> None:
    if not member.below_launcher:
        return
    if not one_group or member.ranks_here != 1:
        raise Rejected(f"this process is one of {cluster_info().world_size}, but the gang has "
                       f"{member.world_size} ranks: it was started by a launcher below Gangline",
                       field="ranks_per_node", fix="let Gangline start the ranks instead of torchrun, or "
                       "with torchrun set ranks_per_node: 1 and save tensors after init_process_group()")


_keys: set[tuple[str, int, str, str]] = set()
_keys_lock = threading.Lock()


def _claim_key(member: Membership, mount: str, key: str) -> None:
    claim = (member.token, cluster_info().rank, mount, key)
    with _keys_lock:
        if claim in _keys:
            raise Rejected(f"this attempt has already saved {key} to {mount}", field="step",
                           fix="give every save of an attempt its own step")
        _keys.add(claim)


def _release_key(member: Membership, mount: str, key: str) -> None:
    with _keys_lock:
        _keys.discard((member.token, cluster_info().rank, mount, key))
