"""What stands before the app: who may speak to a listener, how much they may send."""

from __future__ import annotations

import hmac
import re
from collections.abc import Mapping
from urllib.parse import urlsplit

from fastapi import HTTPException
from fastapi.responses import JSONResponse

from gangline.client.address import is_loopback
from gangline.model.errors import Rejected
from gangline.server.asgi import App, Message, Receive, Scope, Send
from gangline.server.blobs import MAX_BLOB_BYTES
from gangline.server.nodekeys import NodeKeys
from gangline.service.claims import Claim

MAX_BODY_BYTES = 8 << 20


class Guard:
    """One listener's rules around the app.

    A node's token opens what supervisors need, for its own attempt: handlers find that in the request's state.

    `hosts` are the names a TCP listener answers to beside loopback ones; None for a unix socket, where
    the directory's owner alone gets this far. With `token`, every request must carry it.
    """

    def __init__(self, app: App, *, hosts: frozenset[str] | None = None,
                 token: str | None = None, node_keys: NodeKeys | None = None) -> None:
        self._app = app
        self._hosts = hosts
        self._token = token
        self._node_keys = node_keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        claim = self._claim(headers)
        refusal = self._refusal(headers, claim, scope)
        limit = MAX_BLOB_BYTES if scope["path"].startswith("/v1/blobs/") else MAX_BODY_BYTES
        length = headers.get("content-length", "")
        if refusal is None and length.isdecimal() and int(length) > limit:
            refusal = _refused(413, _too_large(limit))
        if refusal is not None:
            await refusal(scope, receive, send)
            return
        scope.setdefault("state", {})["claim"] = claim
        await self._guarded(scope, _limited(receive, limit), send)

    async def _guarded(self, scope: Scope, receive: Receive, send: Send) -> None:
        whole = False

        async def noting(message: Message) -> None:
            nonlocal whole
            await send(message)
            whole = message["type"] == "http.response.body" and not message.get("more_body", False)

        try:
            await self._app(scope, receive, noting)
        except Exception:
            if not whole:  # half a reply must end with the connection, or it would look whole
                raise

    def _claim(self, headers: Mapping[str, str]) -> Claim | None:
        scheme, _, token = headers.get("authorization", "").partition(" ")
        return self._node_keys.check(token) if self._node_keys is not None and scheme == "Bearer" else None

    def _refusal(self, headers: Mapping[str, str], claim: Claim | None, scope: Scope) -> JSONResponse | None:
        host = headers.get("host", "")
        if self._hosts is not None and not self._answers_to(host):
            return _refused(403, Rejected(f"this server does not answer to the name {host!r}", field="Host",
                                          fix="start it with --allow-host NAME"))
        origin = headers.get("origin")
        foreign = origin is not None and urlsplit(origin).netloc != host
        if foreign or headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            return _refused(403, Rejected("requests from other web pages are not taken", field="Origin"))
        if claim is not None:
            if _for_nodes(scope["method"], scope["path"]):
                return None
            return _refused(403, Rejected("a node's token opens nothing else", field="Authorization"))
        given = headers.get("authorization", "")
        if self._token is not None and not _same(given, f"Bearer {self._token}"):
            return _refused(401, Rejected("a valid bearer token is needed", field="Authorization",
                                          fix="set GANGLINE_TOKEN to the server's token"))
        return None

    def _answers_to(self, host: str) -> bool:
        name = re.sub(r":\d+$", "", host).strip("[]").lower()
        return is_loopback(name) or name in (self._hosts or ())


def _for_nodes(method: str, path: str) -> bool:
    """What supervisors ask for; handlers see to it that it is about their own attempt."""
    return re.fullmatch(r"/v1/(nodes/[^/]+/(hello|poll|reports|logs)|saves/[^/]+)", path) is not None or (
        method == "GET" and path.startswith("/v1/blobs/"))


def _same(given: str, wanted: str) -> bool:
    return hmac.compare_digest(given.encode(), wanted.encode())


def _refused(status: int, error: Rejected) -> JSONResponse:
    headers = {"WWW-Authenticate": "Bearer"} if status == 401 else None
    return JSONResponse(error.to_wire(), status_code=status, headers=headers)


def _too_large(limit: int) -> Rejected:
    return Rejected(f"the body is over the limit of {limit} bytes", fix="send it in parts")


def _limited(receive: Receive, limit: int) -> Receive:
    """The same messages until more than `limit` bytes of body came."""
    taken = 0

    async def counting() -> Message:
        nonlocal taken
        message = await receive()
        taken += len(message.get("body", b""))
        if taken > limit:
            raise HTTPException(413, _too_large(limit).message)
        return message

    return counting
