"""Where a volume keeps its versions, and how they are opened without following a link.

    <root>/versions/<name>/…               the files of one version, written once
    <root>/versions/<name>/manifest.json   what they are, put there if absent

A version's directory is named relative to the root ("versions/<name>"); the bare name means the same.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from gangline.model.errors import Rejected

VERSIONS = "versions"
MANIFEST = "manifest.json"

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
# O_NONBLOCK: a FIFO put in a file's place must not hold the reader for ever.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def version_name(directory: str) -> str:
    """The bare name in `directory` ("versions/<name>" or "<name>"); `Rejected` for any other path."""
    name = directory.removeprefix(f"{VERSIONS}/")
    if not _NAME.fullmatch(name):
        raise Rejected(f"{directory!r} is not a version's directory", field="directory",
                       fix="name it versions/<name> with letters, digits, '.', '_' or '-'")
    return name


def version_path(root: Path, directory: str) -> Path:
    """The absolute or relative path of a version's files beneath `root`."""
    return root / VERSIONS / version_name(directory)


@contextmanager
def open_version(root: Path, directory: str) -> Iterator[int]:
    """A descriptor of the version's directory; OSError if a link stands anywhere below `root`."""
    name = version_name(directory)
    top = os.open(root, _DIRECTORY)
    try:
        versions = os.open(VERSIONS, _DIRECTORY | os.O_NOFOLLOW, dir_fd=top)
    finally:
        os.close(top)
    try:
        opened = os.open(name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=versions)
    finally:
        os.close(versions)
    try:
        yield opened
    finally:
        os.close(opened)


def open_beneath(directory_fd: int, path: str) -> int:
    """A read descriptor of a relative file; OSError if a component is a link, missing or leaves."""
    parts = PurePosixPath(path).parts
    if not parts or parts[0] == "/" or ".." in parts or "\0" in path:
        raise OSError(f"{path!r} is not a plain relative path")
    parent = os.dup(directory_fd)
    try:
        for part in parts[:-1]:
            below = os.open(part, _DIRECTORY | os.O_NOFOLLOW, dir_fd=parent)
            os.close(parent)
            parent = below
        return os.open(parts[-1], _FILE, dir_fd=parent)
    finally:
        os.close(parent)


def make_version(root: Path, directory: str) -> Path:
    """The version's directory, made durably if it is not there yet; several ranks may race to it."""
    path = version_path(root, directory)
    for parent in (root, root / VERSIONS, path):
        try:
            parent.mkdir(parents=parent == root, mode=0o755)
        except FileExistsError:
            continue
        sync_directory(parent.parent)
    return path


def sync_directory(path: Path) -> None:
    """Make the names in a directory survive a power cut."""
    descriptor = os.open(path, _DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
