"""Directories of saves that never became versions: finding and removing them, and nothing else."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Set
from pathlib import Path

from gangline.model.errors import Rejected
from gangline.volumes.layout import VERSIONS, version_name

# Names Gangline gives: a gang's id and more, or a local run's. Anything else is somebody else's data.
_OURS = re.compile(r"(g-[a-z2-7]{12}|local)[._-][A-Za-z0-9._-]+")


def abandoned(root: Path, keep: Set[str], older_than_ms: int, now_ms: int) -> list[str]:
    """Names of our version directories that are not in `keep` and untouched for `older_than_ms`.

    `keep` holds the directories of published versions and of saves that are still open.
    """
    kept = {version_name(directory) for directory in keep}
    try:
        names = sorted(os.listdir(root / VERSIONS))
    except FileNotFoundError:
        return []
    return [name for name in names
            if _OURS.fullmatch(name) and name not in kept and not (root / VERSIONS / name).is_symlink()
            and now_ms - _touched_ms(root / VERSIONS / name) >= older_than_ms]


def remove_abandoned(root: Path, directory: str) -> None:
    """Remove one directory that `abandoned` named; links inside it are removed, never followed."""
    name = version_name(directory)
    if not _OURS.fullmatch(name):
        raise Rejected(f"{directory!r} was not made by Gangline; it is not removed", field="directory")
    versions = os.open(root / VERSIONS, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        shutil.rmtree(name, dir_fd=versions)
    finally:
        os.close(versions)


def _touched_ms(path: Path) -> int:
    newest_ns = path.stat().st_mtime_ns
    for folder, folders, names in os.walk(path):
        for name in (*folders, *names):
            newest_ns = max(newest_ns, os.lstat(Path(folder, name)).st_mtime_ns)
    return newest_ns // 1_000_000
