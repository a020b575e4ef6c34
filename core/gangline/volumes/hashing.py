"""SHA-256 of files, taken while they are written or by reading them with bounded memory."""

from __future__ import annotations

import hashlib
import io
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from gangline.model.volume import FileEntry
from gangline.volumes.layout import sync_directory

if TYPE_CHECKING:
    from collections.abc import Iterable

    from _typeshed import ReadableBuffer

READ_BYTES = 1 << 20
# Below this the hand-over to a second thread costs more than the overlap gives.
OVERLAP_BYTES = 1 << 20


def hash_descriptor(descriptor: int) -> tuple[int, str]:
    """Size in bytes and hex SHA-256 of what is left to read of an open file."""
    digest, total = hashlib.sha256(), 0
    buffer = memoryview(bytearray(READ_BYTES))
    while count := os.readv(descriptor, [buffer]):
        digest.update(buffer[:count])
        total += count
    return total, digest.hexdigest()


def hash_file(path: Path) -> tuple[int, str]:
    """Size in bytes and hex SHA-256 of a regular file; a link is refused with OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        return hash_descriptor(descriptor)
    finally:
        os.close(descriptor)


def seal_tree(top: Path, directory: Path) -> list[FileEntry]:
    """Hash and sync every file below `directory`, then the directories; paths relative to `top`.

    Links, sockets and other special files raise ValueError: a version holds plain files only.
    """
    entries: list[FileEntry] = []
    with ThreadPoolExecutor(1, thread_name_prefix="gangline-sync") as beside:
        for folder, folders, names in os.walk(directory, topdown=False):
            for path in (Path(folder, name) for name in (*folders, *names)):
                if path.is_symlink() or not (path.is_file() or path.is_dir()):
                    raise ValueError(f"{path} is a link or a special file; a version holds plain files only")
            entries.extend(_seal_file(top, Path(folder, name), beside) for name in names)
            sync_directory(Path(folder))
    return sorted(entries, key=lambda entry: entry.path)


def _seal_file(top: Path, path: Path, beside: ThreadPoolExecutor) -> FileEntry:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        synced = beside.submit(os.fsync, descriptor)
        try:
            size_bytes, digest = hash_descriptor(descriptor)
        finally:
            synced.result()
    finally:
        os.close(descriptor)
    return FileEntry(path=path.relative_to(top).as_posix(), bytes=size_bytes, sha256=digest)


class HashingWriter(io.BufferedIOBase):
    """A new file whose SHA-256 is known, and whose bytes are on disk, once it is closed.

    The file must not exist. Large pieces are hashed beside the write, on a second thread. `flush`
    waits for `close`: nobody may read the file before it is whole.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._file = open(path, "xb", buffering=READ_BYTES)  # noqa: SIM115 - closed by close()
        self._digest = hashlib.sha256()
        self._bytes = 0
        self._beside: ThreadPoolExecutor | None = None

    def write(self, data: ReadableBuffer, /) -> int:
        view = memoryview(data).cast("B")
        if view.nbytes >= OVERLAP_BYTES:
            if self._beside is None:
                self._beside = ThreadPoolExecutor(1, thread_name_prefix="gangline-hash")
            hashed = self._beside.submit(self._digest.update, view)
            try:
                self._file.write(view)
            finally:
                hashed.result()  # the caller may reuse its buffer as soon as we return
        else:
            self._digest.update(view)
            self._file.write(view)
        self._bytes += view.nbytes
        return view.nbytes

    def writelines(self, lines: Iterable[ReadableBuffer], /) -> None:
        for line in lines:
            self.write(line)

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._bytes

    def flush(self) -> None:
        """Nothing: the bytes reach the disk when the file is closed."""

    def close(self) -> None:
        """Flush, sync and close; an error of the disk is raised here at the latest."""
        if self.closed:
            return
        try:
            self._file.flush()
            os.fsync(self._file.fileno())
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Close without syncing, after a failure."""
        if self._beside is not None:
            self._beside.shutdown()
        try:
            self._file.close()
        finally:
            super().close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        if kind is None:
            self.close()
        else:
            self.abandon()

    def entry(self, path: str) -> FileEntry:
        """What was written, under the name it has in the version."""
        return FileEntry(path=path, bytes=self._bytes, sha256=self._digest.hexdigest())
