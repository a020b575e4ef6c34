"""The API over HTTP: the verbs, selectors, watches and refusals that clients of a real server meet."""

from __future__ import annotations

import json
import re
import ssl
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from kube_toy import checking
from kube_toy.rights import Act, Rights
from kube_toy.store import ALL, GROUPS, PODS, Kind, Object, Problem, Store, merged, selector

_PATH = re.compile(r"/(?:api/(?P<core>v1)|apis/(?P<group>[^/]+/[^/]+))(?:/namespaces/(?P<namespace>[^/]+)(?=/))?"
                   r"/(?P<plural>[a-z]+)(?:/(?P<name>[^/]+))?(?:/(?P<sub>[a-z]+))?")
_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch"}


@dataclass(frozen=True)
class Ask:
    """One request, understood."""

    method: str
    kind: Kind
    namespace: str
    name: str
    sub: str
    query: dict[str, str]

    @property
    def verb(self) -> str:
        if self.method == "GET":
            return "get" if self.name else "watch" if self.query.get("watch") in ("true", "1") else "list"
        return _VERBS.get(self.method) or ("delete" if self.name else "deletecollection")

    @property
    def act(self) -> Act:
        what = f"{self.kind.plural}/{self.sub}" if self.sub else self.kind.plural
        return Act(self.verb, self.kind.group, what, self.namespace, self.name)


@dataclass
class Faults:
    """What goes wrong next: `refusals` are given to the requests that match, one each, before anything is done;
    `losses` do what was asked and then give no answer."""

    refusals: list[tuple[Callable[[Ask], bool], Problem]] = field(default_factory=list)
    losses: list[Callable[[Ask], bool]] = field(default_factory=list)

    def refusal(self, ask: Ask) -> Problem | None:
        index = next((index for index, (match, _) in enumerate(self.refusals) if match(ask)), None)
        return None if index is None else self.refusals.pop(index)[1]

    def loses(self, ask: Ask) -> bool:
        index = next((index for index, match in enumerate(self.losses) if match(ask)), None)
        if index is not None:
            del self.losses[index]
        return index is not None


class ApiServer:
    """Listens on loopback with TLS, as kubectl sends tokens over nothing else; `tokens` says who may do what, None
    standing for everything."""

    def __init__(self, store: Store, tokens: dict[str, Rights | None], log: Callable[[Object], str | None], *,
                 certificate: tuple[Path, Path], groups: bool = True) -> None:
        self.store, self.tokens, self.log = store, tokens, log
        self.kinds = tuple(kind for kind in ALL if groups or kind is not GROUPS)
        self.faults = Faults()
        self.asked: list[Ask] = []
        self.epoch = 0  # watches of an earlier one are cut
        self.closing = False
        self._server = _Server(("127.0.0.1", 0), type("Handler", (_Handler,), {"api": self}))
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(*certificate)
        # The handshake belongs to the thread of the connection, not to the one that accepts.
        self._server.socket = tls.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), name="toy-api", daemon=True)
        self._thread.start()
        self.url = f"https://127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        self.closing = True
        self.cut_watches()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def cut_watches(self) -> None:
        with self.store.changed:
            self.epoch += 1
            self.store.changed.notify_all()

    def answer(self, ask: Ask, body: Object) -> Object:
        """What the request gives, watches and logs apart."""
        store, kind, space, name = self.store, ask.kind, ask.namespace, ask.name
        match ask.verb:
            case "get":
                return store.get(kind, space, name)
            case "list":
                return self._list(ask)
            case "create":
                checking.check(kind, body, strict=ask.query.get("fieldValidation") == "Strict")
                return store.create(kind, space, body)
            case "update" | "patch":
                return self._changed(ask, body)
            case "delete":
                return self._deleted(ask, body, name)
            case _:
                chosen = selector(ask.query.get("labelSelector", ""), ask.query.get("fieldSelector", ""))
                for item in filter(chosen, store.list(kind, space)):
                    self._deleted(ask, body, item["metadata"]["name"])
                return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}

    def _list(self, ask: Ask) -> Object:
        with self.store.changed:
            chosen = selector(ask.query.get("labelSelector", ""), ask.query.get("fieldSelector", ""))
            items = list(filter(chosen, self.store.list(ask.kind, ask.namespace)))
            first, limit = int(ask.query.get("continue") or 0), int(ask.query.get("limit") or 0) or len(items)
            meta = {"resourceVersion": str(self.store.version)}
            if first + limit < len(items):
                meta["continue"] = str(first + limit)
            return {"apiVersion": ask.kind.group_version, "kind": f"{ask.kind.kind}List", "metadata": meta,
                    "items": items[first:first + limit]}

    def _changed(self, ask: Ask, body: Object) -> Object:
        store = self.store
        with store.changed:
            held = store.get(ask.kind, ask.namespace, ask.name)
            new = body
            if ask.verb == "patch":
                new = merged(held, body)
                told = (body.get("metadata") or {}).get("resourceVersion")
                new["metadata"]["resourceVersion"] = told or held["metadata"]["resourceVersion"]
            if ask.sub != "status":
                checking.check_change(ask.kind, held, new)
            return store.update(ask.kind, ask.namespace, ask.name, new, status=ask.sub == "status")

    def _deleted(self, ask: Ask, options: Object, name: str) -> Object:
        policy = options.get("propagationPolicy") or ask.query.get("propagationPolicy")
        told = options.get("gracePeriodSeconds", ask.query.get("gracePeriodSeconds"))
        return self.store.delete(ask.kind, ask.namespace, name, foreground=policy == "Foreground",
                                 grace_s=None if told is None else int(told))

    def events(self, ask: Ask) -> Iterator[Object]:
        """The events of a watch; a bookmark wherever something has happened that was not selected."""
        chosen = selector(ask.query.get("labelSelector", ""), ask.query.get("fieldSelector", ""))
        store, since, epoch = self.store, int(ask.query.get("resourceVersion") or 0), self.epoch
        while epoch == self.epoch:
            with store.changed:
                if since < store.forgotten:
                    yield {"type": "ERROR", "object": Problem(410, "Expired", "too old resource version").status()}
                    return
                changes, version = [change for change in store.history if change.version > since], store.version
                if version == since:
                    store.changed.wait(5.0)
                    if version == store.version:
                        yield _bookmark(ask.kind, version)
                    continue
            for change in changes:
                if change.kind is ask.kind and (event := _event(change, ask.namespace, chosen)):
                    yield event
            since = version
            yield _bookmark(ask.kind, version)

    def discovery(self, path: str) -> Object | None:
        """What kubectl asks before anything else."""
        groups = sorted({kind.group_version for kind in self.kinds} - {"v1"})
        if path == "/version":
            return {"major": "1", "minor": "37", "gitVersion": "v1.37.0-toy"}
        if path == "/api":
            return {"kind": "APIVersions", "versions": ["v1"]}
        if path == "/apis":
            entries = [{"groupVersion": name, "version": name.split("/")[1]} for name in groups]
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [
                {"name": entry["groupVersion"].split("/")[0], "versions": [entry], "preferredVersion": entry}
                for entry in entries]}
        version = path.removeprefix("/apis/") if path.startswith("/apis/") else path.removeprefix("/api/")
        if version not in (*groups, "v1"):
            return None
        verbs = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
        return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": [
            {"name": kind.plural, "singularName": kind.kind.lower(), "kind": kind.kind, "namespaced": kind.namespaced,
             "verbs": verbs} for kind in self.kinds if kind.group_version == version]}

    def understand(self, method: str, target: str) -> Ask:
        parts = urlsplit(target)
        match = _PATH.fullmatch(parts.path)
        kind = next((kind for kind in self.kinds if match and kind.plural == match["plural"]
                     and kind.group_version == (match["core"] or match["group"])), None)
        if match is None or kind is None:
            raise Problem(404, "NotFound", "the server could not find the requested resource")
        query = {key: values[-1] for key, values in parse_qs(parts.query, keep_blank_values=True).items()}
        return Ask(method, kind, unquote(match["namespace"] or ""), unquote(match["name"] or ""), match["sub"] or "",
                   query)

    def admit(self, ask: Ask, token: str) -> None:
        if token not in self.tokens:
            raise Problem(401, "Unauthorized", "Unauthorized")
        rights = self.tokens[token]
        if rights is not None and not rights.allow(ask.act):
            raise Problem(403, "Forbidden", f"{ask.act.resource} is forbidden: this user cannot {ask.verb} resource "
                          f'"{ask.act.resource}" in API group "{ask.act.group}"')
        if (refusal := self.faults.refusal(ask)) is not None:
            raise refusal


