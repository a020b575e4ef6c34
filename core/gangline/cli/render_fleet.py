"""Nodes, servers and checks of this machine as text. Pure functions over views."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from rich.text import Text

from gangline.cli.output import Lines, ago, clock, fields, span, state_text, table
from gangline.model.node import NodeView, RefusedPlan, ServerStatus, suspicious
from gangline.model.states import NodeLifecycle
from gangline.model.units import format_money


@dataclass(frozen=True, slots=True)
class Check:
    """One thing `doctor` looked at: "ok", "warn" or "fail", and how to mend it."""

    state: str
    what: str
    fix: str = ""


def node_state(node: NodeView) -> str:
    """One word for whether a node takes work."""
    if node.lifecycle is not NodeLifecycle.READY:
        return node.lifecycle.value
    if not node.healthy:
        return "unhealthy"
    return "drained" if node.drain else "ready"


def node_list(nodes: Sequence[NodeView]) -> Lines:
    """One node a line."""
    if not nodes:
        return [Text("no nodes")]
    rows = []
    for n in nodes:
        kind = f"{n.gpu_type}:{n.gpu_count}" + (" emulated" if n.emulated else "")
        place = "/".join(filter(None, (n.zone, n.fabric, *n.path))) + (f" [{n.domain}]" if n.domain else "")
        nano = n.price_nano_per_gpu_hour
        price = f"{format_money(nano, 2)} {n.currency}" if nano else ""
        why = f"{n.drain.reason} ({n.drain.owner})".strip() if n.drain else ""
        blamed = f"{len(n.strikes)} gangs, last {clock(n.strikes[-1].at_ms)}" if suspicious(n.strikes) else ""
        rows.append((n.node, n.pool, kind, state_text(node_state(n)), f"{len(n.free_gpus)}/{n.gpu_count}",
                     ", ".join(n.gangs), place, price, why, blamed))
    headers = ("NODE", "POOL", "GPUS", "STATE", "FREE", "GANGS", "PLACE", "PER GPU HOUR", "DRAINED FOR", "BLAMED BY")
    empty = {i for i in (7, 8, 9) if not any(row[i] for row in rows)}
    keep = [i for i in range(len(headers)) if i not in empty]
    return table([headers[i] for i in keep], [[row[i] for i in keep] for row in rows])


def server_status(status: ServerStatus, now_ms: int) -> Lines:
    """A server and its load."""
    count = Counter(node_state(n) for n in status.nodes)
    emulated = sum(n.emulated for n in status.nodes)
    nodes = ", ".join(f"{number} {state}" for state, number in sorted(count.items())) or "none"
    return [
        Text(f"gangline {status.version} answers at {status.url}"),
        *fields([
            ("process", f"{status.pid}, started {ago(status.started_ms, now_ms)}"),
            ("home", status.home or ""),
            ("fleet", status.fleet or "this machine as one node (no fleet file)"),
            ("nodes", nodes + (f" ({emulated} emulated)" if emulated else "")),
            ("gangs", f"{status.active_gangs} active, {status.queued_gangs} of them queued"),
            ("watchers", str(status.watchers)),
        ], indent="  "),
        *(_refused(status.refused_plan, now_ms) if status.refused_plan else ()),
    ]


def _refused(plan: RefusedPlan, now_ms: int) -> Lines:
    """That nothing starts, and what to do: the one thing here that nobody can leave as it is."""
    return [
        Text(f"  no plan has been accepted for {span(plan.since_ms, now_ms)}: nothing starts, what runs goes on",
             style="red"),
        *(Text(f"    {fault}") for fault in plan.faults),
        Text(f"    fix: this is a bug of Gangline; report it with what gangline plan --show {plan.number} --json says",
             style="dim"),
    ]


def check_list(checks: Sequence[Check]) -> Lines:
    """One check a line, with what to do where something is wrong."""
    lines: Lines = []
    for check in checks:
        lines.append(Text.assemble(state_text(check.state), " " * (6 - len(check.state)), check.what))
        if check.fix:
            lines.append(Text(f"      fix: {check.fix}", style="dim"))
    return lines
