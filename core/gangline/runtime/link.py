"""The line to the supervisor: one JSON object per line each way, over its unix socket."""

from __future__ import annotations

import json
import os
import socket
import threading
from typing import Any, BinaryIO

from gangline.model.errors import Bug, GanglineError, Rejected, Unavailable
from gangline.runtime.info import membership

# A supervisor goes on asking for a minute and a half when its server is away: a restart must not end
# training.
TIMEOUT_S = 150.0
MAX_REPLY_BYTES = 16 << 20


class Link:
    """A connection that is opened when needed and reopened once when it breaks.

    Every operation may be repeated without harm, so a request whose reply was lost is sent again.
    """

    def __init__(self, path: str, token: str, rank: int) -> None:
        self._path, self._token, self._rank = path, token, rank
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._replies: BinaryIO | None = None

    def request(self, op: str, *, timeout_s: float = TIMEOUT_S, **fields: Any) -> dict[str, Any]:
        """The supervisor's answer; its refusal is raised as the error it names.

        Raises:
            Unavailable: no answer within `timeout_s`, or nobody listens.
        """
        message = {"op": op, "token": self._token, "rank": self._rank, **fields}
        try:
            line = json.dumps(message, allow_nan=False).encode() + b"\n"
        except (TypeError, ValueError) as exc:
            raise Rejected(f"cannot be sent as JSON: {exc}", field=op) from None
        with self._lock:
            reply = self._exchange(line, timeout_s)
        if not reply.get("ok"):
            raise GanglineError.from_wire(reply.get("error") or {"message": f"{op} failed without a reason"})
        return reply

    def close(self) -> None:
        """Drop the connection; the next request opens a new one."""
        for part in (self._replies, self._socket):
            if part is not None:
                part.close()
        self._socket = self._replies = None

    def _exchange(self, line: bytes, timeout_s: float) -> dict[str, Any]:
        for last in (False, True):
            try:
                return self._once(line, timeout_s)
            except TimeoutError:
                self.close()  # a late reply must not answer the next request
                raise Unavailable(f"the supervisor did not answer within {timeout_s:g} s") from None
            except OSError as exc:
                self.close()
                if last:
                    raise Unavailable(f"the supervisor of this rank cannot be reached: {exc}") from exc
        raise Bug("unreachable")

    def _once(self, line: bytes, timeout_s: float) -> dict[str, Any]:
        if self._socket is None or self._replies is None:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self._socket.settimeout(timeout_s)
            self._socket.connect(self._path)
            self._replies = self._socket.makefile("rb")
        self._socket.settimeout(timeout_s)
        self._socket.sendall(line)
        reply = self._replies.readline(MAX_REPLY_BYTES)
        if not reply.endswith(b"\n"):
            raise ConnectionResetError("the connection was closed")
        try:
            parsed = json.loads(reply)
        except ValueError:
            raise Bug(f"the supervisor answered something else than JSON: {reply[:80]!r}") from None
        if not isinstance(parsed, dict):
            raise Bug("the supervisor answered something else than an object")
        return parsed


_links: dict[tuple[int, str, str, int], Link] = {}
_links_lock = threading.Lock()


def supervisor() -> Link | None:
    """The link of this rank; None outside a gang."""
    member = membership()
    if member is None:
        return None
    # The process id keeps a forked child off its parent's connection.
    key = (os.getpid(), member.supervisor, member.token, member.rank)
    with _links_lock:
        if key not in _links:
            _links[key] = Link(member.supervisor, member.token, member.rank)
        return _links[key]
