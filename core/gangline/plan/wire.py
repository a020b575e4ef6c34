"""Snapshots, policies and plans as JSON that later releases read back: how a pass is kept and made again.

What a reader does not find it takes for the default, what it does not know it passes over; anything
else needs another `FORMAT`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any, TypeVar

from gangline.model.gpu import GpuAsk, parse_gpu
from gangline.plan.fleet import DOWN_MS, FleetMap
from gangline.plan.outcome import (
    CapacityRequest,
    NodeChoice,
    Placement,
    Plan,
    Preemption,
    Release,
    Reservation,
    Resize,
    Retirement,
    WaitCode,
    Waiting,
)
from gangline.plan.policy import Order, Policy
from gangline.plan.snapshot import (
    Held,
    NodeState,
    PendingGang,
    PoolState,
    Promise,
    RoleNeed,
    RunningGang,
    Snapshot,
    TenantState,
)

FORMAT = 1
_COLUMNS = ("gang", "name", "slot", "tenant", "priority", "submitted_ms", "limit_ms", "likely_ms", "since_ms", "most")
_KIND = ("roles", "rdma", "zone", "pool", "within", "exclude", "domain_size")
_RARE = ("held", "promise")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Inputs:
    """What a pass decided by: together with the planner's release, all there is to its plan."""

    snapshot: Snapshot
    policy: Policy
    now_ms: int


class Writer:
    """Writes inputs in pieces, so that a big fleet does not stop the world. It keeps what rarely changes."""

    def __init__(self) -> None:
        self._map: FleetMap | None = None
        self._facts = ""

    def pieces(self, inputs: Inputs) -> Iterator[str]:
        """JSON text of inputs, to be joined. Nothing of the snapshot may change meanwhile."""
        snapshot = inputs.snapshot
        yield f'{{"format":{FORMAT},"version":{snapshot.version},"now_ms":{inputs.now_ms},"policy":'
        yield _text(plain(inputs.policy))
        for name, values in (("pools", snapshot.pools), ("tenants", snapshot.tenants), ("running", snapshot.running)):
            yield f',"{name}":{_text([plain(value) for value in values])}'
        yield f',"nodes":{self._nodes(snapshot.fleet.map)}'
        yield from _state(snapshot)
        yield from _queue(snapshot)
        yield "}"

    def _nodes(self, fleet_map: FleetMap) -> str:
        if self._map is not fleet_map:
            there = [node for node, virtual in zip(fleet_map.values, fleet_map.virtual, strict=True) if not virtual]
            self._facts = _text([[node.name, node.pool, str(node.gpu), node.zone, node.fabric, node.path, node.domain,
                                  int(node.emulated), node.realm] for node in there])
            self._map = fleet_map
        return self._facts


def read_inputs(data: Mapping[str, Any]) -> Inputs:
    """Inputs as `Writer` wrote them; ValueError for another format."""
    if data["format"] != FORMAT:
        raise ValueError(f"format {data['format']}, not {FORMAT}")
    nodes = [_node(facts, *state) for facts, *state in zip(data["nodes"], data["free"], data["base"], data["idle"],
                                                            strict=True)]
    return Inputs(
        Snapshot.of(version=data["version"], nodes=nodes, pools=_many(PoolState, data["pools"]),
                    pending=_pending(data["queue"]), running=_many(RunningGang, data["running"]),
                    tenants=_many(TenantState, data["tenants"])),
        made(Policy, data["policy"]), data["now_ms"])


def plan_json(plan: Plan) -> dict[str, Any]:
    """A plan as plain JSON values, what is empty left out."""
    found: dict[str, Any] = plain(plan)
    return found


def read_plan(data: Mapping[str, Any]) -> Plan:
    """A plan as `plan_json` wrote it."""
    return made(Plan, data)


def _state(snapshot: Snapshot) -> Iterator[str]:
    fleet = snapshot.fleet
    rows = (~fleet.map.virtual).nonzero()[0]
    # Free GPUs as bits: who leases the others, and until when, follows from the gangs.
    yield f',"free":{_text([_bits(free) for free in (fleet.until[rows] == 0).tolist()])}'
    yield f',"base":{_text(fleet.base[rows].tolist())},"idle":{_text(fleet.idle[rows].tolist())}'


def _queue(snapshot: Snapshot) -> Iterator[str]:
    gangs = snapshot.queue.gangs
    kinds: dict[tuple[Any, ...], int] = {}
    kind = [kinds.setdefault(gang.signature, len(kinds)) for gang in gangs]
    heads = dict(zip(reversed(kind), reversed(gangs), strict=True))
    yield f',"queue":{{"kinds":{_text([_some(heads[number], _KIND) for number in range(len(kinds))])}'
    yield f',"kind":{_text(kind)}'
    for name in _COLUMNS:
        yield f',"{name}":{_text([getattr(gang, name) for gang in gangs])}'
    rare = {gang.gang: _some(gang, _RARE) for gang in gangs if gang.held or gang.promise is not None}
    yield f',"rare":{_text(rare)}}}'


