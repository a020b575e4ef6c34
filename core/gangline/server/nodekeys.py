"""Tokens of supervisors on other machines: each is for one attempt, and worth nothing once that is over."""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from gangline.service.claims import Claim

_PREFIX = "gln"
_KEY_BYTES = 32


@dataclass(frozen=True, slots=True)
class NodeKeys:
    """Signs what a token claims, so that none need be stored: the same attempt always has the same token."""

    key: bytes = field(repr=False)

    def issue(self, gang: str, attempt: int) -> str:
        """The token of an attempt's supervisors."""
        return f"{_PREFIX}.{gang}.{attempt}.{self._mac(gang, attempt)}"

    def check(self, token: str) -> Claim | None:
        """What a token proves; None for one that is not ours."""
        prefix, _, rest = token.partition(".")
        gang, _, rest = rest.partition(".")
        attempt, _, mac = rest.partition(".")
        if prefix != _PREFIX or not attempt.isdecimal() or len(attempt) > 9:
            return None
        good = hmac.compare_digest(mac.encode(), self._mac(gang, int(attempt)).encode())
        return Claim(gang, int(attempt)) if good else None

    def _mac(self, gang: str, attempt: int) -> str:
        return hmac.new(self.key, f"{gang}/{attempt}".encode(), hashlib.sha256).hexdigest()


def node_keys(home: Path) -> NodeKeys:
    """The home's own; made the first time. Whoever can read it can speak for every node."""
    return NodeKeys(_kept(home / "node.key", lambda: secrets.token_bytes(_KEY_BYTES)))


def fleet_id(home: Path) -> str:
    """8 hex digits that tell this home's jobs from those of others on the same engine."""
    return _kept(home / "fleet.id", lambda: secrets.token_hex(4).encode()).decode()


def _kept(path: Path, make: Callable[[], bytes]) -> bytes:
    """What the file holds; made first where there is none. The home's lock is held: nobody else makes it."""
    if not path.exists():
        fresh = path.with_suffix(".new")
        with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(make())
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)  # half a key would lock out every node
    return path.read_bytes()