def _bookmark(kind: Kind, version: int) -> Object:
    return {"type": "BOOKMARK", "object": {"kind": kind.kind, "apiVersion": kind.group_version,
                                           "metadata": {"resourceVersion": str(version)}}}


def _event(change: Any, namespace: str, chosen: Callable[[Object], bool]) -> Object | None:
    before, after = (item if item is not None and namespace in ("", item["metadata"].get("namespace"))
                     and chosen(item) else None for item in (change.before, change.after))
    if before is None and after is None:
        return None
    if after is None:
        last = {**before, "metadata": {**before["metadata"], "resourceVersion": str(change.version)}}
        return {"type": "DELETED", "object": last}
    return {"type": "MODIFIED" if before is not None else "ADDED", "object": after}


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128


class _Handler(BaseHTTPRequestHandler):
    api: ApiServer
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def serve(self) -> None:
        try:
            self._serve()
        except Problem as problem:
            self.reply(problem.code, problem.status(), problem.retry_after_s)
        except OSError:
            self.close_connection = True

    def _serve(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        text = self.rfile.read(length)
        found = self.api.discovery(urlsplit(self.path).path) if self.command == "GET" else None
        if found is not None:
            self.reply(200, found)
            return
        ask = self.api.understand(self.command, self.path)
        self.api.asked.append(ask)
        self.api.admit(ask, self.headers.get("Authorization", "").removeprefix("Bearer "))
        if ask.verb == "watch":
            self.stream(self.api.events(ask))
        elif ask.kind is PODS and ask.sub == "log":
            self.tell(self.api.log(self.api.store.get(PODS, ask.namespace, ask.name)))
        else:
            answer = self.api.answer(ask, json.loads(text) if text else {})
            if self.api.faults.loses(ask):
                self.close_connection = True
                return
            self.reply(201 if ask.verb == "create" else 200, answer)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = serve

    def reply(self, code: int, body: Object, retry_after_s: int | None = None) -> None:
        self.send(code, json.dumps(body).encode(), "application/json", retry_after_s)

    def tell(self, text: str | None) -> None:
        if text is None:
            raise Problem(400, "BadRequest", "the container is waiting to start")
        self.send(200, text.encode(), "text/plain")

    def send(self, code: int, data: bytes, kind: str, retry_after_s: int | None = None) -> None:
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        if retry_after_s is not None:
            self.send_header("Retry-After", str(retry_after_s))
        self.end_headers()
        self.wfile.write(data)

    def stream(self, events: Iterator[Object]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for event in events:
            line = json.dumps(event).encode() + b"\n"
            self.wfile.write(f"{len(line):x}\r\n".encode() + line + b"\r\n")
        self.close_connection = True  # cut, without the last chunk

    def log_message(self, format: str, *args: object) -> None:
        return
