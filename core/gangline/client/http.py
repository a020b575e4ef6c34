"""`Client`: a server's blocking interface, over a unix socket or HTTP."""

from __future__ import annotations

import builtins
import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from gangline.client import api
from gangline.client.address import Address
from gangline.client.api import Call, EventPage
from gangline.client.lean import httpx
from gangline.client.retry import Retry
from gangline.client.transport import LIMITS, client_options, lost, read_reply, timeout
from gangline.model.errors import Conflict, NotFound, Unavailable
from gangline.model.gang import Ensured, GangView, LogChunk, Submission, UsageRow, Watched
from gangline.model.inventory import FleetChanges, Scaled
from gangline.model.node import NodeView, ServerStatus
from gangline.model.passes import Explanation, PassDetail, PassView
from gangline.model.volume import PointerView, VolumeView

T = TypeVar("T")

RETRY_S = 20.0
START_FIX = "start it with: gangline serve"
STOP_S = 600.0


class Client:
    """A connection to one server; safe to share between threads, and usable again after a fork.

    Calls that may be repeated without harm are, for up to `retry_s` seconds, when the server has
    answered before and now does not. `recover` finds or restarts the server in between. Every
    method raises `Unavailable` when no server answers, and the server's own error otherwise.
    """

    def __init__(self, address: Address, *, tenant: str | None = None,
                 recover: Callable[[], Address] | None = None, refusal: Conflict | None = None,
                 retry_s: float = RETRY_S) -> None:
        self.address = address
        self._tenant = tenant
        self._recover = recover
        self._refusal = refusal
        self._retry_s = retry_s
        self._reached = recover is not None
        self._lock = threading.Lock()
        self._http: httpx.Client | None = None
        self._retired: list[httpx.Client] = []
        self._owner_pid = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Give back the sockets. The next call opens new ones."""
        with self._lock:
            if self._http is not None and self._owner_pid == os.getpid():
                for http in (self._http, *self._retired):
                    http.close()
            self._http = None
            self._retired.clear()

    def status(self) -> ServerStatus:
        """What the server says of itself, its nodes and its load."""
        return self._send(api.status())

    def ensure(self, submission: Submission) -> Ensured:
        """The slot's gang, made if there is none, and the token to act for it."""
        return self.ensure_many([submission])[0]

    def ensure_many(self, submissions: Sequence[Submission]) -> builtins.list[Ensured]:
        """`ensure` for all of them or, if one is refused, for none."""
        return self._send(api.ensure_many([with_tenant(s, self._tenant) for s in submissions]))

    def observe(self, gang: str) -> GangView:
        """The gang of that id, or the one active gang of that name or prefix; `NotFound` otherwise."""
        return self._send(api.observe(gang))

    def list(self, state: str | Iterable[str] | None = None, slot_prefix: str | None = None,
             limit: int | None = None) -> builtins.list[GangView]:
        """Gangs, newest first, that are in one of these states and whose slot begins so."""
        return self._send(api.list_gangs(state, slot_prefix, limit))

    def watch(self, gang: str, token: str, cursor: int = 0, wait_s: float = 25.0) -> Watched:
        """News after `cursor`, waiting up to `wait_s` for some; renews the owner's claim.

        Raises `Superseded` when another owner acts for the slot now.
        """
        return self._send(api.watch(gang, token, cursor, wait_s))

    def events(self, gang: str, after: int = 0, wait_s: float = 0.0) -> EventPage:
        """Events of a gang after a cursor; needs no token."""
        return self._send(api.events(gang, after, wait_s))

    def logs(self, gang: str, rank: int = 0, attempt: int | None = None, offset: int = 0,
             wait_s: float = 0.0) -> LogChunk:
        """A piece of one rank's log from a byte offset. Without `attempt`, of the latest one.

        When a chunk names a later attempt than the one before it, read that attempt from offset 0.
        """
        return self._send(api.logs(gang, rank, attempt, offset, wait_s))

    def cancel(self, gang: str, token: str | None = None, reason: str = "") -> GangView:
        """Ask for the end of a gang. Without a token a person asks; an outdated token changes nothing."""
        return self._send(api.cancel(gang, token, reason))

    def cancel_slot(self, slot: str, epoch: int, reason: str = "") -> builtins.list[str]:
        """Cancel the slot's active gang if its epoch is not above `epoch`; the ids cancelled."""
        return self._send(api.cancel_slot(slot, epoch, reason))

    def nodes(self) -> builtins.list[NodeView]:
        return self._send(api.nodes())

    def drain(self, node: str, owner: str, reason: str = "") -> NodeView:
        """Let the node finish what it runs and give it nothing new, until this owner lifts it."""
        return self._send(api.drain(node, owner, reason))

    def undrain(self, node: str, owner: str) -> NodeView:
        return self._send(api.undrain(node, owner))

    def reload_fleet(self, *, text: str | None = None, dry_run: bool = False) -> FleetChanges:
        """Have the server follow its fleet file as it is now; a file it cannot follow changes nothing.

        With `dry_run`, only say what that would do; then `text` stands for what the file would hold.
        """
        return self._send(api.reload_fleet(text, dry_run))

    def scale(self, pool: str, nodes: int | None, *, dry_run: bool = False) -> Scaled:
        """Ask a pool to have so many nodes; None lets it follow its work again."""
        return self._send(api.scale(pool, nodes, dry_run))

    def has_blob(self, sha256: str) -> bool:
        """Whether the server holds the content of that SHA-256."""
        try:
            self._send(api.has_blob(sha256))
        except NotFound:
            return False
        return True

    def put_blob(self, sha256: str, source: Path | bytes) -> None:
        """Store content under its SHA-256; `Rejected` when the two do not agree."""
        self._send(api.put_blob(sha256), source)

    def volumes(self) -> builtins.list[VolumeView]:
        return self._send(api.volumes())

    def volume(self, name: str) -> VolumeView:
        return self._send(api.volume(name))

    def set_name(self, volume: str, name: str, version: int,
                 expected_revision: int | None = None) -> PointerView:
        """Point a name at a version. 0 expects a new name, None takes whatever is there; else `Conflict`."""
        return self._send(api.set_name(volume, name, version, expected_revision))

    def usage(self, by: str | Iterable[str] = "gang", from_ms: int | None = None,
              to_ms: int | None = None) -> builtins.list[UsageRow]:
        """The ledger of an interval by one or more of gang, attempt, node, tenant, slot, cause, pool."""
        return self._send(api.usage(by, from_ms, to_ms))

    def passes(self, before: int | None = None, limit: int | None = None) -> builtins.list[PassView]:
        """The newest passes of the loop that decided or said something new, or the newest before one of them."""
        return self._send(api.passes(before, limit))

    def get_pass(self, number: int, *, inputs: bool = False) -> PassDetail:
        """One pass with its plan, and with what it was made from if that was kept; `NotFound` when it is not."""
        return self._send(api.get_pass(number, inputs=inputs))

    def explain(self, gang: str) -> Explanation:
        """Why a gang waits, who is in its way, and which one change of its spec would help now."""
        return self._send(api.explain(gang))

    def stop(self, force: bool = False) -> int:
        """Stop the server and its nodes; its process id. `Conflict` while gangs are active, unless forced.

        Returns when the server has ended its nodes and is about to exit; forced, every active gang
        is cancelled and waited for first.
        """
        return self._send(api.stop(force, STOP_S))

    def _send(self, call: Call[T], content: Path | bytes | None = None) -> T:
        if self._refusal is not None and not call.always:
            raise self._refusal
        retry = Retry(call, self._retry_s)
        recover: Callable[[], Address] | None = None
        while True:
            try:
                if recover is not None:
                    self._move(recover())
                return self._once(call, content)
            except Unavailable as exc:
                if not self._reached:
                    raise
                time.sleep(retry.pause_s(exc))
                recover = self._recover

    def _once(self, call: Call[T], content: Path | bytes | None) -> T:
        http = self._open()
        try:
            response = _request(http, call, content)
        except httpx.TransportError as exc:
            raise lost(self.address, exc, START_FIX) from exc
        self._reached = True
        return read_reply(call, response)

    def _open(self) -> httpx.Client:
        with self._lock:
            # Connections inherited over a fork belong to the parent: never use or close them.
            if self._http is None or self._owner_pid != os.getpid():
                transport = None
                if self.address.socket:
                    transport = httpx.HTTPTransport(uds=self.address.socket, limits=LIMITS, verify=False)
                self._http = httpx.Client(transport=transport, limits=LIMITS, **client_options(self.address))
                self._owner_pid = os.getpid()
            return self._http

    def _move(self, address: Address) -> None:
        with self._lock:
            if address == self.address:
                return
            self.address = address
            if self._http is not None:
                self._retired.append(self._http)  # other threads may still be in a call on it
                self._http = None


def with_tenant(submission: Submission, tenant: str | None) -> Submission:
    """The submission in the connection's tenant, unless its spec names one itself."""
    if tenant is None or "tenant" in submission.spec.model_fields_set:
        return submission
    spec = submission.spec.model_copy(update={"tenant": tenant})
    return submission.model_copy(update={"spec": spec})


def _request(http: httpx.Client, call: Call[Any], content: Path | bytes | None) -> httpx.Response:
    if isinstance(content, Path):
        with open(content, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            return http.request(call.method, call.path, content=file, timeout=timeout(call),
                                headers={"Content-Length": str(size)})
    return http.request(call.method, call.path, params=dict(call.query), content=content, json=call.body,
                        timeout=timeout(call))
