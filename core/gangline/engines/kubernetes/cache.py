"""A picture of one kind of object, kept true by one list and one watch however many gangs there are.

The list tells the point in time from which the watch goes on. A watch that ends or breaks is taken up where it
was; when the server no longer remembers that point (410 Gone), everything is listed again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

from gangline.engines.kubernetes.api import WATCH_S, Api, Gone, Object
from gangline.model.errors import GanglineError, Unavailable

T = TypeVar("T")

FIRST_S = 20.0  # how long the first list is waited for
STALE_S = WATCH_S + 30.0  # a healthy watch says something, if only that it ends, more often than this
_PAGE = "500"
_PAUSES_S = (0.2, 10.0)


class Cache(Generic[T]):
    """What `keep` makes of every object that the list has; objects of which it makes None are left out.

    `changed` is called, in the cache's own thread, after anything in it has changed.
    """

    def __init__(self, api: Api, path: str, params: Mapping[str, str], keep: Callable[[Object], T | None],
                 changed: Callable[[], None]) -> None:
        self._api, self._path, self._params, self._keep, self._changed = api, path, dict(params), keep, changed
        self._lock = threading.Condition()
        self._held: dict[str, T] = {}
        self._versions: dict[str, int] = {}  # of the objects held
        self._listed, self._closed = threading.Event(), threading.Event()
        self._trouble: GanglineError | None = None
        self._heard_s = 0.0
        self.version = 0  # everything up to this point in the server's time is in here
        self._thread = threading.Thread(target=self._run, name=f"watch {path}", daemon=True)

    def start(self) -> None:
        """Begin to list and watch."""
        self._heard_s = time.monotonic()
        self._thread.start()

    def close(self) -> None:
        """Stop; the connection must have been closed already, or this waits for the watch's end."""
        self._closed.set()
        if self._thread.is_alive():
            self._thread.join()

    def items(self) -> tuple[T, ...]:
        """Everything that is known.

        Raises:
            Unavailable: nothing was ever listed, or the server has not been heard for too long.
        """
        self._listed.wait(FIRST_S)
        if not self._listed.is_set() or time.monotonic() - self._heard_s > STALE_S:
            raise self._trouble or Unavailable(f"{self._path}: the API server has not been heard for a while")
        with self._lock:
            return tuple(self._held.values())

    def put(self, item: Object) -> None:
        """Take in what the server has just answered, so that it is not missed until the watch tells of it."""
        with self._lock:
            # What the watch has passed already it knows better: the object may be gone again.
            if _version(item) > self.version:
                self._take(item)

    def wait_for(self, version: int, within_s: float) -> bool:
        """Whether everything up to this version of the cluster has been heard of, in time."""
        with self._lock:
            return self._lock.wait_for(lambda: self.version >= version, within_s)

    def _take(self, item: Object) -> None:
        uid, version = item["metadata"]["uid"], _version(item)
        if version < self._versions.get(uid, 0):
            return
        kept = self._keep(item)
        if kept is None:
            self._drop(uid)
        else:
            self._held[uid], self._versions[uid] = kept, version

    def _drop(self, uid: str) -> None:
        self._held.pop(uid, None)
        self._versions.pop(uid, None)

    def _run(self) -> None:
        pause_s = _PAUSES_S[0]
        while not self._closed.is_set():
            try:
                if not self._listed.is_set():
                    self._list()
                self._watch()
                pause_s = _PAUSES_S[0]
            except Gone:
                self._listed.clear()
            except GanglineError as exc:
                self._trouble = exc
                self._closed.wait(pause_s)
                pause_s = min(2 * pause_s, _PAUSES_S[1])

    def _list(self) -> None:
        items: list[Object] = []
        params = {**self._params, "limit": _PAGE}
        while True:
            page = self._api.get(self._path, params)
            if page is None:
                raise Unavailable(f"the API server has no {self._path}")
            items += page.get("items") or ()
            more = page["metadata"].get("continue")
            if not more:
                break
            params["continue"] = more
        with self._lock:
            self.version = _version(page)
            self._held.clear()
            self._versions.clear()
            for item in items:
                self._take(item)
            self._lock.notify_all()
        self._heard()

    def _watch(self) -> None:
        for event in self._api.watch(self._path, {**self._params, "resourceVersion": str(self.version)}):
            if event["type"] == "ERROR":
                raise _trouble(event["object"], self._path)
            self._apply(event["type"], event["object"])
        self._heard_s = time.monotonic()  # it ended as it should

    def _apply(self, kind: str, item: Object) -> None:
        with self._lock:
            self.version = max(self.version, _version(item))
            if kind == "DELETED":
                self._drop(item["metadata"]["uid"])
            elif kind != "BOOKMARK":
                self._take(item)
            self._lock.notify_all()
        self._heard(changed=kind != "BOOKMARK")

    def _heard(self, *, changed: bool = True) -> None:
        self._heard_s, self._trouble = time.monotonic(), None
        self._listed.set()
        if changed:
            self._changed()


def _trouble(status: Object, path: str) -> GanglineError:
    words = f"the watch of {path}: {status.get('message') or status.get('reason')}"
    return Gone(words) if status.get("code") == 410 or status.get("reason") == "Expired" else Unavailable(words)


def _version(item: Object) -> int:
    # Numbers that grow, as the API promises since 1.35 and etcd's revisions have always been.
    return int(item["metadata"]["resourceVersion"])
