"""Saving and loading the state of a training run, with every rank, as a version of a volume."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, SupportsFloat

from gangline.model.errors import Conflict, GanglineError, Rejected
from gangline.runtime.dcp import check_group, read_dcp, write_dcp
from gangline.runtime.group import group_size
from gangline.runtime.info import ClusterInfo, cluster_info, membership
from gangline.runtime.saves import PUBLISH_TIMEOUT_S, Save, Written, begin, describe, published, report
from gangline.runtime.versions import find_version

if TYPE_CHECKING:
    from collections.abc import Callable

    from gangline.model.gang import VersionRef
    from gangline.model.volume import FileEntry

__all__ = ["load_checkpoint", "read_dcp", "read_json", "save_checkpoint", "write_dcp", "write_json"]

DCP = "dcp"
JSON = "json"


def save_checkpoint(state: dict[str, Any], *, step: int, metrics: Mapping[str, SupportsFloat] | None = None,
                    mount: str | None = None, extra: Mapping[str, Any] | None = None,
                    timeout_s: float = PUBLISH_TIMEOUT_S) -> VersionRef:
    """Write `state` as a new version and return it once it is published, the same on every rank.

    Collective: every rank of the gang calls it, with the same `step`. With torch (a process group, or
    tensors in `state`) the format is that of torch.distributed.checkpoint: sharded tensors are written
    by their ranks, replicated ones once; modules and optimizers may be given as they are. Other state
    must be JSON and is kept per rank. The version exists whole or not at all, whatever dies meanwhile.

    Args:
        step: names the save; each attempt saves a step once per mount.
        metrics: numbers kept with the version, such as the loss.
        mount: where the volume is mounted; not needed when the gang has one.
        extra: JSON kept in the manifest, such as the position in the data.
        timeout_s: how long to wait for the other ranks after this one has written.

    Raises:
        Rejected: a step saved twice, an unknown mount, or state that cannot be written.
        Unavailable: the disk or a rank failed; the message names the ranks that are missing.
    """
    info = cluster_info()
    uses_torch = _uses_torch(state)
    _check_world(info)
    about: dict[str, Any] = {"world_size": info.world_size}
    # Refuse before the save is opened: an open save that is never written fails the attempt.
    if uses_torch:
        check_group(info.rank, info.world_size)
        about["torch"] = sys.modules["torch"].__version__
    else:
        encode_json(state)
    kept_metrics, kept_extra = describe(metrics, extra, **about)
    save = _together(lambda: begin(mount, f"step-{step}", step, one_group=uses_torch))
    files = (write_dcp(state, save.path, info.rank, info.world_size) if uses_torch
             else write_json(state, save.path, info.rank))
    files, speaks = _files_to_report(files, info)
    written = Written(files=files, format=DCP if uses_torch else JSON, metrics=kept_metrics, extra=kept_extra)

    def tell() -> Save:
        if speaks:
            report(save, written)
        return save

    _together(tell)
    return published(save, written, timeout_s)


def load_checkpoint(state: dict[str, Any], *, mount: str | None = None,
                    version: int | None = None) -> int | None:
    """Fill `state` in place from the version to resume from; its step, or None if there is none.

    The version was verified before the ranks started. It may have been written by another number of
    ranks (JSON state may not). Keys only the version has are left out, but an empty dict in `state`,
    or an empty `state`, takes all the version holds at its place, whole and on the CPU: so a new
    optimizer receives its moments. (Of a sharded optimizer build the state first, with torch's
    get_optimizer_state_dict, or every rank loads all of it.) Collective with torch.distributed.

    Args:
        version: in a gang only the one it resumes from; mount another with `from:` in the spec.

    Raises:
        Rejected: the version does not fit `state`, or is one of plain files.
    """
    found = find_version(mount, version)
    if found is None:
        return None
    path, manifest = found
    match manifest.format:
        case "dcp":
            read_dcp(state, path)
        case "json":
            read_json(state, path, cluster_info().rank)
        case other:
            raise Rejected(f"the version holds {other}, not a checkpoint", field="mount",
                           fix="read its files beneath resume_path()")
    return manifest.step


def write_json(state: Mapping[str, Any], directory: Path, rank: int) -> list[FileEntry]:
    """Write this rank's state as rank-<rank>.json, synced; `Rejected` names the key that is not JSON."""
    from gangline.volumes.hashing import HashingWriter
    from gangline.volumes.layout import sync_directory

    data = encode_json(state)
    name = f"rank-{rank}.json"
    with HashingWriter(directory / name) as file:
        file.write(data)
    sync_directory(directory)
    return [file.entry(name)]


