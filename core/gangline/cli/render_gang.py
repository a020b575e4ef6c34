"""Gangs as text: lists, one in full, why it waits, how it ended. Pure functions over views."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from rich.text import Text

from gangline.cli.output import Lines, ago, clock, fields, span, state_text, table
from gangline.client.run import blame, describe
from gangline.model.gang import AttemptView, End, GangView, UsageRow, VersionRef, Wait
from gangline.model.states import Cause, GangState
from gangline.model.units import MS_PER_HOUR, format_money

EMULATED = "emulated: its nodes are pretended, so its times and costs are not those of the GPUs named"


def gang_list(views: Sequence[GangView], now_ms: int) -> Lines:
    """One gang a line, newest first as given."""
    if not views:
        return [Text("no gangs")]
    return table(("GANG", "NAME", "STATE", "ASKS FOR", "TENANT", "SUBMITTED", "NOTE"), [
        (v.gang, v.name, state_text(v.state), ask_text(v), v.tenant, ago(v.submitted_ms, now_ms), note(v))
        for v in views])


def note(view: GangView) -> str:
    """The one thing to know of a gang beside its state."""
    if view.cancel_requested and not view.state.final:
        return "stopping"
    if (ending := ending_text(view)):
        return ending
    if view.state is GangState.QUEUED:
        return view.wait.text if view.wait else ""
    if view.state is GangState.FAILED and view.end:
        return blame(view.end)
    if view.state is GangState.SUCCEEDED and view.versions:
        return view.versions[-1].uri
    return progress_text(view)


def gang_details(view: GangView, usage: Sequence[UsageRow], now_ms: int) -> Lines:
    """Everything a person asks of one gang."""
    lines = [Text.assemble((view.name, "bold"), f" ({view.gang}) ", state_text(view.state))]
    lines += fields([
        ("asks for", ask_text(view)),
        ("runs", _work_text(view)),
        ("tenant", view.tenant if view.tenant != "default" else ""),
        ("slot", f"{view.slot}, epoch {view.epoch}"),
        ("submitted", f"{clock(view.submitted_ms)} ({ago(view.submitted_ms, now_ms)})"),
        ("ended", f"{clock(view.ended_ms)} ({ago(view.ended_ms, now_ms)})" if view.ended_ms else ""),
        ("follows", view.previous or ""),
        ("cancelled", view.cancel_requested or ""),
        ("now", ending_text(view)),
        ("waits for", view.wait.text if view.wait and view.state is GangState.QUEUED else ""),
        ("progress", progress_text(view)),
        ("volumes", ", ".join(f"{path} = {m.volume}" for path, m in view.spec.volumes.items())),
        ("versions", ", ".join(version_text(v) for v in view.versions)),
        ("cost", cost_text(view, usage)),
        ("note", EMULATED if is_emulated(view) else ""),
        ("result", _json(view.result) if view.state is GangState.SUCCEEDED else ""),
    ], indent="  ")
    lines += _attempts(view, now_ms)
    lines += _ranks(view)
    lines += end_lines(view.end if view.state is not GangState.SUCCEEDED else None)
    return lines


def summary(view: GangView, usage: Sequence[UsageRow]) -> Lines:
    """How a gang ended: what one reads after following it."""
    ended_ms = view.ended_ms if view.ended_ms is not None else view.changed_ms
    count = len(view.attempts)
    ran = f" in {span(view.submitted_ms, ended_ms)}, {count} attempt{'' if count == 1 else 's'}"
    lines = [Text.assemble((view.name, "bold"), f" ({view.gang}) ", state_text(view.state), ran)]
    lines += fields([
        ("why", "" if view.state is GangState.SUCCEEDED else blame(view.end)),
        ("cost", cost_text(view, usage)),
        ("versions", ", ".join(version_text(v) for v in view.versions)),
        ("rdma", _rdma_text(view)),
        ("note", EMULATED if is_emulated(view) else ""),
        ("result", _json(view.result) if view.state is GangState.SUCCEEDED else ""),
    ], indent="  ")
    return lines + (end_lines(view.end) if view.state is GangState.FAILED else [])


def end_lines(end: End | None) -> Lines:
    """The last lines of the rank that ended it."""
    if end is None or not end.last_lines:
        return []
    title = f"  last lines of rank {end.rank}:" if end.rank is not None else "  last lines:"
    return [Text(title, style="dim"), *(Text(f"    {line}") for line in end.last_lines)]


def explanation(view: GangView, now_ms: int) -> Lines:
    """Why a gang is where it is, in words; the history is `history`'s."""
    lines = [Text.assemble((view.name, "bold"), f" ({view.gang}) ", state_text(view.state),
                           f" since {ago(view.changed_ms, now_ms).removesuffix(' ago')}")]
    if view.state is GangState.QUEUED:
        return lines + (wait_lines(view.wait, now_ms) if view.wait else [Text("  not planned yet")])
    last = view.attempts[-1] if view.attempts else None
    if not view.state.final and last is not None:
        lines += fields([("holds", nodes_text(last)), ("attempt", str(last.number)),
                         ("now", ending_text(view)), ("progress", progress_text(view))], indent="  ")
    if view.state.final and view.state is not GangState.SUCCEEDED:
        lines += fields([("why", blame(view.end))], indent="  ")
        lines += end_lines(view.end)
    return lines


