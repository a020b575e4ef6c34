"""One planning pass on files: a fleet and a list of gangs in, the plan as JSON or as text out."""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pydantic import Field
from rich.console import Console
from rich.table import Table

from gangline.model.base import Wire
from gangline.model.errors import Bug, Rejected
from gangline.model.fleet import Fleet, NodeCondition
from gangline.model.spec import GangSpec
from gangline.model.units import format_duration
from gangline.plan.check import check
from gangline.plan.declared import node_state, policy_of, pool_state, tenant_state
from gangline.plan.outcome import Plan
from gangline.plan.planner import plan
from gangline.plan.policy import Policy
from gangline.plan.snapshot import (
    Held,
    NodeState,
    PendingGang,
    PoolState,
    RoleNeed,
    RunningGang,
    Snapshot,
)

_PARTS = ("placements", "capacity", "preemptions", "resizes", "retirements", "waiting", "reservations")


class Running(Wire):
    """Where a gang of the file already runs; `since_s` is on the clock of `submitted_s`."""

    nodes: tuple[str, ...] = Field(min_length=1)
    since_s: float = Field(default=0.0, ge=0)


class Entry(Wire):
    """What GANGS.yaml says of a gang beyond its spec. Seconds count from the start of the file's clock."""

    submitted_s: float = Field(default=0.0, ge=0)
    running: Running | None = None


def plan_files(fleet: Fleet, gangs: Sequence[Mapping[str, Any]], now_ms: int | None = None, *,
               policy: Policy | None = None,
               timer: Callable[[], float] = time.perf_counter) -> dict[str, Any]:
    """The JSON of `gangline plan`: what one pass over the files decides.

    `gangs` are GangSpecs with optional `submitted_s` and `running`; a gang is called by its name, later
    ones of the same name by name#2 and so on. All instants are seconds or milliseconds of one clock that
    starts at 0; `now_ms` defaults to the latest instant the file names. `timer` counts seconds.

    Raises:
        Rejected: an entry is wrong; its field is named as gangs[i].field.
    """
    entries = [_entry(raw, i) for i, raw in enumerate(gangs)]
    if now_ms is None:
        instants = [e.submitted_s for _, e in entries] + [e.running.since_s for _, e in entries if e.running]
        now_ms = _ms(max(instants, default=0.0))
    snapshot = _snapshot(fleet, entries, now_ms)
    policy = policy or policy_of(fleet.scheduling)
    started_s = timer()
    made = plan(snapshot, policy, now_ms)
    pass_ms = (timer() - started_s) * 1000
    broken = check(snapshot, made, policy)
    if broken:
        raise Bug(f"the plan breaks its own rules: {broken[0]}")
    return {**plan_json(made), "pass_ms": round(pass_ms, 3)}


def plan_json(made: Plan, attempts: Mapping[str, int] | None = None) -> dict[str, Any]:
    """A plan as `plan --json` shows it, without `pass_ms` and with rare parts only if there are any.

    `attempts` are the next attempts' numbers.
    """
    number = attempts or {}
    rare = {
        "resizes": [{"gang": r.gang, "size": r.size, "gives_up": list(r.nodes), "for": list(r.gangs)}
                    for r in made.resizes],
        "releases": [{"gang": r.gang, "nodes": list(r.nodes)} for r in made.releases],
        "retirements": [{"pool": r.pool, "nodes": list(r.nodes)} for r in made.retirements],
    }
    return {
        "placements": [
            {"gang": p.gang, "attempt": number.get(p.gang, 1),
             "nodes": [{"node": m.node, "gpus": list(m.gpus)} for m in p.nodes],
             "zone": p.zone or None, "fabric": p.fabric} for p in made.placements],
        "capacity": [{"pool": c.pool, "nodes": c.nodes, "for": list(c.gangs)} for c in made.capacity],
        "preemptions": [{"gang": v.gang, "for": list(v.gangs), "reclaim": v.reclaim} for v in made.preemptions],
        "waiting": [
            {"gang": gang,
             "reason": {"code": w.code.value, "text": w.text, "short": w.short,
                        "blocked_by": list(w.blocked_by)},
             "earliest_start_s": _s(w.earliest_ms)} for w in made.waiting for gang in w.gangs],
        "reservations": [{"gang": r.gang, "nodes": list(r.nodes), "at_s": _s(r.at_ms)}
                         for r in made.reservations],
        **{part: decided for part, decided in rare.items() if decided},
    }