def _pending(queue: Mapping[str, Any]) -> Iterator[PendingGang]:
    kinds = [_values(PendingGang, kind) for kind in queue["kinds"]]
    columns = [(name, queue[name]) for name in _COLUMNS if name in queue]
    for at, number in enumerate(queue["kind"]):
        values = {name: column[at] for name, column in columns}
        yield PendingGang(**values, **kinds[number], **_values(PendingGang, queue["rare"].get(values["gang"], {})))


def _node(facts: list[Any], free: int, base: int, idle_ms: int) -> NodeState:
    name, pool, gpu, zone, fabric, path, domain, emulated, *realm = facts
    ask = parse_gpu(gpu)
    return NodeState(
        name=name, pool=pool, gpu=ask, zone=zone, fabric=fabric, path=tuple(path), domain=domain,
        emulated=bool(emulated), realm=realm[0] if realm else "",
        free_gpus=tuple(gpu for gpu in range(ask.count) if free >> gpu & 1),
        usable=base == 0, usable_ms=base if 0 < base < DOWN_MS else 0, idle_ms=idle_ms)


def _bits(free: list[bool]) -> int:
    return sum(1 << gpu for gpu, is_free in enumerate(free) if is_free)


def plain(value: Any) -> Any:
    """A planner's value as plain JSON: fields by name, those at their default left out."""
    match value:
        case GpuAsk():
            return str(value)
        case NodeChoice():
            return [value.node, list(value.gpus), str(value.ask), value.role]
        case Held():
            return [value.node, list(value.gpus)]
        case str() | int() | float() | None:
            return value
        case frozenset():
            return sorted(value)
        case tuple():
            # A backlog's reasons name all its gangs, and names are plain.
            return list(value) if value and type(value[0]) is str else [plain(item) for item in value]
        case _:
            return {field.name: plain(item) for field in fields(value)
                    if (item := getattr(value, field.name)) != field.default}


def _some(value: Any, names: Iterable[str]) -> dict[str, Any]:
    return {name: plain(getattr(value, name)) for name in names}


def made(kind: type[T], data: Mapping[str, Any]) -> T:
    """A value of a planner's class from what `plain` made of it."""
    return kind(**_values(kind, data))


def _values(kind: type, data: Mapping[str, Any]) -> dict[str, Any]:
    return {field.name: _READ.get((kind, field.name), _same)(data[field.name])
            for field in fields(kind) if field.name in data}


def _same(value: Any) -> Any:
    return tuple(_same(item) for item in value) if isinstance(value, list) else value


def _held(value: list[list[Any]]) -> tuple[Held, ...]:
    return tuple(Held(node=node, gpus=tuple(gpus)) for node, gpus in value)


def _asks(value: list[str]) -> tuple[GpuAsk, ...]:
    return tuple(map(parse_gpu, value))


def _choices(value: list[list[Any]]) -> tuple[NodeChoice, ...]:
    return tuple(NodeChoice(node, tuple(gpus), parse_gpu(ask), role) for node, gpus, ask, role in value)


def _of(kind: type[T]) -> Callable[[Any], tuple[T, ...]]:
    return lambda value: _many(kind, value)


def _one(kind: type[T]) -> Callable[[Any], T | None]:
    return lambda value: None if value is None else made(kind, value)


def _many(kind: type[T], values: Iterable[Mapping[str, Any]]) -> tuple[T, ...]:
    return tuple(made(kind, value) for value in values)


def _text(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


# How fields are read that are not plain values or tuples of them.
_READ: dict[tuple[type, str], Callable[[Any], Any]] = {
    (Policy, "order"): Order, (Policy, "backfill"): Order, (PoolState, "gpu"): parse_gpu, (RunningGang, "holds"): _held,
    (RunningGang, "again"): _one(PendingGang), (PendingGang, "roles"): _of(RoleNeed), (RoleNeed, "asks"): _asks,
    (PendingGang, "held"): _held, (PendingGang, "exclude"): frozenset, (PendingGang, "promise"): _one(Promise),
    (Placement, "nodes"): _choices, (Waiting, "code"): WaitCode, (Plan, "placements"): _of(Placement),
    (Plan, "capacity"): _of(CapacityRequest), (Plan, "releases"): _of(Release),
    (Plan, "reservations"): _of(Reservation), (Plan, "preemptions"): _of(Preemption), (Plan, "resizes"): _of(Resize),
    (Plan, "retirements"): _of(Retirement), (Plan, "waiting"): _of(Waiting)}
