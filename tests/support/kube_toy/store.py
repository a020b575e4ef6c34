"""Objects with versions, and the history that watches are served from."""

from __future__ import annotations

import copy
import re
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

Object = dict[str, Any]
Key = tuple[str, str]  # namespace ("" without one) and name


@dataclass(frozen=True)
class Kind:
    group_version: str
    plural: str
    kind: str
    namespaced: bool = True

    @property
    def group(self) -> str:
        return self.group_version.rpartition("/")[0]


NODES, PODS = Kind("v1", "nodes", "Node", namespaced=False), Kind("v1", "pods", "Pod")
JOBS, JOBSETS = Kind("batch/v1", "jobs", "Job"), Kind("jobset.x-k8s.io/v1alpha2", "jobsets", "JobSet")
GROUPS = Kind("scheduling.k8s.io/v1beta1", "podgroups", "PodGroup")
SECRETS, SERVICES = Kind("v1", "secrets", "Secret"), Kind("v1", "services", "Service")
NAMESPACES = Kind("v1", "namespaces", "Namespace", namespaced=False)
ALL = (NODES, PODS, JOBS, JOBSETS, GROUPS, SECRETS, SERVICES, NAMESPACES)
FOREGROUND = "foregroundDeletion"


class Problem(Exception):
    """A refusal, as a v1 Status."""

    def __init__(self, code: int, reason: str, message: str, retry_after_s: int | None = None) -> None:
        super().__init__(message)
        self.code, self.reason, self.message, self.retry_after_s = code, reason, message, retry_after_s

    def status(self) -> Object:
        return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": self.message,
                "reason": self.reason, "code": self.code}


@dataclass(frozen=True)
class Change:
    version: int
    kind: Kind
    before: Object | None
    after: Object | None


