"""Putting a manifest beside the files it describes, once, and reading it back."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path

from gangline.model.errors import Conflict, GanglineError, NotFound, Rejected, Unavailable
from gangline.model.volume import Manifest
from gangline.volumes.layout import MANIFEST, open_beneath, open_version

MAX_MANIFEST_BYTES = 64 << 20


def manifest_sha256(text: str) -> str:
    """The identity of a manifest: hex SHA-256 of its text."""
    return hashlib.sha256(text.encode()).hexdigest()


def put_manifest(root: Path, directory: str, text: str) -> None:
    """Put the manifest of a version there, on disk when this returns; the same text again is fine.

    Raises:
        Conflict: another manifest is there already; it stays as it is.
        NotFound: the version's directory does not exist.
        Unavailable: the disk failed.
    """
    with _as_ours(root, directory), open_version(root, directory) as folder:
        if not put_if_absent(folder, MANIFEST, text.encode()):
            raise Conflict(f"{directory} already has another manifest", field="directory",
                           fix="open a new save; a version is written once")


def put_if_absent(folder_fd: int, name: str, data: bytes) -> bool:
    """Whether the durable file `name` in the folder holds exactly `data` now; one of many wins.

    The file appears whole or not at all: a link to a synced temporary fails when the name is taken.
    """
    temporary = f".{name}.{os.urandom(8).hex()}.tmp"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(temporary, flags, 0o644, dir_fd=folder_fd)
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(temporary, name, src_dir_fd=folder_fd, dst_dir_fd=folder_fd, follow_symlinks=False)
            won = True
        except FileExistsError:
            won = _read(folder_fd, name, len(data) + 1) == data
    finally:
        os.unlink(temporary, dir_fd=folder_fd)
    os.fsync(folder_fd)
    return won


def read_manifest_text(root: Path, directory: str) -> str:
    """The manifest's text as it lies there; NotFound, Rejected or Unavailable if it cannot be read."""
    with _as_ours(root, directory), open_version(root, directory) as folder:
        data = _read(folder, MANIFEST, MAX_MANIFEST_BYTES + 1)
    if len(data) > MAX_MANIFEST_BYTES:
        raise Rejected(f"the manifest is larger than {MAX_MANIFEST_BYTES} bytes", field=directory)
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise Rejected("the manifest is not UTF-8 text", field=directory) from None


def read_manifest(root: Path, directory: str) -> Manifest:
    """The manifest of a version, checked in form but not against a record; see `verify` for that."""
    return parse_manifest(read_manifest_text(root, directory), directory)


def parse_manifest(text: str, directory: str) -> Manifest:
    """The manifest in `text`, or `Rejected` naming what is wrong with it."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        raise Rejected("the manifest is not JSON", field=directory) from None
    return Manifest.parse(data, where=f"{directory}/{MANIFEST}")


def _read(folder_fd: int, name: str, limit_bytes: int) -> bytes:
    with open(open_beneath(folder_fd, name), "rb") as file:
        # read(n) takes n bytes of memory at once, however short the file is
        return file.read(min(limit_bytes, os.fstat(file.fileno()).st_size + 1))


@contextlib.contextmanager
def _as_ours(root: Path, directory: str) -> Iterator[None]:
    try:
        yield
    except OSError as exc:
        raise _translate(exc, f"{root}/{directory}") from exc


def _translate(exc: OSError, where: str) -> GanglineError:
    if isinstance(exc, FileNotFoundError):
        return NotFound(f"{where} or its manifest does not exist")
    if exc.errno in (errno.ELOOP, errno.ENOTDIR, errno.EISDIR):
        return Rejected(f"{where} has a link or a file where a directory belongs")
    return Unavailable(f"{where}: {exc.strerror or exc}")
