"""Whether the bytes of a version are still those its record names."""

from __future__ import annotations

import os
import stat
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from gangline.model.errors import GanglineError
from gangline.model.volume import FileEntry
from gangline.volumes.hashing import hash_descriptor
from gangline.volumes.layout import MANIFEST, open_beneath, open_version, version_name
from gangline.volumes.publish import manifest_sha256 as sha256_of_text
from gangline.volumes.publish import parse_manifest, read_manifest_text

THREADS = 2


def verify(root: Path, directory: str, manifest_sha256: str) -> list[str]:
    """Every difference between a version and its record, one readable line each; empty = verified.

    The manifest must have the recorded SHA-256 and every file it lists must be a regular file,
    reached without a link, of the listed size and SHA-256. Files it does not list are ignored.
    Reads with bounded memory and unpickles nothing.
    """
    try:
        text = read_manifest_text(root, directory)
        if (found := sha256_of_text(text)) != manifest_sha256:
            return [f"{MANIFEST}: SHA-256 is {found}, the record says {manifest_sha256}"]
        manifest = parse_manifest(text, directory)
    except GanglineError as exc:
        return [f"{MANIFEST}: {exc}"]
    problems = [f"{path!r}: listed {count} times"
                for path, count in Counter(f.path for f in manifest.files).items() if count > 1]
    if version_name(manifest.directory) != version_name(directory):
        problems.append(f"{MANIFEST}: describes {manifest.directory!r}, not {directory!r}")
    try:
        with open_version(root, directory) as folder, ThreadPoolExecutor(THREADS) as pool:
            found_wrong = pool.map(partial(_problem, folder), manifest.files)
            problems.extend(line for line in found_wrong if line is not None)
    except OSError as exc:
        problems.append(f"{directory}: {exc.strerror or exc}")
    return problems


def _problem(folder_fd: int, entry: FileEntry) -> str | None:
    try:
        descriptor = open_beneath(folder_fd, entry.path)
    except OSError as exc:
        return f"{entry.path!r}: {exc.strerror or exc}"
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return f"{entry.path!r}: is not a regular file"
        if status.st_size != entry.bytes:
            return f"{entry.path!r}: has {status.st_size} bytes, not {entry.bytes}"
        size_bytes, digest = hash_descriptor(descriptor)
    except OSError as exc:
        return f"{entry.path!r}: {exc.strerror or exc}"
    finally:
        os.close(descriptor)
    if (size_bytes, digest) != (entry.bytes, entry.sha256):
        return f"{entry.path!r}: SHA-256 is {digest}, not {entry.sha256}"
    return None
