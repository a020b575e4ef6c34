"""Logs of ranks as files: appended in order by offset, read by offset in whole characters."""

from __future__ import annotations

import base64
import binascii
import os
import re
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gangline.model.errors import Rejected
from gangline.model.gang import LogChunk
from gangline.model.orders import LogPiece

CHUNK_BYTES = 256 << 10
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """A piece that does not join what is stored: its sender goes on from byte `have`."""

    gang: str
    attempt: int
    rank: int
    have: int


@dataclass(slots=True)
class LogStore:
    """logs/<gang>/<attempt>/<rank>.log under a home. Safe to use from several threads."""

    folder: Path
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def store(self, pieces: Sequence[LogPiece]) -> list[Gap]:
        """Append what is new in these pieces; the gaps of those that came too early.

        A piece that is stored already is skipped; of one that overlaps, the rest is taken.
        """
        gaps: dict[tuple[str, int, int], Gap] = {}
        with self._lock:
            for piece in pieces:
                have = self._append(piece)
                if have is not None:
                    gaps[piece.gang, piece.attempt, piece.rank] = Gap(
                        gang=piece.gang, attempt=piece.attempt, rank=piece.rank, have=have)
        return list(gaps.values())

    def read(self, gang: str, attempt: int, rank: int, offset: int, *, ended: bool) -> LogChunk:
        """Up to `CHUNK_BYTES` from byte `offset`, cut between characters.

        `ended` says that no more will come, so that half a character at the end is shown as it is.
        """
        data = b""
        path = self._path(gang, attempt, rank)
        if path.is_file():
            with open(path, "rb") as file:
                file.seek(offset)
                data = file.read(CHUNK_BYTES)
        whole = data[:whole_characters(data)]
        if not whole and ended:
            whole = data
        return LogChunk(attempt=attempt, rank=rank, text=whole.decode(errors="replace"), offset=offset,
                        next=offset + len(whole))

    def _append(self, piece: LogPiece) -> int | None:
        """The stored size when the piece leaves a gap, else None."""
        try:
            data = base64.b64decode(piece.data_b64, validate=True)
        except binascii.Error:
            raise Rejected("is not base64", field="data_b64") from None
        path = self._path(piece.gang, piece.attempt, piece.rank)
        try:
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:
            path.parent.mkdir(parents=True, exist_ok=True)
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        with open(fd, "wb", closefd=True) as file:
            have = file.seek(0, os.SEEK_END)
            if piece.offset > have:
                return have
            file.write(data[have - piece.offset:])
        return None

    def _path(self, gang: str, attempt: int, rank: int) -> Path:
        if not _ID.fullmatch(gang):
            raise Rejected(f"{gang!r} is not the id of a gang", field="gang")
        return self.folder / gang / str(attempt) / f"{rank}.log"


def whole_characters(data: bytes) -> int:
    """How many bytes of `data` end with a whole UTF-8 character; bytes that are no UTF-8 count as whole."""
    for back in range(1, min(3, len(data)) + 1):
        byte = data[-back]
        if byte & 0xC0 == 0x80:  # a continuation: its first byte is further back
            continue
        needs = 4 if byte >= 0xF0 else 3 if byte >= 0xE0 else 2 if byte >= 0xC0 else 1
        return len(data) - back if back < needs else len(data)
    return len(data)