def encode_json(state: Mapping[str, Any]) -> bytes:
    """`state` as JSON; `Rejected` names the key that is not."""
    for key, value in state.items():
        try:
            json.dumps(value, allow_nan=False)
        except (TypeError, ValueError) as exc:
            raise Rejected(f"{key!r} is neither a torch tensor nor JSON: {exc}", field="state",
                           fix="use new_version() for files of your own") from None
    return json.dumps(dict(state), allow_nan=False).encode()


def read_json(state: dict[str, Any], directory: Path, rank: int) -> None:
    """Fill `state` from this rank's JSON; `Rejected` when the rank or a key of `state` is not there."""
    try:
        saved = json.loads((directory / f"rank-{rank}.json").read_text())
    except FileNotFoundError:
        raise Rejected(f"the version has no state of rank {rank}: it was written by fewer ranks, and JSON "
                       "state is not redistributed", field="state") from None
    if lacking := sorted(set(state) - set(saved)):
        raise Rejected(f"the version does not fit this state: it has no {lacking[0]!r}", field="state")
    for key in list(state) or list(saved):
        state[key] = saved[key]


def _files_to_report(files: list[FileEntry], info: ClusterInfo) -> tuple[list[FileEntry], bool]:
    """What this process reports and whether it does: below a launcher one worker speaks for its node."""
    member = membership()
    if member is None or not member.below_launcher:
        return files, True
    import torch.distributed as dist

    from gangline.model.volume import FileEntry

    everyone: list[Any] = [None] * info.world_size
    dist.all_gather_object(everyone, (info.node_rank, [f.full() for f in files]))
    here = [FileEntry.parse(f) for node, listed in everyone for f in listed if node == info.node_rank]
    return here, info.local_rank == 0


def _uses_torch(state: Mapping[str, Any]) -> bool:
    # Not imported means no tensors: a pipeline without torch must not pay for importing it.
    torch = sys.modules.get("torch")
    if torch is None:
        return False
    return group_size() is not None or _holds_torch(state, torch)


def _holds_torch(value: Any, torch: Any) -> bool:
    if isinstance(value, torch.Tensor) or hasattr(value, "load_state_dict"):
        return True
    items = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    return any(_holds_torch(item, torch) for item in items)


def _check_world(info: ClusterInfo) -> None:
    group = group_size()
    if group is not None and group != info.world_size:
        where = f"the gang has {info.world_size}" if info.gang else "outside a gang a save has 1"
        raise Rejected(f"torch.distributed has {group} ranks, {where}", field="state",
                       fix="save with every rank of a gang, in one process group")


def _together(work: Callable[[], Save]) -> Save:
    """Do it on every rank, and fail on every rank when it fails on one, so that none waits in vain.

    Without a process group each rank stands alone and the wait for publication is what is bounded.
    """
    if group_size() in (None, 1):
        return work()
    import torch.distributed as dist

    save, error = None, None
    try:
        save = work()
    except GanglineError as exc:
        error = exc
    mine = {"error": error.to_wire() if error else None, "directory": save.directory if save else None}
    everyone: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, mine)
    if error is not None:
        raise error
    for rank, outcome in enumerate(everyone):
        if outcome["error"] is not None:
            raise Conflict(f"rank {rank} failed: {GanglineError.from_wire(outcome['error'])}", field="save")
    assert save is not None
    if len(directories := {outcome["directory"] for outcome in everyone}) > 1:
        raise Rejected(f"the ranks save different versions: {len(directories)} directories", field="step",
                       fix="call save_checkpoint on every rank with the same step and mount")
    return save
