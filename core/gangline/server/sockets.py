"""Listening sockets: a unix socket in the home or, when its path is too long, in a short private place."""

from __future__ import annotations

import contextlib
import hashlib
import os
import socket
import stat
from pathlib import Path

from gangline.model.errors import Rejected

MAX_PATH_BYTES = 107  # sun_path holds 108 with its end
BACKLOG = 4096


def bind_unix(home: Path, short_root: Path = Path("/tmp")) -> tuple[socket.socket, Path]:  # noqa: S108
    """A listening socket only this user can reach, and its path. `Rejected` when no place will do.

    The caller holds the home's lock, so a socket file found there belongs to no one.
    """
    path = home / "s.sock"
    if len(os.fsencode(path)) <= MAX_PATH_BYTES:
        with contextlib.suppress(OSError):  # some file systems hold no sockets: the short place will
            return _bind(path), path
    path = _short_folder(home, short_root) / "s.sock"
    if len(os.fsencode(path)) > MAX_PATH_BYTES:
        raise Rejected(f"the socket path {path} is over {MAX_PATH_BYTES} bytes", field="home",
                       fix="set GANGLINE_HOME to a shorter path")
    try:
        return _bind(path), path
    except OSError as exc:
        raise Rejected(f"cannot listen on {path}: {exc.strerror}", field="home",
                       fix="set GANGLINE_HOME to a short path on a local disk") from None


def bind_tcp(listen: str) -> tuple[socket.socket, str]:
    """A listening socket on "HOST:PORT", and the host. Port 0 takes a free one. `Rejected` if it cannot."""
    host, _, port = listen.rpartition(":")
    host = host.strip("[]")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise Rejected(f"{listen!r} is not HOST:PORT", field="listen", fix="write 127.0.0.1:7070")
    try:
        family, kind, proto, _, address = socket.getaddrinfo(host, int(port), type=socket.SOCK_STREAM)[0]
        sock = socket.socket(family, kind, proto)
    except OSError as exc:
        raise Rejected(f"cannot listen on {listen}: {exc.strerror}", field="listen") from None
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        sock.listen(BACKLOG)
    except OSError as exc:
        sock.close()
        raise Rejected(f"cannot listen on {listen}: {exc.strerror}", field="listen",
                       fix="choose another address") from None
    return sock, host


def _bind(path: Path) -> socket.socket:
    path.unlink(missing_ok=True)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.bind(str(path))
        path.chmod(0o600)
        sock.listen(BACKLOG)
    except OSError:
        sock.close()
        raise
    return sock


def _short_folder(home: Path, root: Path) -> Path:
    """A private folder for this home; refused when someone else made what stands in its place."""
    mine = root / f"gangline-{os.getuid()}"
    folder = mine / hashlib.sha256(os.fsencode(home)).hexdigest()[:16]
    for part in (mine, folder):
        try:
            part.mkdir(mode=0o700, exist_ok=True)
            seen = part.lstat()
        except OSError as exc:
            raise Rejected(f"cannot make {part}: {exc.strerror}", field="home",
                           fix="set GANGLINE_HOME to a shorter path") from None
        if not stat.S_ISDIR(seen.st_mode) or seen.st_uid != os.getuid() or seen.st_mode & 0o077:
            raise Rejected(f"{part} is not a private directory of yours", field="home",
                           fix="remove it, or set GANGLINE_HOME to a shorter path")
    return folder