def wait_lines(wait: Wait, now_ms: int) -> Lines:
    """What is short, who holds it, and when it is expected."""
    lines = [Text(f"  {wait.text}")]
    lines += fields([
        ("short of", f"{wait.short} node{'' if wait.short == 1 else 's'}" if wait.short else ""),
        ("earliest", f"in {span(now_ms, wait.earliest_ms)}, by the plan" if wait.earliest_ms else ""),
    ], indent="  ")
    if wait.blocked_by:
        lines.append(Text("  held by", style="dim"))
        lines += table(("GANG", "NAME", "TENANT", "SLOT"),
                       [(h.gang, h.name, h.tenant, h.slot) for h in wait.blocked_by], indent="    ")
    return lines


def ask_text(view: GangView) -> str:
    """What a gang asks for: 4 x H100:8 rdma, role by role; of an elastic one also how many it has."""
    parts = []
    for name, role in view.spec.role_items():
        gpus = " or ".join(role.gpu)
        size = size_text(view) if view.spec.most > view.spec.nodes else role.size
        parts.append(f"{name + ' ' if name else ''}{size} x {gpus}")
    return " + ".join(parts) + (" rdma" if view.spec.rdma else "")


def size_text(view: GangView) -> str:
    """The size of an elastic gang: 2..4, or 3 of 2..4 while an attempt of it goes on."""
    current = view.attempts[-1] if view.attempts and not view.state.final else None
    has = f"{len(current.nodes)} of " if current is not None and current.ended_ms is None else ""
    return f"{has}{view.spec.size}"


def ending_text(view: GangView) -> str:
    """Why the attempt that goes on is about to end, if anything decided that."""
    last = view.attempts[-1] if view.attempts and not view.state.final else None
    if last is None or last.end is None or last.ended_ms is not None or last.end.cause is Cause.SUCCESS:
        return ""
    return f"stopping: {last.end.text}"


def nodes_text(attempt: AttemptView) -> str:
    """The nodes of an attempt and where they are."""
    names = [share.node for share in attempt.nodes]
    shown = ", ".join(names) if len(names) <= 8 else f"{', '.join(names[:6])} and {len(names) - 6} more"
    where = ", ".join(filter(None, (attempt.zone, attempt.fabric)))
    return f"{shown} ({where})" if where else shown


def progress_text(view: GangView) -> str:
    """Rank 0's last report: step 40/200, loss 1.23."""
    p = view.progress
    step = "" if p.step is None else f"step {p.step}/{p.total}" if p.total else f"step {p.step}"
    metrics = [f"{name} {value:.4g}" for name, value in sorted(p.metrics.items())]
    return ", ".join(filter(None, [step, *metrics]))


