"""torch.distributed.checkpoint into a fresh directory, hashed while it is written, and back.

`.metadata` and non-tensor entries are pickles. Ranks read them: they are their own tenant's data.
Nothing else of Gangline ever does.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gangline.model.errors import GanglineError, Rejected, Unavailable

if TYPE_CHECKING:
    from gangline.model.volume import FileEntry
    from gangline.volumes.hashing import HashingWriter


def write_dcp(state: dict[str, Any], directory: Path, rank: int, world_size: int,
              process_group: Any = None) -> list[FileEntry]:
    """Write this rank's part of `state` and return exactly the files this rank wrote, synced to disk.

    Collective over `process_group` when `world_size` > 1. Tensors that are replicas of one another are
    written once; a plain value under one key counts as the same on every rank. The directory must
    hold no checkpoint yet.
    """
    import torch.distributed.checkpoint as dcp

    from gangline.volumes.layout import sync_directory

    check_group(rank, world_size, process_group)
    # Our files sync themselves on close, also the metadata, which torch syncs before it is flushed.
    writer = dcp.FileSystemWriter(directory, sync_files=False, overwrite=False)
    files = _HashedFiles()
    writer.fs = files
    with _plain_errors("the checkpoint was not written"), _without_crc32():
        dcp.save(state, storage_writer=writer, process_group=process_group, no_dist=world_size == 1)
    sync_directory(directory)
    return files.entries()


@contextmanager
def _without_crc32() -> Iterator[None]:
    """torch sums every byte into a CRC-32; our SHA-256 of the same bytes makes that needless."""
    from torch.serialization import get_crc32_options, set_crc32_options

    before = get_crc32_options()
    set_crc32_options(False)
    try:
        yield
    finally:
        set_crc32_options(before)


def read_dcp(state: dict[str, Any], directory: Path, process_group: Any = None) -> None:
    """Fill `state` in place from a checkpoint; it may have been written by another number of ranks.

    Tensors are loaded into those of `state`, other values replaced. Keys that only the checkpoint has
    are left there, but an empty dict in `state` (or an empty `state`) takes all the checkpoint holds
    at its place: a new optimizer has its moments to receive. Collective when torch.distributed runs.

    Raises:
        Rejected: the checkpoint lacks a key of `state`, or a shape differs.
    """
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp

    planner = _filling_planner()
    with _plain_errors("the version does not fit this state"):
        dcp.load(state, storage_reader=dcp.FileSystemReader(directory), planner=planner,
                 process_group=process_group, no_dist=not (dist.is_available() and dist.is_initialized()))
    if not state:  # torch copies back only the keys it was given
        state.update(planner.original_state_dict)


class _HashedFiles:
    """The file system torch writes through: new files only, each known by size and SHA-256."""

    def __init__(self) -> None:
        self._written: dict[str, HashingWriter] = {}

    def entries(self) -> list[FileEntry]:
        return [writer.entry(name) for name, writer in sorted(self._written.items())]

    @contextmanager
    def create_stream(self, path: str | os.PathLike[str], mode: str) -> Iterator[HashingWriter]:
        from gangline.volumes.hashing import HashingWriter

        if mode != "wb":
            raise ValueError(f"mode {mode!r}: a save only writes")
        target = Path(path)
        with HashingWriter(target) as stream:
            yield stream
        self._written[target.name] = stream

    def rename(self, path: str | os.PathLike[str], new_path: str | os.PathLike[str]) -> None:
        os.rename(path, new_path)
        self._written[Path(new_path).name] = self._written.pop(Path(path).name)

    def init_path(self, path: str | os.PathLike[str]) -> Path:
        return Path(path)

    def concat_path(self, path: str | os.PathLike[str], suffix: str) -> Path:
        return Path(path) / suffix

    def mkdir(self, path: str | os.PathLike[str]) -> None:
        Path(path).mkdir(parents=True, exist_ok=True)

    def exists(self, path: str | os.PathLike[str]) -> bool:
        return Path(path).exists()

    def rm_file(self, path: str | os.PathLike[str]) -> None:
        raise FileExistsError(f"{path} is there already; a version is written once")


def _filling_planner() -> Any:
    """A load planner that fills empty dicts and keeps the integer keys of optimizer states."""
    import torch
    from torch.distributed.checkpoint import DefaultLoadPlanner
    from torch.distributed.checkpoint.metadata import TensorStorageMetadata

    class FillingPlanner(DefaultLoadPlanner):  # type: ignore[misc]
        def set_up_planner(self, state_dict: Any, metadata: Any = None, is_coordinator: bool = False) -> None:
            paths = (metadata.planner_data or {}) if metadata is not None else {}
            empty = list(_empty_places(state_dict, ()))
            for name, saved in metadata.state_dict_metadata.items() if metadata is not None else ():
                path = paths.get(name)
                if path is None or not any(path[:len(place)] == place for place in empty):
                    continue
                value = torch.empty(saved.size, dtype=saved.properties.dtype) \
                    if isinstance(saved, TensorStorageMetadata) else None
                _put(state_dict, path, value)
            super().set_up_planner(state_dict, metadata, is_coordinator)

        def load_bytes(self, read_item: Any, value: Any) -> None:
            # Our own tenant's pickle; see the head of this module.
            loaded = torch.load(value, weights_only=False)
            _put(self.original_state_dict, self.mappings[read_item.dest_index.fqn], loaded)

    return FillingPlanner()


def _empty_places(value: Any, path: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    if isinstance(value, Mapping):
        if not value:
            yield path
        for key, item in value.items():
            yield from _empty_places(item, (*path, str(key)))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _empty_places(item, (*path, index))


def _put(top: MutableMapping[Any, Any], path: tuple[str | int, ...], value: Any) -> None:
    """Set the value at a path of torch's, in which keys of dicts are text and indices of lists are not."""
    place: Any = top
    for part, below in zip(path, (*path[1:], None), strict=True):
        key: Any = part if isinstance(place, list) else _real_key(place, part)
        if isinstance(place, list):
            place.extend([None] * (key + 1 - len(place)))
        if below is None:
            place[key] = value
            return
        if place[key] is None if isinstance(place, list) else key not in place:
            place[key] = [] if isinstance(below, int) else {}
        place = place[key]


