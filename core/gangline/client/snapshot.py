"""Content-addressed archives of an import root: the same files always give the same SHA-256.

Archives are kept in a cache, keyed by what the file system says of each file, so that submitting
unchanged code again reads no file. Any number of processes may share the cache.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import tarfile
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from gangline.client.tree import Entry, list_tree
from gangline.model.errors import Rejected

# A file changed this shortly before it was listed may change again within one tick of the clock that
# stamps it, unseen; such a tree is archived but not remembered.
_SETTLED_NS = 100_000_000
_KEEP_S = 7 * 86_400


@dataclass(frozen=True, slots=True)
class Snapshot:
    """An archive on disk. `sha256` is that of its bytes; `size_bytes` its length."""

    sha256: str
    archive: Path
    size_bytes: int


def take_snapshot(root: Path, cache: Path, needed: Iterable[Path] = (),
                  without: Path | None = None) -> Snapshot:
    """The archive of the files under `root` that travel (see `gangline.client.tree`).

    `needed` names files that must be among them, `without` a directory that must not be. `cache` is a
    directory this call may fill.

    Raises:
        Rejected: the directory cannot travel, as `list_tree` says, or a file cannot be read.
    """
    root = root.resolve()
    inside = [str(f.relative_to(root)) for f in needed if root in f.parents]
    listed_ns = time.time_ns()
    entries = list_tree(root, inside, without)
    key = _signature(root, entries)
    cache.mkdir(parents=True, exist_ok=True, mode=0o700)
    remembered = cache / f"{key}.key"
    known = _recall(cache, remembered)
    if known is not None:
        return known
    made = _archive(root, entries, cache)
    settled = all(e.changed_ns < listed_ns - _SETTLED_NS for e in entries)
    if settled and _signature(root, list_tree(root, inside, without)) == key:
        _write(remembered, made.sha256)
    _forget_old(cache)
    return made


def _signature(root: Path, entries: Iterable[Entry]) -> str:
    digest = hashlib.sha256(f"1\0{root}\0".encode())
    for entry in entries:
        digest.update(repr(entry).encode())
    return digest.hexdigest()


def _recall(cache: Path, remembered: Path) -> Snapshot | None:
    try:
        sha256 = remembered.read_text()
        archive = cache / f"{sha256}.tar"
        size = archive.stat().st_size
        os.utime(archive)
        os.utime(remembered)
    except OSError:
        return None
    return Snapshot(sha256, archive, size)


def _archive(root: Path, entries: Iterable[Entry], cache: Path) -> Snapshot:
    handle, name = tempfile.mkstemp(dir=cache, suffix=".part")
    try:
        with os.fdopen(handle, "wb") as raw:
            out = _Hashing(raw)
            with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
                for entry in entries:
                    _add(tar, root, entry)
        archive = cache / f"{out.digest.hexdigest()}.tar"
        size = os.path.getsize(name)
        os.replace(name, archive)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise
    return Snapshot(archive.stem, archive, size)


def _add(tar: tarfile.TarFile, root: Path, entry: Entry) -> None:
    info = tarfile.TarInfo(entry.path)
    info.mode = 0o755 if entry.executable else 0o644
    if entry.link is not None:
        info.type, info.linkname = tarfile.SYMTYPE, entry.link
        tar.addfile(info)
        return
    try:
        content = (root / entry.path).read_bytes()  # whole, so that size and bytes agree if it grows now
    except OSError as exc:
        raise Rejected(f"cannot read {root / entry.path}: {exc.strerror}",
                       fix="name it in .ganglineignore if it is not code") from None
    info.size = len(content)
    tar.addfile(info, io.BytesIO(content))


class _Hashing(io.RawIOBase):
    """A file that hashes what is written to it, so that the archive is read only once."""

    def __init__(self, out: IO[bytes]) -> None:
        self.out = out
        self.digest = hashlib.sha256()

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.out.tell()

    def write(self, data: object) -> int:
        chunk = bytes(data)  # type: ignore[call-overload]
        self.digest.update(chunk)
        return self.out.write(chunk)


def _write(path: Path, text: str) -> None:
    handle, name = tempfile.mkstemp(dir=path.parent, suffix=".part")
    with os.fdopen(handle, "w") as out:
        out.write(text)
    os.replace(name, path)


def _forget_old(cache: Path) -> None:
    oldest = time.time() - _KEEP_S
    for path in cache.iterdir():
        with contextlib.suppress(OSError):  # another process may be tidying too
            if path.stat().st_mtime < oldest:
                path.unlink()
