"""A supervisor that came with a job: it serves one attempt on one node of another system, and leaves with it."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
from collections.abc import MutableMapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from gangline.model.errors import Rejected

TOKEN_ENV = "GANGLINE_NODE_TOKEN"  # noqa: S105 - the name of a variable


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnJob:
    """The attempt that a supervisor was started for, and the GPUs that the engine gave it (None: it did not say)."""

    gang: str
    attempt: int
    devices: tuple[str, ...] | None = None


def take_token(environ: MutableMapping[str, str], file: Path | None) -> str | None:
    """The token of this supervisor, which nothing it starts inherits; None for one on the server's own machine."""
    given = environ.pop(TOKEN_ENV, None)
    if file is None:
        return given
    try:
        return file.read_text().strip()
    except (OSError, UnicodeDecodeError) as exc:
        raise Rejected(f"cannot read the node token in {file}: {exc}", field="token-file") from None


def devices_of(environ: MutableMapping[str, str]) -> tuple[str, ...] | None:
    """The GPUs that the engine gave this job's part on the node, as CUDA names them."""
    given = environ.get("CUDA_VISIBLE_DEVICES")
    if given is None:
        return None
    return tuple(name for part in given.split(",") if (name := part.strip()) and name not in ("-1", "NoDevFiles"))


def own_address(server_url: str) -> str:
    """The address of this machine on the way to the server: where its other nodes can be expected to reach it."""
    parts = urlsplit(server_url)
    if parts.hostname is None:
        return "127.0.0.1"
    family, _, _, _, address = socket.getaddrinfo(parts.hostname, parts.port or 443, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect(address)  # sends nothing
        return str(probe.getsockname()[0])


def private_folder(path: Path) -> Path:
    """The folder, made if need be, and this user's alone: others may write where it lies, as in /tmp."""
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700, parents=True)
    found = path.lstat()
    if not path.is_dir() or path.is_symlink() or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise Rejected(f"{path} is not a private folder of this user",
                       fix="remove it, or name another one: node_home in the fleet file")
    return path


def job_home(root: Path | None, job: str) -> Path:
    """Where a job's supervisors keep their files on a node, until they leave."""
    top = private_folder(Path(f"/tmp/gangline-{os.getuid()}") if root is None else root)  # noqa: S108 - checked
    return private_folder(top / job)


def clear(home: Path, node: str) -> None:
    """The node's files are gone, and the job's with the last node of it on this machine."""
    shutil.rmtree(home / "nodes" / node, ignore_errors=True)
    with contextlib.suppress(OSError):
        (home / "nodes").rmdir()
        shutil.rmtree(home, ignore_errors=True)