def version_text(version: VersionRef) -> str:
    """A version with its step and metrics: sft@3 (step 200, loss 1.9)."""
    facts = [f"step {version.step}"] if version.step is not None else []
    facts += [f"{name} {value:.4g}" for name, value in sorted(version.metrics.items())]
    return f"{version.uri} ({', '.join(facts)})" if facts else version.uri


def cost_text(view: GangView, usage: Sequence[UsageRow]) -> str:
    """GPU hours and money, with what it went into by cause when that is known."""
    if not usage:
        return f"{format_money(view.cost_nano)} {view.currency}" if view.cost_nano else ""
    hours = sum(row.gpu_ms for row in usage) / MS_PER_HOUR
    total = sum(row.cost_nano for row in usage)
    text = f"{hours:.4f} GPU hours"
    if total:
        text += f", {format_money(total)} {view.currency}"
    by_cause = [(row.by.get("cause", ""), row) for row in usage]
    if len(by_cause) > 1 or (by_cause and by_cause[0][0] not in ("", Cause.SUCCESS)):
        text += " (" + ", ".join(f"{cause or 'open'} {_share(row, total)}" for cause, row in by_cause) + ")"
    return text


def is_emulated(view: GangView) -> bool:
    """Whether any attempt ran on emulated nodes."""
    return any(a.emulated for a in view.attempts)


def _share(row: UsageRow, total: int) -> str:
    return format_money(row.cost_nano) if total else f"{row.gpu_ms / MS_PER_HOUR:.4f} h"


def _rdma_text(view: GangView) -> str:
    if not view.spec.rdma or not view.attempts:
        return ""
    proof = view.attempts[-1].rdma
    if proof.proved:
        return "proved by preflight"
    return "requested, not proved: the nodes are emulated" if proof.emulated else "requested, not proved"


def _work_text(view: GangView) -> str:
    def one(command: Iterable[str] | None, function: str | None, args: dict[str, Any]) -> str:
        if function is not None:
            return f"{function}({', '.join(f'{k}={_json(v)}' for k, v in args.items())})"
        return " ".join(command or ())

    return "; ".join(f"{name + ': ' if name else ''}{one(role.command, role.function, role.args)}"
                     for name, role in view.spec.role_items())


def _attempts(view: GangView, now_ms: int) -> Lines:
    if not view.attempts:
        return []
    rows = []
    for a in view.attempts:
        over = "" if a.ended_ms is None else "succeeded" if a.end is None or a.end.cause is Cause.SUCCESS \
            else blame(a.end)
        resumed = ", ".join(f"{r.volume}@{r.version}" for r in a.resume)
        rows.append((str(a.number), nodes_text(a), span(a.started_ms, a.ended_ms or now_ms), resumed, over))
    return [Text(), *table(("ATTEMPT", "NODES", "TIME", "RESUMED FROM", "END"), rows, indent="  ")]


def _ranks(view: GangView) -> Lines:
    if not view.ranks:
        return []
    shown = view.ranks[:64]
    rows = [(str(r.rank), r.role, r.node, str(r.local_rank), r.state,
             r.signal or ("" if r.exit_code is None else str(r.exit_code))) for r in shown]
    lines = [Text(), *table(("RANK", "ROLE", "NODE", "LOCAL", "STATE", "EXIT"), rows, indent="  ")]
    hidden = len(view.ranks) - len(shown)
    return [*lines, Text(f"  and {hidden} more ranks; --json shows all")] if hidden else lines


def _json(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 400 else f"{text[:400]}… ({len(text)} characters; --json shows all)"


__all__ = ["ask_text", "cost_text", "describe", "end_lines", "ending_text", "explanation", "gang_details",
           "gang_list", "is_emulated", "nodes_text", "note", "progress_text", "size_text", "summary",
           "version_text", "wait_lines"]
