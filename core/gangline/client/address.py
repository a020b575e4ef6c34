"""Where a server is: a URL someone gave, or the home whose embedded server to use."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from gangline.model.errors import Rejected

LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
_FIX = "write unix:/path/to/s.sock, http://host:port or https://host"


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """One listener: `socket` is a path for unix sockets; otherwise `base_url` says it all."""

    url: str
    base_url: str
    socket: str | None = None
    token: str | None = field(default=None, repr=False)

    @property
    def loopback(self) -> bool:
        return self.socket is not None or is_loopback(urlsplit(self.base_url).hostname or "")


def parse_address(url: str, *, token: str | None = None) -> Address:
    """The address in `url`: "unix:/path", "http://host:port" or "https://host"; `Rejected` otherwise."""
    scheme, _, rest = url.partition(":")
    if scheme == "unix":
        path = "/" + rest.lstrip("/")
        if not rest.startswith("/") or path == "/":
            raise Rejected(f"{url!r} names no absolute socket path", field="url", fix=_FIX)
        return Address(url=f"unix:{path}", base_url="http://gangline", socket=path, token=token)
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise Rejected(f"{url!r} is not the address of a server", field="url", fix=_FIX)
    if parts.username is not None or parts.password is not None:
        raise Rejected("a URL must not carry a password", field="url", fix="set GANGLINE_TOKEN instead")
    return Address(url=url.rstrip("/"), base_url=url.rstrip("/"), token=token)


def is_loopback(host: str) -> bool:
    """Whether a host name or address can only mean this machine."""
    name = host.strip("[]").lower()
    return name in LOOPBACK_NAMES or (name.startswith("127.") and name.replace(".", "").isdigit())


def home_dir(home: str | os.PathLike[str] | None, environ: Mapping[str, str]) -> Path:
    """The absolute home: the argument, else GANGLINE_HOME, else ~/.gangline."""
    chosen = os.fspath(home) if home is not None else environ.get("GANGLINE_HOME") or "~/.gangline"
    return Path(os.path.abspath(os.path.expanduser(chosen)))


def unusable_home(home: Path, exc: OSError) -> Rejected:
    """What to say of a home that cannot be made or written to."""
    return Rejected(f"cannot use {home}: {exc.strerror or exc}", field="home",
                    fix="set GANGLINE_HOME to a directory you can write to")


def token_of(environ: Mapping[str, str]) -> str | None:
    """The bearer token in GANGLINE_TOKEN or in the file GANGLINE_TOKEN_FILE names, if any."""
    if environ.get("GANGLINE_TOKEN"):
        return environ["GANGLINE_TOKEN"]
    if environ.get("GANGLINE_TOKEN_FILE"):
        return read_token(Path(environ["GANGLINE_TOKEN_FILE"]), field="GANGLINE_TOKEN_FILE")
    return None


def read_token(path: Path, *, field: str) -> str:
    """The token a file holds; `Rejected` naming `field` when it cannot be read or is empty."""
    try:
        token = path.read_text().strip()
    except OSError as exc:
        raise Rejected(f"cannot read {path}: {exc.strerror}", field=field) from None
    if not token:
        raise Rejected(f"{path} is empty", field=field, fix="put the token on one line")
    return token
