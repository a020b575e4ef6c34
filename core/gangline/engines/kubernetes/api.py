"""Calls of the API server: few verbs, time-boxed, repeated where that is harmless, errors in its own words."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote

from gangline.client.lean import httpx
from gangline.engines.kubernetes.access import Access
from gangline.model.errors import Conflict, GanglineError, Rejected, Unavailable

Object = dict[str, Any]

CALL_S = 10.0  # one request
PATIENCE_S = 25.0  # one call, with all its repetitions
WATCH_S = 60.0  # a watch ends by itself and is taken up again; one that is silently cut is noticed then
_SLACK_S = 10.0
_PAUSES_S = (0.1, 3.0)
_MERGE = "application/merge-patch+json"
_LATER = frozenset({429, 500, 502, 503, 504})


class Exists(Conflict):
    """There is an object of that name already."""


class Stale(Conflict):
    """The object has changed since it was read."""


class Gone(Conflict):
    """The server no longer remembers that point in time: list again."""


class Api:
    """A connection to one API server; safe to share between threads."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._http = httpx.Client(base_url=access.server, verify=access.verify, timeout=CALL_S, trust_env=False,
                                  limits=httpx.Limits(max_connections=32, max_keepalive_connections=8))
        self._closed = threading.Event()
        self._sockets: set[socket.socket] = set()

    def close(self) -> None:
        """End every call that is under way, watches too."""
        self._closed.set()
        for open_socket in tuple(self._sockets):
            with contextlib.suppress(OSError):
                # Not the method of a TLS socket, which is not for two threads.
                socket.socket.shutdown(open_socket, socket.SHUT_RDWR)

    def release(self) -> None:
        """Give the sockets back, once nobody calls any more."""
        self._http.close()

    def get(self, path: str, params: Mapping[str, str] | None = None) -> Object | None:
        """The object or list; None when there is none."""
        return self._reply("GET", path, params=params, missing_is_none=True)

    def create(self, path: str, body: Object) -> Object:
        """Make the object.

        Raises:
            Exists: one of that name is there. After a lost answer it may be the one that was asked for.
        """
        made = self._reply("POST", path, body=body, params={"fieldValidation": "Strict"})
        assert made is not None
        return made

    def patch(self, path: str, body: Object) -> Object | None:
        """Merge into the object; None when it is not there.

        Raises:
            Stale: `body` names a resourceVersion, and the object has another now.
        """
        return self._reply("PATCH", path, body=body, params={"fieldValidation": "Strict"}, missing_is_none=True,
                           content_type=_MERGE)

    def delete(self, path: str, body: Object, params: Mapping[str, str] | None = None) -> Object | None:
        """Ask for the end of the object, or of all of a collection; None when it is not there."""
        return self._reply("DELETE", path, body=body, params=params, missing_is_none=True)

    def text(self, path: str, params: Mapping[str, str]) -> str | None:
        """A log; None when there is none yet, or no more."""
        try:
            response = self._repeated("GET", path, params, None, None)
        except Rejected:
            return None  # the container has not started
        return None if response.status_code == httpx.codes.NOT_FOUND else response.text

    def watch(self, path: str, params: Mapping[str, str]) -> Iterator[Object]:
        """Events as they come, until the server ends the watch.

        Raises:
            Gone: the resourceVersion is too old.
            Unavailable: the connection broke.
        """
        asked = {**params, "watch": "true", "allowWatchBookmarks": "true", "timeoutSeconds": f"{WATCH_S:.0f}"}
        timeout = httpx.Timeout(CALL_S, read=WATCH_S + _SLACK_S)
        try:
            with self._http.stream("GET", path, params=asked, headers=self._access.headers(False),
                                   timeout=timeout) as response, self._interruptible(response):
                if response.status_code != httpx.codes.OK:
                    response.read()
                    if response.status_code == httpx.codes.UNAUTHORIZED:
                        self._access.headers(True)
                    raise _error(response, path)
                for line in response.iter_lines():
                    yield json.loads(line)
        except (httpx.HTTPError, httpx.StreamError, ValueError) as exc:
            raise Unavailable(f"the watch of {path} broke: {_words(exc)}") from None

    @contextlib.contextmanager
    def _interruptible(self, response: httpx.Response) -> Iterator[None]:
        # A thread that waits for the next event can be woken by nothing but the end of its connection.
        held = response.extensions["network_stream"].get_extra_info("socket")
        self._sockets.add(held)
        try:
            if self._closed.is_set():
                raise Unavailable("the engine is closed")
            yield
        finally:
            self._sockets.discard(held)

    def _reply(self, method: str, path: str, *, params: Mapping[str, str] | None = None, body: Object | None = None,
               missing_is_none: bool = False, content_type: str | None = None) -> Object | None:
        response = self._repeated(method, path, params, body, content_type)
        if response.status_code == httpx.codes.NOT_FOUND and missing_is_none:
            return None
        if response.is_error:
            raise _error(response, path)
        try:
            reply = response.json()
        except ValueError:
            reply = None
        if not isinstance(reply, dict):
            raise Unavailable(f"{path}: the API server's answer is not JSON")
        return reply

    def _repeated(self, method: str, path: str, params: Mapping[str, str] | None, body: Object | None,
                  content_type: str | None) -> httpx.Response:
        """The first answer that more patience would not change."""
        deadline_s = time.monotonic() + PATIENCE_S
        pause_s, anew = _PAUSES_S[0], False
        # Escapes as in "\ud83d" whatever the text: half a character is no error of ours then.
        content = None if body is None else json.dumps(body).encode()
        while True:
            try:
                headers = {**self._access.headers(anew), "Content-Type": content_type or "application/json"}
                response = self._http.request(method, path, params=params, content=content, headers=headers)
                if response.status_code == httpx.codes.UNAUTHORIZED and not anew:
                    anew = True
                    continue
                if response.status_code not in _LATER and not _races(method, response, body):
                    return response
                trouble: GanglineError = _error(response, path)
                wait_s = max(pause_s, _retry_after_s(response))
            except httpx.HTTPError as exc:
                trouble, wait_s = Unavailable(f"the API server does not answer: {_words(exc)}"), pause_s
            if time.monotonic() + wait_s > deadline_s or self._closed.wait(wait_s):
                raise trouble
            pause_s = min(2 * pause_s, _PAUSES_S[1])