@dataclass
class Store:
    """Every read is a copy; every write makes a new version and wakes whoever waits on `changed`."""

    changed: threading.Condition = field(default_factory=lambda: threading.Condition(threading.RLock()))
    version: int = 100
    objects: dict[Kind, dict[Key, Object]] = field(default_factory=lambda: {kind: {} for kind in ALL})
    history: list[Change] = field(default_factory=list)
    forgotten: int = 0  # watches from before this version are told 410

    def get(self, kind: Kind, namespace: str, name: str) -> Object:
        with self.changed:
            found = self.objects[kind].get((namespace, name))
            if found is None:
                raise Problem(404, "NotFound", f'{kind.plural} "{name}" not found')
            return copy.deepcopy(found)

    def list(self, kind: Kind, namespace: str = "") -> list[Object]:
        with self.changed:
            return [copy.deepcopy(item) for (space, _), item in sorted(self.objects[kind].items())
                    if not namespace or space == namespace]

    def create(self, kind: Kind, namespace: str, item: Object) -> Object:
        item = copy.deepcopy(item)
        meta = item.setdefault("metadata", {})
        name = meta.setdefault("name", f"{meta.get('generateName', '')}{uuid.uuid4().hex[:5]}")
        with self.changed:
            if (namespace, name) in self.objects[kind]:
                raise Problem(409, "AlreadyExists", f'{kind.plural} "{name}" already exists')
            meta |= {"uid": str(uuid.uuid4()), "creationTimestamp": now(), "generation": 1}
            if kind.namespaced:
                meta["namespace"] = namespace
            item |= {"apiVersion": kind.group_version, "kind": kind.kind}
            if kind is PODS:
                item.setdefault("status", {"phase": "Pending"})
            return self._put(kind, (namespace, name), item)

    def update(self, kind: Kind, namespace: str, name: str, item: Object, *, status: bool = False) -> Object:
        """Replace; a stale resourceVersion is a conflict. Either the status changes or everything but it."""
        with self.changed:
            held = self.get(kind, namespace, name)
            if item["metadata"].get("resourceVersion") not in (None, held["metadata"]["resourceVersion"]):
                raise Problem(409, "Conflict", f'Operation cannot be fulfilled on {kind.plural} "{name}": the object '
                              "has been modified; please apply your changes to the latest version and try again")
            new = copy.deepcopy(held if status else item)
            if status:
                new["status"] = copy.deepcopy(item.get("status", {}))
            elif "status" in held:
                new["status"] = held["status"]
            for fixed in ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"):
                if fixed in held["metadata"]:
                    new["metadata"][fixed] = held["metadata"][fixed]
            new["metadata"]["resourceVersion"] = held["metadata"]["resourceVersion"]
            return held if new == held else self._put(kind, (namespace, name), new)

    @contextmanager
    def changing(self, kind: Kind, item: Object) -> Iterator[Object]:
        """Any part of an object as it is now, to be changed by a controller."""
        meta = item["metadata"]
        key = (meta.get("namespace", ""), meta["name"])
        with self.changed:
            held = self.objects[kind].get(key)
            new = copy.deepcopy(held) if held is not None and held["metadata"]["uid"] == meta["uid"] else {}
            yield new
            if new and new != held:
                self._put(kind, key, new)

    def delete(self, kind: Kind, namespace: str, name: str, *, grace_s: int | None = None,
               foreground: bool = False) -> Object:
        """Pods on nodes get their grace; foreground marks the object and leaves it to the collector of garbage."""
        with self.changed:
            item = self.get(kind, namespace, name)
            meta = item["metadata"]
            over = item.get("status", {}).get("phase") in ("Succeeded", "Failed")
            if kind is PODS and item["spec"].get("nodeName") and grace_s != 0 and not over:
                grace = item["spec"].get("terminationGracePeriodSeconds", 30) if grace_s is None else grace_s
                if "deletionTimestamp" in meta and meta["deletionGracePeriodSeconds"] <= grace:
                    return item
                meta |= {"deletionTimestamp": now(), "deletionGracePeriodSeconds": grace}
                return self._put(kind, (namespace, name), item)
            if foreground:
                meta |= {"deletionTimestamp": now(), "deletionGracePeriodSeconds": 0, "finalizers": [FOREGROUND]}
                return self._put(kind, (namespace, name), item)
            return self.remove(kind, item)

    def remove(self, kind: Kind, item: Object) -> Object:
        """Take the object away, if it is still the same one."""
        key = (item["metadata"].get("namespace", ""), item["metadata"]["name"])
        with self.changed:
            held = self.objects[kind].get(key)
            if held is not None and held["metadata"]["uid"] == item["metadata"]["uid"]:
                del self.objects[kind][key]
                self.version += 1
                last = copy.deepcopy(held)
                last["metadata"]["resourceVersion"] = str(self.version)
                self.history.append(Change(self.version, kind, last, None))
                self.changed.notify_all()
            return item

    def forget(self) -> None:
        """Watches can no longer begin at any version there was before."""
        with self.changed:
            self.version += 1
            self.forgotten = self.version
            self.history.clear()
            self.changed.notify_all()

    def _put(self, kind: Kind, key: Key, item: Object) -> Object:
        before = self.objects[kind].get(key)
        self.version += 1
        item["metadata"]["resourceVersion"] = str(self.version)
        self.objects[kind][key] = item
        self.history.append(Change(self.version, kind, before, item))
        self.changed.notify_all()
        return copy.deepcopy(item)


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def owner(kind: Kind, item: Object) -> Object:
    """A controller's reference to an object that it made another one for."""
    return {"apiVersion": kind.group_version, "kind": kind.kind, "name": item["metadata"]["name"],
            "uid": item["metadata"]["uid"], "controller": True, "blockOwnerDeletion": True}


def merged(target: Any, patch: Any) -> Any:
    """A JSON merge patch, applied."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result


def selector(labels: str, fields: str) -> Callable[[Object], bool]:
    """Whether an object is selected: `k=v`, `k!=v`, `k in (a,b)`, `k`, `!k` for labels, `=` and `!=` for fields."""
    terms = [_label_term(term.strip()) for term in re.split(r",(?![^()]*\))", labels) if term.strip()]
    terms += [_field_term(term) for term in fields.split(",") if term]
    return lambda item: all(term(item) for term in terms)


def _label_term(term: str) -> Callable[[Object], bool]:
    def of(item: Object) -> dict[str, str]:
        found: dict[str, str] = item["metadata"].get("labels") or {}
        return found
    if match := re.fullmatch(r"(\S+) in \((.*)\)", term):
        key, values = match[1], {value.strip() for value in match[2].split(",")}
        return lambda item: of(item).get(key) in values
    if match := re.fullmatch(r"([^!=]+)(==?|!=)(.*)", term):
        key, same, value = match[1], match[2] != "!=", match[3]
        return lambda item: (of(item).get(key) == value) is same
    return lambda item: (term.lstrip("!") in of(item)) is not term.startswith("!")


def _field_term(term: str) -> Callable[[Object], bool]:
    match = re.fullmatch(r"([\w.]+?)(==?|!=)(.*)", term)
    assert match is not None, term
    path, same, value = match[1].split("."), match[2] != "!=", match[3]

    def selected(item: Object) -> bool:
        found: Any = item
        for part in path:
            found = found.get(part) if isinstance(found, dict) else None
        return ((found or "") == value) is same
    return selected
