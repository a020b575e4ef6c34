"""Reading sysfs, procfs and /dev beneath a root: whatever cannot be read is remembered, never raised."""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

from gangline.fabric.host.values import Unread

MOST_BYTES = 1 << 20  # no file that is read here is larger on a healthy host
MOST_NAMES = 65_536  # of one directory
_MISSING = {errno.ENOENT, errno.ENOTDIR, errno.ENODEV, errno.ENXIO}


class Tree:
    """The files of one host. Paths are relative to the root, and no link leads out of it.

    What is missing gives None or nothing: most files of a host are optional. What is there and cannot be
    read, or makes no sense, is kept in `unread` as well.
    """

    def __init__(self, root: Path) -> None:
        self._root = os.path.realpath(root)
        self._folders: dict[str, str | None] = {}
        self._names: dict[str, tuple[str, ...]] = {}
        self.unread: list[Unread] = []

    def text(self, path: str, *, quiet: bool = False) -> str | None:
        """The file's text without blanks around it. `quiet`: that it cannot be read means nothing here."""
        real = self._real(path)
        if real is None:
            return None
        try:
            data = _read(real)
        except (OSError, ValueError) as exc:
            if not quiet and getattr(exc, "errno", None) not in _MISSING:
                self.doubt(path, _why(exc))
            return None
        return _printable(data.decode(errors="replace")).strip()

    def number(self, path: str, base: int = 10) -> int | None:
        """The whole number a file holds, alone or before a blank; in `base` 16 with or without 0x."""
        text = self.text(path)
        if text is None:
            return None
        try:
            return int(text.split()[0] if text else "", base)
        except ValueError:
            self.doubt(path, f"holds {text[:40]!r}, not a number")
            return None

    def names(self, path: str) -> tuple[str, ...]:
        """The names in a directory, numbers in them in order: mlx5_2 before mlx5_10. It is listed once."""
        if path not in self._names:
            self._names[path] = self._list(path)
        return self._names[path]

    def exists(self, path: str) -> bool:
        """Whether something is there, of whatever kind."""
        real = self._real(path)
        return real is not None and os.path.lexists(real)

    def target(self, path: str) -> str | None:
        """Where a path really leads, relative to the root; None when nothing is there."""
        real = self._real(path)
        return os.path.relpath(real, self._root) if real is not None and os.path.exists(real) else None

    def matching(self, pattern: str) -> Iterator[str]:
        """The paths that a pattern such as dev/infiniband/uverbs* stands for."""
        parts = [part for part in pattern.split("/") if part]
        yield from self._matching("", parts)

    def doubt(self, path: str, why: str) -> None:
        """Remember that a file that is there could not be used."""
        self.unread.append(Unread(path=path, why=why))

    def _matching(self, start: str, parts: list[str]) -> Iterator[str]:
        if not parts:
            if self.exists(start):
                yield start
            return
        first, rest = parts[0], parts[1:]
        plain = not re.search(r"[*?\[]", first)
        names = (first,) if plain else [name for name in self.names(start or ".") if fnmatchcase(name, first)]
        for name in names:
            yield from self._matching(f"{start}/{name}".lstrip("/"), rest)

    def _list(self, path: str) -> tuple[str, ...]:
        real = self._real(path)
        try:
            found = os.listdir(real) if real is not None else []
        except OSError as exc:
            if exc.errno not in _MISSING:
                self.doubt(path, _why(exc))
            return ()
        names = [name for name in found if name.isprintable() and name.isascii()]
        if len(names) < len(found):
            self.doubt(path, f"{len(found) - len(names)} names in it are not plain text; left out")
        if len(names) > MOST_NAMES:
            self.doubt(path, f"holds {len(names)} names; {MOST_NAMES} are read")
        return tuple(sorted(names[:MOST_NAMES], key=_natural))

    def _real(self, path: str) -> str | None:
        folder, name = os.path.split(path)
        parent = self._folder(folder)
        return None if parent is None else self._step(parent, name, path)

    def _folder(self, folder: str) -> str | None:
        """A directory without links in its path; each is followed once."""
        if not folder:
            return self._root
        if folder not in self._folders:
            self._folders[folder] = self._real(folder)
        return self._folders[folder]

    def _step(self, parent: str, name: str, path: str) -> str | None:
        full = os.path.join(parent, name)
        return self._inside(full, path) if os.path.islink(full) else full

    def _inside(self, full: str, path: str) -> str | None:
        real = os.path.realpath(full)
        if real == self._root or real.startswith(self._root.rstrip("/") + "/"):
            return real
        self.doubt(path, "leads out of the root that is looked at")
        return None


def _read(path: str) -> bytes:
    # A pipe or a device in place of a file must not hold us up.
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise ValueError("is not a plain file")
        pieces: list[bytes] = []
        while (piece := os.read(handle, MOST_BYTES)) and sum(map(len, pieces)) < MOST_BYTES:
            pieces.append(piece)
        return b"".join(pieces)
    finally:
        os.close(handle)


def _why(exc: OSError | ValueError) -> str:
    if isinstance(exc, OSError):
        return f"cannot be read: {exc.strerror or exc}"
    return str(exc)


def _printable(text: str) -> str:
    # What a broken or hostile file holds ends up on terminals and in JSON.
    return "".join(char if char.isprintable() or char in "\n\t" else "?" for char in text)


def _natural(name: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]