def _races(method: str, response: httpx.Response, body: Object | None) -> bool:
    """Whether a patch that holds for every state of the object met another writer."""
    return (method == "PATCH" and response.status_code == httpx.codes.CONFLICT
            and "resourceVersion" not in (body or {}).get("metadata", {}))


def _error(response: httpx.Response, path: str) -> GanglineError:
    """The server's refusal in its own words, as the error a caller can act upon."""
    status = _status(response)
    words = f"{path}: {status.get('message') or f'HTTP {response.status_code}'}"
    match response.status_code:
        case 409 if status.get("reason") == "AlreadyExists":
            return Exists(words)
        case 409:
            return Stale(words)
        case 410:
            return Gone(words)
        case 403:
            return Rejected(words, fix="give the server's account the rights of deploy/kubernetes")
        case 401:
            return Unavailable(words, fix="renew the credentials in the kubeconfig")
        case code:
            return Unavailable(words) if code in _LATER else Rejected(words)


def _status(response: httpx.Response) -> Object:
    try:
        status = response.json()
    except ValueError:
        status = {"message": response.text[:500]}
    return status if isinstance(status, dict) else {}


def _retry_after_s(response: httpx.Response) -> float:
    told = response.headers.get("Retry-After", "")
    return float(told) if told.isascii() and told.isdecimal() else 0.0


def _words(exc: Exception) -> str:
    return str(exc) or type(exc).__name__


def resource(group_version: str, plural: str, namespace: str | None = None, name: str | None = None,
             sub: str | None = None) -> str:
    """The path of a collection or an object: `group_version` is "v1" or such as "batch/v1"."""
    root = f"/api/{group_version}" if "/" not in group_version else f"/apis/{group_version}"
    parts = [*(["namespaces", namespace] if namespace else []), plural, *([name] if name else []),
             *([sub] if sub else [])]
    return "/".join([root, *(quote(part, safe="") for part in parts)])
