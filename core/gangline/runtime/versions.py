"""Versions of plain files: writing one, and the path to read one from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, SupportsFloat

from gangline.model.errors import Rejected, Unavailable
from gangline.runtime import local
from gangline.runtime.info import MountInfo, cluster_info
from gangline.runtime.saves import PUBLISH_TIMEOUT_S, Written, begin, describe, pick_mount, published, report

if TYPE_CHECKING:
    from gangline.model.gang import VersionRef
    from gangline.model.volume import Manifest

FILES = "files"


class FreshDirectory(type(Path())):  # type: ignore[misc]
    """The path to write into; `version` is set when the block has ended well."""

    version: VersionRef | None = None


@contextmanager
def new_version(*, step: int | None = None, metrics: Mapping[str, SupportsFloat] | None = None,
                mount: str | None = None, extra: Mapping[str, Any] | None = None,
                timeout_s: float = PUBLISH_TIMEOUT_S) -> Iterator[FreshDirectory]:
    """A fresh directory to write plain files into; leaving the block publishes them as one version.

    Collective: every rank of the gang enters it, equally often. A gang of one rank writes to the
    version's own directory; with more ranks each gets its own sub-directory, `rank-<n>`, and may leave
    it empty. On an exception nothing is published. After the block `.version` of the path names the
    version; the arguments are those of `save_checkpoint`.

    Raises:
        Rejected: a link or special file among the files, or an unknown mount.
        Unavailable: the disk or a rank failed; the message names the ranks that are missing.
    """
    info = cluster_info()
    kept_metrics, kept_extra = describe(metrics, extra, world_size=info.world_size)
    save = begin(mount, _next_key(info.gang, info.attempt, mount), step)
    fresh = FreshDirectory(save.path if info.world_size == 1 else save.path / f"rank-{info.rank}")
    fresh.mkdir(exist_ok=True)
    yield fresh
    from gangline.volumes.hashing import seal_tree
    from gangline.volumes.layout import MANIFEST, sync_directory

    if (save.path / MANIFEST).exists():
        raise Rejected(f"{MANIFEST} is the name of Gangline's own file", field="new_version",
                       fix="call yours something else")
    try:
        files = seal_tree(save.path, fresh)
        sync_directory(save.path)
    except ValueError as exc:
        raise Rejected(str(exc), field="new_version") from None
    except OSError as exc:
        raise Unavailable(f"the version was not written: {exc}") from exc
    written = Written(files=files, format=FILES, metrics=kept_metrics, extra=kept_extra)
    report(save, written)
    fresh.version = published(save, written, timeout_s)


def resume_path(mount: str | None = None) -> Path | None:
    """The directory of the version to resume from, verified before the ranks started; None if none.

    Also how an evaluation reads a checkpoint that it mounts with `from:`. Nothing may be written there.
    """
    if cluster_info().gang is None:
        found = local.find(mount, None) if local.resumes() else None
        return path_of_root(*found) if found else None
    _, info = pick_mount(mount)
    return path_of(info, info.resume_dir) if info.resume_dir is not None else None


def path_of(mount: MountInfo, directory: str) -> Path:
    """Where the files of a version lie; `directory` as a version's record names it."""
    return path_of_root(Path(mount.root), directory)


def path_of_root(root: Path, directory: str) -> Path:
    """Where the files of a version lie beneath a volume's root."""
    from gangline.volumes.layout import version_path

    return version_path(root, directory)


def find_version(mount: str | None, version: int | None) -> tuple[Path, Manifest] | None:
    """Path and manifest of the version to resume from, or of the one asked for; None if there is none."""
    from gangline.volumes.publish import read_manifest

    found = _find_local(mount, version) if cluster_info().gang is None else _find_mounted(mount, version)
    if found is None:
        return None
    return path_of_root(*found), read_manifest(*found)


def _find_local(mount: str | None, version: int | None) -> tuple[Path, str] | None:
    if version is None and not local.resumes():
        return None
    return local.find(mount, version)


def _find_mounted(mount: str | None, version: int | None) -> tuple[Path, str] | None:
    name, info = pick_mount(mount)
    if version is not None and version != info.resume:
        raise Rejected(f"version {version} of {info.volume} was not verified for this attempt",
                       field="version", fix=f"mount it: volumes: {{{name}: {{volume: {info.volume}, "
                                            f"from: {info.volume}@{version}}}}}")
    return None if info.resume_dir is None else (Path(info.root), info.resume_dir)


_entered: Counter[tuple[str | None, int, str | None]] = Counter()


def _next_key(gang: str | None, attempt: int, mount: str | None) -> str:
    """The same key on every rank, because every rank enters equally often."""
    place = (gang, attempt, mount if gang is None else pick_mount(mount)[0])
    _entered[place] += 1
    return f"files-{_entered[place]}"
