"""Volumes of a function that runs outside any gang: the same protocol in a directory of this machine.

    <GANGLINE_LOCAL_VOLUMES or ./.gangline-local>/<mount>/versions/local-<id>/…   as in a real volume
    <…>/<mount>/commits/<n>.json   which directory is version n, put there if absent

A local run starts afresh, as a newly submitted gang does. With GANGLINE_LOCAL_RESUME=1 it resumes
from the newest version that verifies. Remove the directory to forget everything.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gangline.model.errors import NotFound, Unavailable

if TYPE_CHECKING:
    from gangline.model.gang import VersionRef
    from gangline.model.volume import FileEntry

_COMMITS = "commits"


@dataclass(frozen=True, slots=True)
class Committed:
    """A version a local run has published."""

    version: int
    directory: str
    manifest_sha256: str


def volume_root(mount: str | None) -> tuple[str, Path]:
    """The volume's name and directory for a mount; without a mount, the volume "default"."""
    name = (mount or "").strip("/").replace("/", ".") or "default"
    top = os.environ.get("GANGLINE_LOCAL_VOLUMES") or ".gangline-local"
    return name, Path(top).absolute() / name


def begin(mount: str | None) -> tuple[str, Path, str]:
    """Volume, root and fresh directory of a save."""
    name, root = volume_root(mount)
    return name, root, f"versions/local-{os.urandom(8).hex()}"


def publish(volume: str, root: Path, directory: str, *, step: int | None, files: Sequence[FileEntry],
            format: str, metrics: Mapping[str, float], extra: Mapping[str, Any]) -> VersionRef:
    """Write the manifest and take the next free number for it."""
    from gangline.model.gang import VersionRef
    from gangline.model.volume import Manifest
    from gangline.volumes.publish import manifest_sha256, put_manifest

    manifest = Manifest(
        volume=volume, directory=directory, parent=max(_numbers(root), default=None), format=format,
        step=step, metrics=dict(metrics), files=tuple(files), world_size=1, gang="local", attempt=1,
        slot="local", digest="", created_ms=time.time_ns() // 1_000_000, extra=dict(extra))
    text = manifest.text()
    put_manifest(root, directory, text)
    version = _commit(root, directory, manifest_sha256(text))
    return VersionRef(volume=volume, version=version, step=step, metrics=dict(metrics),
                      manifest_sha256=manifest_sha256(text))


def find(mount: str | None, version: int | None) -> tuple[Path, str] | None:
    """(root, directory) of the version asked for, or of the newest that verifies; None if none does.

    Raises:
        NotFound: there is no version of that number.
        Unavailable: the version asked for is damaged.
    """
    from gangline.volumes.verify import verify

    name, root = volume_root(mount)
    numbers = sorted(_numbers(root), reverse=True)
    if version is not None and version not in numbers:
        raise NotFound(f"there is no version {version} of {name} in {root}", field="version")
    for number in numbers if version is None else (version,):
        committed = _read_commit(root, number)
        problems = verify(root, committed.directory, committed.manifest_sha256)
        if not problems:
            return root, committed.directory
        if version is not None:
            raise Unavailable(f"{name}@{version} is damaged: {problems[0]}", field="version")
    return None


def resumes() -> bool:
    """Whether a local run shall go on where an earlier one stopped."""
    return os.environ.get("GANGLINE_LOCAL_RESUME", "") not in ("", "0")


def _numbers(root: Path) -> list[int]:
    folder = root / _COMMITS
    if not folder.is_dir():
        return []
    return [int(path.stem) for path in folder.glob("*.json") if path.stem.isdigit()]


def _read_commit(root: Path, number: int) -> Committed:
    data = json.loads((root / _COMMITS / f"{number}.json").read_text())
    return Committed(number, data["directory"], data["manifest_sha256"])


def _commit(root: Path, directory: str, sha256: str) -> int:
    from gangline.volumes.publish import put_if_absent

    folder = root / _COMMITS
    folder.mkdir(exist_ok=True)
    data = json.dumps({"directory": directory, "manifest_sha256": sha256}).encode()
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        number = max(_numbers(root), default=0) + 1
        while not put_if_absent(descriptor, f"{number}.json", data):
            number += 1
        return number
    finally:
        os.close(descriptor)
