"""Code snapshots, unpacked once per machine and shared by its nodes."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
import os
import secrets
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path

from gangline.model.errors import Rejected, Unavailable
from gangline.node.link import Link


async def fetch_code(link: Link, home: Path, sha256: str) -> Path:
    """The folder with the snapshot's files, fetched, checked and unpacked if need be.

    `Unavailable` when the server does not answer or sends other bytes, `Rejected` when it has no such
    snapshot or the archive cannot be unpacked.
    """
    folder = home / "code" / sha256
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    # A name of its own: several gangs of one snapshot may start on this node at the same moment.
    archive = folder.parent / f".{sha256}.{secrets.token_hex(8)}.tar"
    try:
        await _download(link, sha256, archive)
        await asyncio.to_thread(_unpack, archive, folder)
    finally:
        archive.unlink(missing_ok=True)
    return folder


async def _download(link: Link, sha256: str, archive: Path) -> None:
    digest = hashlib.sha256()
    async with link.stream(f"/v1/blobs/{sha256}") as reply:
        if reply.status_code == 404:
            raise Rejected(f"the server has no code snapshot {sha256[:12]}", fix="submit the gang again")
        if not reply.is_success:
            raise Unavailable(f"the snapshot {sha256[:12]} was answered by {reply.status_code}")
        with archive.open("wb") as file:
            async for chunk in reply.aiter_bytes(1 << 20):
                digest.update(chunk)
                file.write(chunk)
    if digest.hexdigest() != sha256:
        raise Unavailable(f"the code snapshot {sha256[:12]} arrived with other bytes")


def _unpack(archive: Path, folder: Path) -> None:
    """Unpack beside the folder and move it there whole, one process of the machine at a time."""
    with _locked(folder.parent / f".{folder.name}.lock"):
        if folder.is_dir():
            return
        fresh = folder.parent / f".{folder.name}.new"
        shutil.rmtree(fresh, ignore_errors=True)  # of one that died half-way
        fresh.mkdir(mode=0o700)
        try:
            with tarfile.open(archive, "r:*") as tar:
                tar.extractall(fresh, filter="data")
        except (tarfile.TarError, EOFError) as exc:
            shutil.rmtree(fresh, ignore_errors=True)
            raise Rejected(f"the code snapshot {folder.name[:12]} cannot be unpacked: {exc}",
                           fix="submit the gang again") from None
        fresh.rename(folder)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)