def render_plan(made: Mapping[str, Any], *, width: int = 110, colour: bool = False) -> str:
    """The JSON of a plan as text for people, with terminal colours when asked."""
    console = Console(file=io.StringIO(), width=width, force_terminal=colour,
                      no_color=not colour, highlight=False)
    if made["placements"]:
        console.print(_table("starts now", ("gang", "nodes", "where"), [
            (p["gang"], _nodes(p["nodes"]), _where(p)) for p in made["placements"]]))
    if made["capacity"]:
        console.print(_table("asks for", ("pool", "nodes", "for"), [
            (c["pool"], f"+{c['nodes']}", ", ".join(c["for"]) or "keeping warm") for c in made["capacity"]]))
    if made["preemptions"] or made.get("resizes"):
        console.print(_table("makes room", ("gang", "how", "for"), [
            *((v["gang"], "ends and waits again", ", ".join(v["for"])) for v in made["preemptions"]),
            *((r["gang"], f"goes on with {r['size']} nodes", ", ".join(r["for"])) for r in made.get("resizes", ()))]))
    if made.get("retirements"):
        console.print(_table("gives back", ("pool", "nodes"), [
            (r["pool"], ", ".join(r["nodes"])) for r in made["retirements"]]))
    if made["waiting"]:
        console.print(_table("waits", ("gang", "why", "short", "earliest start"), [
            (w["gang"], f"{w['reason']['code']}: {w['reason']['text']}", str(w["reason"]["short"]),
             _when(w["earliest_start_s"])) for w in made["waiting"]]))
    if made["reservations"]:
        console.print(_table("keeps", ("for", "nodes", "until"), [
            (r["gang"], ", ".join(r["nodes"]), _when(r["at_s"])) for r in made["reservations"]]))
    if not any(made.get(part) for part in _PARTS):
        console.print("nothing to do: no gang is pending")
    if "pass_ms" in made:
        console.print(f"one pass took {made['pass_ms']:.1f} ms", style="dim")
    text = console.file.getvalue()  # type: ignore[attr-defined]
    return "\n".join(line.rstrip() for line in text.rstrip().splitlines())


def _entry(raw: Mapping[str, Any], index: int) -> tuple[GangSpec, Entry]:
    where = f"gangs[{index}]"
    if not isinstance(raw, Mapping):
        raise Rejected("expected a gang: a mapping with name, size, gpu and command", field=where)
    extra = {key: raw[key] for key in ("submitted_s", "running") if key in raw}
    spec = GangSpec.parse({k: v for k, v in raw.items() if k not in extra}, where=where)
    try:
        spec.refuse_unsupported()
    except Rejected as exc:
        raise Rejected(exc.message, field=f"{where}.{exc.field}", fix=exc.fix) from None
    return spec, Entry.parse(extra, where=where)


def _snapshot(fleet: Fleet, entries: list[tuple[GangSpec, Entry]], now_ms: int) -> Snapshot:
    nodes = {node.name: node_state(node, fleet.pool(node.pool), now_ms) for node in fleet.all_nodes()}
    free = {name: list(node.free_gpus) for name, node in nodes.items()}
    ids = _ids([spec.name for spec, _ in entries])
    running, pending = [], []
    for index, (gang, (spec, entry)) in enumerate(zip(ids, entries, strict=True)):
        if entry.running is None:
            pending.append(PendingGang.of(spec, gang, submitted_ms=_ms(entry.submitted_s)))
        else:
            holds = _holds(spec, entry.running, nodes, free, f"gangs[{index}].running.nodes")
            running.append(_running(gang, spec, entry.running, holds))
    return Snapshot.of(
        version=0, tenants=map(tenant_state, fleet.tenants), pools=_pools_of(fleet), pending=tuple(pending),
        running=tuple(running),
        nodes=tuple(replace(node, free_gpus=tuple(free[name])) for name, node in nodes.items()))


