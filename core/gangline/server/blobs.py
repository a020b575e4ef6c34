"""Code archives by their SHA-256: streamed to a temporary file, checked, then renamed."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

from gangline.model.errors import NotFound, Rejected

MAX_BLOB_BYTES = 1 << 30
_STEP_BYTES = 1 << 20
_SHA256 = re.compile(r"[0-9a-f]{64}")

InThread = Callable[..., Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class BlobStore:
    """blobs/<sha256>.tar under a home."""

    folder: Path

    def path(self, sha256: str) -> Path:
        """Where that blob is; `NotFound` if it is not stored, `Rejected` if it is no SHA-256."""
        path = self._place(sha256)
        if not path.is_file():
            raise NotFound(f"no blob {sha256}")
        return path

    def has(self, sha256: str) -> bool:
        return self._place(sha256).is_file()

    def clean(self) -> None:
        """Remove what uploads cut off by an earlier server's end left behind."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for left in self.folder.glob(".*.part"):
            left.unlink(missing_ok=True)

    async def receive(self, sha256: str, chunks: AsyncIterator[bytes], in_thread: InThread) -> bool:
        """Store what the chunks add up to; True when it is new. `Rejected` if the hash differs."""
        place = self._place(sha256)
        known = place.is_file()
        part = self.folder / f".{uuid4().hex}.part"
        digest = hashlib.sha256()
        try:
            file = await in_thread(open, part, "wb")
            try:
                async for block in _blocks(chunks):
                    await in_thread(_take, file, digest, block)
                await in_thread(_settle, file)
            finally:
                await in_thread(file.close)
            if digest.hexdigest() != sha256:
                raise Rejected(f"the content's SHA-256 is {digest.hexdigest()}", field="sha256",
                               fix="upload the content that the name was made from")
            await in_thread(os.replace, part, place)
        finally:
            with contextlib.suppress(FileNotFoundError):
                part.unlink()
        return not known

    def _place(self, sha256: str) -> Path:
        if not _SHA256.fullmatch(sha256):
            raise Rejected(f"{sha256!r} is not a SHA-256 in lower-case hex", field="sha256")
        return self.folder / f"{sha256}.tar"


async def _blocks(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The same bytes in pieces large enough to be worth a thread each."""
    held = bytearray()
    async for chunk in chunks:
        held += chunk
        if len(held) >= _STEP_BYTES:
            yield bytes(held)
            held.clear()
    yield bytes(held)


def _take(file: Any, digest: Any, block: bytes) -> None:
    file.write(block)
    digest.update(block)


def _settle(file: Any) -> None:
    file.flush()
    os.fsync(file.fileno())
