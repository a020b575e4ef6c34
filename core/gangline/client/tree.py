"""Which files of a directory travel to the nodes, and why a directory may not travel at all.

Inside a git checkout: what git tracks or would track. Anywhere else: everything. In both cases
without caches, environments and version control, and without what `.ganglineignore` in that
directory names: one pattern a line, `#` begins a comment; `*`, `?` and `[...]` as in fnmatch, where
`*` also matches "/". A pattern with "/" inside is matched against the path from the directory, one
without against every name on the way; a "/" at the end restricts it to directories. Whatever lies
below a matched directory is left out with it. There is no "!".
"""

from __future__ import annotations

import os
import stat
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path

from gangline.client.code import is_installed
from gangline.model.errors import Rejected

IGNORE_FILE = ".ganglineignore"
MAX_BYTES = 100 << 20
MAX_FILES = 20_000
_NEVER = frozenset({
    "__pycache__", ".git", ".hg", ".svn", "node_modules", ".venv", "venv", ".tox", ".nox", ".mypy_cache",
    ".pytest_cache", ".ruff_cache", ".hypothesis", ".ipynb_checkpoints", ".import_linter_cache", ".DS_Store",
    # Where secrets usually lie: they must not travel with the code, nor be kept on the server.
    ".env", ".netrc", ".ssh", ".aws", ".gnupg", "id_rsa", "id_ed25519",
})


@dataclass(frozen=True, slots=True, order=True)
class Entry:
    """One file or symbolic link of the tree. `link` is its target, relative, when it is a link."""

    path: str
    bytes: int
    executable: bool
    link: str | None
    stamp: tuple[int, ...]  # changes whenever the content may have

    @property
    def changed_ns(self) -> int:
        return self.stamp[-1]


def list_tree(root: Path, needed: Iterable[str] = (), without: Path | None = None) -> tuple[Entry, ...]:
    """The entries of `root` that travel, sorted by path. `needed` paths must be among them; nothing of
    the directory `without` is.

    Raises:
        Rejected: the directory must not travel, is too large, a link leaves it, or `needed` is ignored.
    """
    refuse_root(root)
    ignore = _Ignore.read(root, without)
    wanted = tuple(needed)
    names = _git_names(root)
    if names is None or not names or not set(wanted) <= names:
        # The code is not under git's care, whatever surrounds it. No need to see all of a huge tree.
        names = set(islice(_walk(root, "", ignore), 10 * MAX_FILES))
    kept = (name for name in names if not ignore.hides(name))
    entries = tuple(sorted(entry for name in kept if (entry := _entry(root, name)) is not None))
    missing = set(wanted) - {e.path for e in entries}
    if missing:
        raise Rejected(f"{root / min(missing)} is left out of the snapshot by {IGNORE_FILE}",
                       fix="remove that pattern")
    _check_limits(root, entries)
    return entries


def refuse_root(root: Path) -> None:
    """Raise `Rejected` for a directory that holds far more than code."""
    home = Path.home().resolve()
    if root == home or root in home.parents:
        what = "is your home directory" if root == home else "holds home directories"
    elif root == Path(tempfile.gettempdir()).resolve():
        what = "is everybody's temporary directory"
    elif is_installed(root):
        what = "belongs to the Python installation"
    elif not root.is_dir():
        raise Rejected(f"{root} is not a directory", field="workdir")
    else:
        return
    raise Rejected(f"{root} {what}, so it is not sent to the nodes as code",
                   fix="put the code into a directory of its own")


