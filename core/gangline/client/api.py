"""Every request a client can make, as a value: what is sent, how the answer is read, may it be repeated."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar
from urllib.parse import quote

from gangline.model.errors import Bug, GanglineError, NotFound, Rejected, Unavailable
from gangline.model.gang import Ensured, Event, GangView, LogChunk, Submission, UsageRow, Watched
from gangline.model.inventory import FleetChanges, Scaled
from gangline.model.node import NodeView, ServerStatus
from gangline.model.passes import Explanation, PassDetail, PassView
from gangline.model.volume import PointerView, VolumeView

T = TypeVar("T")

FLEET_S = 120.0  # a reload waits for the pass in progress, and a fleet may be large


class EventPage(NamedTuple):
    """Events after a cursor in order, and the cursor to ask with next."""

    events: tuple[Event, ...]
    cursor: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Call(Generic[T]):
    """One request. `hold_s` is how long the server may hold it; `repeat` says that twice is harmless."""

    method: str
    path: str
    read: Callable[[Any], T]
    query: Mapping[str, str] = field(default_factory=dict)
    body: Mapping[str, Any] | None = None
    hold_s: float = 0.0
    repeat: bool = True
    always: bool = False  # allowed even on a server of another version

    def answer(self, status: int, data: object) -> T:
        """The typed answer, or the error the server named."""
        if status >= 400:
            raise _error(status, data)
        try:
            return self.read(data)
        except (Rejected, KeyError, TypeError) as exc:
            raise Bug(f"the answer to {self.method} {self.path} is not understood: {exc}",
                      fix="use the same version of Gangline on both sides") from exc


def _error(status: int, data: object) -> GanglineError:
    if isinstance(data, Mapping) and "kind" in data:
        return GanglineError.from_wire(data)
    if status == 404:
        return NotFound("the server knows nothing of that name")
    if status in (502, 503, 504):
        return Unavailable(f"the server or a proxy before it answered {status}")
    return Bug(f"the server answered {status} without an error of Gangline's")


def _part(value: str) -> str:
    return quote(value, safe="")


def _query(**values: object) -> dict[str, str]:
    return {name.rstrip("_"): str(value) for name, value in values.items() if value is not None}


def status() -> Call[ServerStatus]:
    return Call(method="GET", path="/v1/status", read=ServerStatus.parse, always=True)


def ensure_many(submissions: Sequence[Submission]) -> Call[list[Ensured]]:
    return Call(method="POST", path="/v1/gangs/ensure", body={"submissions": [s.wire() for s in submissions]},
                read=lambda data: [Ensured.parse(item) for item in data["ensured"]])


def observe(gang: str) -> Call[GangView]:
    return Call(method="GET", path=f"/v1/gangs/{_part(gang)}", read=GangView.parse)


def list_gangs(state: str | Iterable[str] | None, slot_prefix: str | None,
               limit: int | None) -> Call[list[GangView]]:
    states = state if state is None or isinstance(state, str) else ",".join(state)
    return Call(method="GET", path="/v1/gangs",
                query=_query(state=states, slot_prefix=slot_prefix, limit=limit),
                read=lambda data: [GangView.parse(item) for item in data["gangs"]])


def watch(gang: str, token: str, cursor: int, wait_s: float) -> Call[Watched]:
    return Call(method="POST", path=f"/v1/gangs/{_part(gang)}/watch", hold_s=wait_s,
                body={"token": token, "cursor": cursor, "wait_s": wait_s}, read=Watched.parse)


def events(gang: str, after: int, wait_s: float) -> Call[EventPage]:
    def read(data: Any) -> EventPage:
        return EventPage(tuple(Event.parse(item) for item in data["events"]), int(data["cursor"]))

    return Call(method="GET", path=f"/v1/gangs/{_part(gang)}/events", hold_s=wait_s,
                query=_query(after=after, wait_s=wait_s), read=read)


def logs(gang: str, rank: int, attempt: int | None, offset: int, wait_s: float) -> Call[LogChunk]:
    return Call(method="GET", path=f"/v1/gangs/{_part(gang)}/logs", hold_s=wait_s, read=LogChunk.parse,
                query=_query(rank=rank, attempt=attempt, offset=offset, wait_s=wait_s))


def cancel(gang: str, token: str | None, reason: str) -> Call[GangView]:
    return Call(method="POST", path=f"/v1/gangs/{_part(gang)}/cancel", read=GangView.parse,
                body={"token": token, "reason": reason})


def cancel_slot(slot: str, epoch: int, reason: str) -> Call[list[str]]:
    return Call(method="POST", path="/v1/slots/cancel", body={"slot": slot, "epoch": epoch, "reason": reason},
                read=lambda data: [str(gang) for gang in data["cancelled"]])


def nodes() -> Call[list[NodeView]]:
    return Call(method="GET", path="/v1/nodes",
                read=lambda data: [NodeView.parse(item) for item in data["nodes"]])


def drain(node: str, owner: str, reason: str) -> Call[NodeView]:
    return Call(method="POST", path=f"/v1/nodes/{_part(node)}/drain", read=NodeView.parse,
                body={"owner": owner, "reason": reason})


def undrain(node: str, owner: str) -> Call[NodeView]:
    return Call(method="POST", path=f"/v1/nodes/{_part(node)}/undrain", read=NodeView.parse,
                body={"owner": owner})


def reload_fleet(text: str | None, dry_run: bool) -> Call[FleetChanges]:
    return Call(method="POST", path="/v1/fleet/reload", body={"text": text, "dry_run": dry_run}, hold_s=FLEET_S,
                read=FleetChanges.parse)


def scale(pool: str, nodes: int | None, dry_run: bool) -> Call[Scaled]:
    return Call(method="POST", path=f"/v1/pools/{_part(pool)}/scale", body={"nodes": nodes, "dry_run": dry_run},
                read=Scaled.parse)


def has_blob(sha256: str) -> Call[None]:
    return Call(method="HEAD", path=f"/v1/blobs/{_part(sha256)}", read=lambda _: None)


def put_blob(sha256: str) -> Call[None]:
    return Call(method="PUT", path=f"/v1/blobs/{_part(sha256)}", read=lambda _: None)


def volumes() -> Call[list[VolumeView]]:
    return Call(method="GET", path="/v1/volumes",
                read=lambda data: [VolumeView.parse(item) for item in data["volumes"]])


def volume(name: str) -> Call[VolumeView]:
    return Call(method="GET", path=f"/v1/volumes/{_part(name)}", read=VolumeView.parse)


def set_name(volume_: str, name: str, version: int, expected_revision: int | None) -> Call[PointerView]:
    # A repeated compare-and-swap would find its own first try and report a false conflict.
    return Call(method="PUT", path=f"/v1/volumes/{_part(volume_)}/names/{_part(name)}",
                body={"version": version, "expected_revision": expected_revision},
                repeat=expected_revision is None, read=PointerView.parse)


def usage(by: str | Iterable[str], from_ms: int | None, to_ms: int | None) -> Call[list[UsageRow]]:
    groups = by if isinstance(by, str) else ",".join(by)
    return Call(method="GET", path="/v1/usage", query=_query(by=groups, from_ms=from_ms, to_ms=to_ms),
                read=lambda data: [UsageRow.parse(item) for item in data["rows"]])


def passes(before: int | None, limit: int | None) -> Call[list[PassView]]:
    return Call(method="GET", path="/v1/passes", query=_query(before=before, limit=limit),
                read=lambda data: [PassView.parse(item) for item in data["passes"]])


def get_pass(number: int, *, inputs: bool) -> Call[PassDetail]:
    return Call(method="GET", path=f"/v1/passes/{number}", query=_query(inputs="true" if inputs else None),
                read=PassDetail.parse)


def explain(gang: str) -> Call[Explanation]:
    return Call(method="GET", path=f"/v1/gangs/{_part(gang)}/explain", read=Explanation.parse)


def stop(force: bool, hold_s: float) -> Call[int]:
    return Call(method="POST", path="/v1/stop", body={"force": force}, hold_s=hold_s, repeat=False,
                always=True, read=lambda data: int(data["pid"]))
