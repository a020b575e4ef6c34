"""The text this example learns from: the source code of Python's own standard library.

Every machine that runs this example has it, and its packages fall into domains. A part is the name of
a package (`asyncio`) or of a single module (`threading`). The lists below share no file.
"""

import hashlib
import sysconfig
from pathlib import Path

PRETRAIN_PARTS = ("collections", "ctypes", "dbm", "email", "html", "http", "importlib", "json", "logging",
                  "urllib", "wsgiref", "xml", "xmlrpc", "zoneinfo")
FINETUNE_PARTS = ("asyncio", "multiprocessing")
HELDOUT_PARTS = ("concurrent", "threading", "queue", "subprocess", "selectors", "socketserver")
OTHER_PARTS = ("argparse", "difflib")  # of another domain: what the adapter is not for

SEPARATOR = b"\n\n"


def text(parts: tuple[str, ...]) -> bytes:
    """Every source file of `parts`, in sorted order, as one byte string.

    Raises FileNotFoundError for a part this Python does not have.
    """
    return SEPARATOR.join(path.read_bytes() for path in files(parts))


def files(parts: tuple[str, ...]) -> list[Path]:
    """The source files of `parts`, sorted. Tests inside packages are left out: not every Python has them."""
    return sorted(path for part in parts for path in _files_of(part))


def digest(parts: tuple[str, ...]) -> str:
    """SHA-256 of the text of `parts`: the same on every machine with the same Python version."""
    return hashlib.sha256(text(parts)).hexdigest()


def _files_of(part: str) -> list[Path]:
    library = Path(sysconfig.get_path("stdlib"))
    module = library / f"{part}.py"
    if module.is_file():
        return [module]
    found = [path for path in (library / part).rglob("*.py") if not _is_test(path.relative_to(library))]
    if not found:
        raise FileNotFoundError(f"{library} has no source of {part!r}")
    return found


def _is_test(path: Path) -> bool:
    return any(folder in ("test", "tests") for folder in path.parts)