def _real_key(place: Mapping[Any, Any], part: str | int) -> Any:
    """The key a dict knows this part by; optimizers number their parameters with integers."""
    if part in place or not str(part).isdigit():
        return part
    return int(part) if all(isinstance(key, int) for key in place) else part


def check_group(rank: int, world_size: int, process_group: Any = None) -> None:
    """Raise `Rejected` unless the process group is the gang: the same rank of as many."""
    import torch.distributed as dist

    if world_size == 1:
        return
    if not (dist.is_available() and dist.is_initialized()):
        raise Rejected(f"{world_size} ranks hold tensors but torch.distributed is not initialised",
                       field="state", fix="call torch.distributed.init_process_group() before saving")
    here = (dist.get_rank(process_group), dist.get_world_size(process_group))
    if here != (rank, world_size):
        raise Rejected(f"torch.distributed says rank {here[0]} of {here[1]}, the gang says {rank} of "
                       f"{world_size}", field="state", fix="save with every rank of the gang in one group")


@contextmanager
def _plain_errors(what: str) -> Iterator[None]:
    """torch's collected failures of all ranks as one error of ours, on every rank."""
    from torch.distributed.checkpoint.api import CheckpointException

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")
        try:
            yield
        except CheckpointException as exc:  # derives from BaseException: it must not pass user code unseen
            rank, (cause, _) = min(exc.failures.items(), key=lambda item: item[0])
            if isinstance(cause, GanglineError | KeyboardInterrupt | SystemExit):
                raise cause from exc
            kind = Unavailable if isinstance(cause, OSError) else Rejected
            raise kind(f"{what}: rank {rank}: {cause}") from exc
