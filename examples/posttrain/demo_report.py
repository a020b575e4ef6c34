"""What the demo prints of its gangs, its ledger and its models."""

from pathlib import Path

from rich.console import Console
from rich.markdown import Markdown
from rich.table import Table

import gangline
from gangline.model.gang import GangView, VersionRef
from gangline.model.states import GangState
from gangline.model.units import format_duration, format_money
from posttrain import plot
from posttrain.promote import BEST, find_name
from posttrain.steps import ADAPTER

TOLERANCE_BITS = 1e-3  # of bits per byte, between two runs with the same seed
PROGRESS_PARTS = 4


def host_of(view: GangView) -> str:
    """Who asked for a gang: the part of its slot before the first colon."""
    return view.slot.partition(":")[0] if ":" in view.slot else "python"


def news(view: GangView) -> str:
    """One line about a gang that changes only when something worth telling did."""
    name = f"{host_of(view):8} {view.name:10} {view.spec.args.get('package', ''):12}"
    if view.state is GangState.QUEUED and view.wait is not None:
        return f"{name} waits: {view.wait.text}"
    where = f" on {', '.join(n.node for n in view.attempts[-1].nodes)}" if view.attempts else ""
    return f"{name} {view.state}{where}{_progress(view)}"


def show(client: gangline.Client, console: Console, folder: Path, *, since_ms: int) -> bool:
    """Print the report; whether both pipelines came to the same scores."""
    gangs = sorted((g for g in client.list(limit=1000) if g.submitted_ms >= since_ms), key=lambda g: g.submitted_ms)
    events = {g.gang: client.events(g.gang).events for g in gangs}
    console.rule("gangs")
    console.print(_gang_table(gangs, events))
    console.rule("cost by cause, of everything this fleet ever ran")
    console.print(_usage_table(client))
    console.rule("versions")
    for view in gangs:
        for version in view.versions:
            console.print(f"  {host_of(view):8} {view.name:10} {version.uri:12} {_facts(version)}")
    return _show_models(client, console, folder, gangs)


def _show_models(client: gangline.Client, console: Console, folder: Path, gangs: list[GangView]) -> bool:
    scores: dict[str, list[dict[str, float]]] = {}
    curves = {}
    for view in gangs:
        if view.name == "evaluate":
            scores.setdefault(host_of(view), []).append(view.result)
        elif view.name == "finetune":
            curves[host_of(view)] = view.result["curve"]
    for host, table in sorted(scores.items()):
        console.rule(f"bits per byte, from {host}")
        first, last = curves[host][0][1], curves[host][-1][1]
        console.print(f"  fine-tuning loss {first:.3f} -> {last:.3f} nats per byte")
        console.print(Markdown(plot.score_table(sorted(table, key=lambda s: s["package"]))))
        plot.loss_curve(curves[host], folder / f"loss-{host}.png")
    apart = _furthest(scores)
    console.print(f"The pipelines differ by at most {apart:.1e} bits per byte (same seed; {TOLERANCE_BITS:g} allowed).")
    best = find_name(client, ADAPTER, BEST)
    console.print(f"promoted: adapter@{BEST} is adapter@{best.version}" if best else "nothing was promoted")
    console.print(f"files: {folder / 'home' / 'volumes'} (volumes), {folder}/loss-*.png (loss), {folder}/*.log (logs)")
    return apart <= TOLERANCE_BITS and best is not None


def _furthest(scores: dict[str, list[dict[str, float]]]) -> float:
    """The largest difference between two hosts' scores of the same package and model."""
    by_package: dict[tuple[str, str], list[float]] = {}
    for table in scores.values():
        for score in table:
            for model in ("base", "adapter"):
                by_package.setdefault((str(score["package"]), model), []).append(score[model])
    return max((max(values) - min(values) for values in by_package.values()), default=0.0)


def _gang_table(gangs: list[GangView], events: dict[str, tuple[gangline.model.gang.Event, ...]]) -> Table:
    table = Table(box=None, pad_edge=False)
    for column in ("from", "gang", "nodes", "waited", "ran", "cost", "why it waited"):
        table.add_column(column, overflow="fold")
    for view in gangs:
        last = view.attempts[-1]
        waited_s = (view.attempts[0].started_ms - view.submitted_ms) / 1000
        ran_s = ((last.ended_ms or last.started_ms) - (last.running_ms or last.started_ms)) / 1000
        reasons = [e.data.get("text", "") for e in events[view.gang] if e.kind == "plan.waiting"]
        table.add_row(host_of(view), f"{view.name} {view.spec.args.get('package', '')}",
                      ", ".join(n.node for n in last.nodes), format_duration(waited_s), format_duration(ran_s),
                      f"{format_money(view.cost_nano)} {view.currency}", reasons[0] if reasons else "")
    return table


def _usage_table(client: gangline.Client) -> Table:
    table = Table(box=None, pad_edge=False)
    for column in ("cause", "node time", "cost"):
        table.add_column(column)
    rows = client.usage("cause")
    for row in rows:
        table.add_row(row.by["cause"], format_duration(row.node_ms / 1000),
                      f"{format_money(row.cost_nano)} {row.currency}")
    table.add_row("all", format_duration(sum(r.node_ms for r in rows) / 1000),
                  f"{format_money(sum(r.cost_nano for r in rows))} {rows[0].currency if rows else ''}")
    return table


def _facts(version: VersionRef) -> str:
    metrics = "  ".join(f"{name} {value:.4f}" for name, value in version.metrics.items())
    return f"step {version.step}  {metrics}"


def _progress(view: GangView) -> str:
    """How far a running gang is, in quarters: often enough to see it move, rarely enough to read."""
    step, total = view.progress.step, view.progress.total
    if view.state is not GangState.RUNNING or not step or not total:
        return ""
    part = step * PROGRESS_PARTS // total
    return f", {part}/{PROGRESS_PARTS} of {total} steps" if part else ""