@dataclass(frozen=True, slots=True)
class _Ignore:
    names: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    folder_names: tuple[str, ...] = ()
    folder_paths: tuple[str, ...] = ()
    without: str | None = None

    @staticmethod
    def read(root: Path, without: Path | None) -> _Ignore:
        file = root / IGNORE_FILE
        hidden = str(without.relative_to(root)) if without and root in without.parents else None
        try:
            lines = file.read_text().splitlines()
        except FileNotFoundError:
            return _Ignore(without=hidden)
        except (OSError, UnicodeDecodeError) as exc:
            raise Rejected(f"cannot read {file}: {exc}") from None
        sorted_out: dict[tuple[bool, bool], list[str]] = {}
        for number, line in enumerate(lines, 1):
            pattern = line.strip()
            if not pattern or pattern.startswith("#"):
                continue
            if pattern.startswith("!"):
                raise Rejected(f"{file} line {number}: patterns with ! are not supported",
                               fix="list only what to leave out")
            folder, pattern = pattern.endswith("/"), pattern.rstrip("/")
            sorted_out.setdefault((folder, "/" in pattern), []).append(pattern.lstrip("/"))

        def of(*, folder: bool, path: bool) -> tuple[str, ...]:
            return tuple(sorted_out.get((folder, path), ()))

        return _Ignore(names=of(folder=False, path=False), paths=of(folder=False, path=True),
                       folder_names=of(folder=True, path=False), folder_paths=of(folder=True, path=True),
                       without=hidden)

    def hides(self, path: str, *, is_folder: bool = False) -> bool:
        """Whether this path, or a folder above it, is left out."""
        parts = path.split("/")
        for depth in range(1, len(parts) + 1):
            folder = is_folder or depth < len(parts)
            if self._matches(parts[depth - 1], "/".join(parts[:depth]), folder):
                return True
        return False

    def _matches(self, name: str, path: str, folder: bool) -> bool:
        if name in _NEVER or name.endswith(".pyc") or path == self.without:
            return True
        names = self.names + (self.folder_names if folder else ())
        paths = self.paths + (self.folder_paths if folder else ())
        return any(fnmatchcase(name, p) for p in names) or any(fnmatchcase(path, p) for p in paths)


def _git_names(root: Path) -> set[str] | None:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}  # a hook's would mislead
    try:
        done = subprocess.run(["git", "-C", str(root), "ls-files", "-coz", "--exclude-standard"],
                              capture_output=True, env=environment, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    if done.returncode != 0:
        return None
    names: set[str] = set()
    for name in os.fsdecode(done.stdout).split("\0"):
        full = root / name
        if name.endswith("/") or (full.is_dir() and not full.is_symlink()):
            if name:  # a submodule or a nested checkout, which git names but does not open
                names.update(_walk(root, name.rstrip("/"), _Ignore()))
        else:
            names.add(name)
    return names


def _walk(root: Path, below: str, ignore: _Ignore) -> Iterator[str]:
    folder = root / below
    try:
        found = list(os.scandir(folder))
    except OSError as exc:
        raise Rejected(f"cannot read {folder}: {exc.strerror}", fix=f"name it in {IGNORE_FILE}") from None
    for item in found:
        name = f"{below}/{item.name}" if below else item.name
        is_folder = item.is_dir(follow_symlinks=False)
        if ignore.hides(name, is_folder=is_folder):
            continue
        if not is_folder:
            yield name
        elif not os.path.exists(os.path.join(item.path, "pyvenv.cfg")):  # a virtual environment by any name
            yield from _walk(root, name, ignore)


def _entry(root: Path, name: str) -> Entry | None:
    """The entry of one path; None for what holds no content: gone since, sockets, broken links."""
    full = root / name
    try:
        info = full.lstat()
    except OSError:
        return None
    stamp = (info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns)
    if stat.S_ISREG(info.st_mode):
        return Entry(name, info.st_size, bool(info.st_mode & 0o111), None, stamp)
    if not stat.S_ISLNK(info.st_mode) or not full.exists():
        return None
    target = full.resolve()
    if root not in target.parents:
        raise Rejected(f"{full} is a link to {target}, outside of what is sent to the nodes",
                       fix=f"name it in {IGNORE_FILE}, or replace it by what it points to")
    return Entry(name, 0, False, os.path.relpath(target, full.parent.resolve()), stamp)


def _check_limits(root: Path, entries: tuple[Entry, ...]) -> None:
    total = sum(e.bytes for e in entries)
    if total <= MAX_BYTES and len(entries) <= MAX_FILES:
        return
    weight: Counter[str] = Counter()
    by_size = total > MAX_BYTES
    for entry in entries:
        first, slash, _ = entry.path.partition("/")
        weight[first + slash] += entry.bytes if by_size else 1
    largest = ", ".join(f"{name} ({_mib(n) if by_size else f'{n} files'})"
                        for name, n in weight.most_common(5))
    size = f"{_mib(total)}, over the limit of {_mib(MAX_BYTES)}" if by_size else \
        f"{len(entries)} files, over the limit of {MAX_FILES}"
    raise Rejected(f"the code in {root} is {size}; largest: {largest}",
                   fix=f"name what is not code in {root / IGNORE_FILE}; pass data through a volume")


def _mib(count: int) -> str:
    return f"{count / (1 << 20):.1f} MiB"
