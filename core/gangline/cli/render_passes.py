"""Passes and explanations as text."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from gangline.cli.output import Lines, clock, fields, size_text, span, table
from gangline.model.passes import Explanation, PassDetail, PassView

_COUNTS = (("placed", "placed"), ("asked", "nodes asked for"), ("released", "gave nodes back"),
           ("preempted", "preempted"), ("resized", "resized"), ("retired", "nodes retired"),
           ("refused", "not placed after all"))


def pass_list(passes: Sequence[PassView]) -> Lines:
    """Passes, newest first, one a line."""
    if not passes:
        return [Text("no pass has decided anything yet")]
    rows = [(str(each.id), clock(each.at_ms), each.trigger, each.policy, str(each.pending), _decided(each),
             _ms(each.duration_us), "yes" if each.replayable else "") for each in passes]
    return table(("PASS", "WHEN", "WHY", "POLICY", "WAITING", "DECIDED", "TOOK", "REPLAY"), rows)


def pass_details(detail: PassDetail, lines: Sequence[str]) -> Lines:
    """One pass: how it came about and what it decided."""
    it = detail.summary
    head = [Text.assemble((f"pass {it.id}", "bold"), f" at {clock(it.at_ms)}")]
    head += fields([
        ("why", it.trigger), ("policy", it.policy), ("waiting", str(it.pending)), ("took", _ms(it.duration_us)),
        ("store", f"version {it.version}"), ("kept", size_text(it.size_bytes)),
        ("replay", f"gangline plan --replay {it.id}" if it.replayable else "its inputs were not kept")], indent="  ")
    if it.faults:
        head.append(Text("  refused, nothing of it was done:", style="red"))
        head += [Text(f"    {fault}") for fault in it.faults]
    return [*head, Text(), *(Text(f"  {line}") for line in lines or ("nothing",))]


def diff_lines(lines: Sequence[str]) -> Lines:
    """Differences in the colours of a diff."""
    if not lines:
        return [Text("no difference")]
    return [Text(line, style="red" if line.startswith("-") else "green") for line in lines]


def explained(found: Explanation) -> Lines:
    """Where a gang was tried, who is in its way, and what would help."""
    lines: Lines = []
    if found.tried:
        lines += [Text("  tried", style="dim")]
        lines += table(("WHERE", "FREE", "NEEDS", "WOULD DO"), [
            (group.where, str(group.free), str(group.need), str(group.could)) for group in found.tried], indent="    ")
    if found.holders:
        lines += [Text("  in the way", style="dim")]
        lines += table(("GANG", "NAME", "TENANT", "SLOT", "NODES", "UNTIL"), [
            (each.holder.gang, each.holder.name, each.holder.tenant, each.holder.slot, str(each.nodes),
             ("kept for it, " if each.reserved else "") + _until(each.ends_ms, found.at_ms))
            for each in found.holders], indent="    ")
    if found.what_if:
        lines += [Text("  what would help", style="dim")]
        lines += [Text(f"    {each.text}") for each in found.what_if]
    return lines


def _until(at_ms: int | None, now_ms: int) -> str:
    if at_ms is None:
        return "nobody knows"
    return f"in {span(now_ms, at_ms)}" if at_ms > now_ms else "any moment"


def _decided(each: PassView) -> str:
    if each.faults:
        return f"refused, {len(each.faults)} fault{'s' if len(each.faults) > 1 else ''}"
    return ", ".join(f"{count} {word}" for name, word in _COUNTS if (count := getattr(each, name)))


def _ms(duration_us: int) -> str:
    return f"{duration_us / 1000:.1f} ms"