def _pools_of(fleet: Fleet) -> tuple[PoolState, ...]:
    there = [n.pool for n in fleet.all_nodes() if n.state is not NodeCondition.GONE]
    return tuple(pool_state(pool, there.count(pool.name), proved=True) for pool in fleet.pools)


def _running(gang: str, spec: GangSpec, running: Running, holds: tuple[Held, ...]) -> RunningGang:
    ends_by_s = None if spec.timeout is None else running.since_s + spec.timeout
    elastic = spec.most > spec.nodes
    return RunningGang(
        gang=gang, name=spec.name, slot="", tenant=spec.tenant, priority=spec.priority, holds=holds,
        since_ms=_ms(running.since_s), ends_by_ms=None if ends_by_s is None else _ms(ends_by_s),
        preemptible=spec.retries.preempted != 0, grace_ms=_ms(spec.grace),
        least=spec.nodes if elastic else 0, most=spec.most if elastic else 0,
        again=PendingGang.of(spec, gang) if elastic else None)


def _holds(spec: GangSpec, running: Running, nodes: Mapping[str, NodeState], free: dict[str, list[int]],
           field: str) -> tuple[Held, ...]:
    """What a running gang takes of its nodes, taken out of `free`."""
    more = len(running.nodes) - spec.nodes
    if not 0 <= more <= spec.most - spec.nodes:
        raise Rejected(f"names {len(running.nodes)} nodes; the gang has {spec.size if not spec.roles else spec.nodes}",
                       field=field)
    needs = [role for role in RoleNeed.all_of(spec) for _ in range(role.size + more)]
    holds = []
    for name, role in zip(running.nodes, needs, strict=True):
        node = nodes.get(name)
        if node is None or node.gone:
            raise Rejected(f"the fleet has no node {name}", field=field, fix="use a node of the fleet file")
        ask = next((a for a in role.asks if a.type == node.gpu.type and a.count <= node.gpu.count), None)
        if ask is None:
            raise Rejected(f"node {name} is {node.gpu}, which the gang does not ask for", field=field)
        count = ask.count if spec.most == 1 else node.gpu.count
        if count > len(free[name]):
            raise Rejected(f"node {name} has {len(free[name])} of the {count} GPUs free; another gang of the "
                           "file runs there", field=field)
        gpus, free[name] = tuple(free[name][:count]), free[name][count:]
        holds.append(Held(node=name, gpus=gpus))
    return tuple(holds)


def _ids(names: list[str]) -> list[str]:
    seen: dict[str, int] = {}
    ids = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        ids.append(name if seen[name] == 1 else f"{name}#{seen[name]}")
    return ids


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


def _s(at_ms: int | None) -> float | None:
    return None if at_ms is None else at_ms / 1000


def _table(title: str, heads: Sequence[str], rows: Sequence[tuple[str, ...]]) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    for head in heads:
        table.add_column(head, overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table


def _nodes(members: Sequence[Mapping[str, Any]]) -> str:
    return ", ".join(f"{m['node']}[{_ranges(m['gpus'])}]" for m in members)


def _ranges(numbers: Sequence[int]) -> str:
    """0,1,2,5 as "0-2,5"."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def _where(placement: Mapping[str, Any]) -> str:
    parts = [placement["zone"] or "several zones", placement["fabric"] or ""]
    return " / ".join(part for part in parts if part)


def _when(at_s: float | None) -> str:
    return "unknown" if at_s is None else f"at {format_duration(at_s)}"
