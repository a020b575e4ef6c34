"""A diagnosis as lines and as JSON. Pure functions over a verdict."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rich.text import Text

from gangline.cli.output import Lines, fields, table
from gangline.fabric.logs import Cause, GangVerdict, RankVerdict, State

MOST_RANKS = 64  # --json has them all
_STYLES = {State.PROVED: "green", State.NO_GDR: "yellow", State.FALLBACK: "red", State.MIXED: "red",
           State.UNPROVED: "yellow"}
_ORDERS = {"time": "first by the lines' times", "arrival": "first in the log",
           "weight": "most likely first: the lines have no times to compare"}


def diagnosis_lines(verdict: GangVerdict) -> Lines:
    """The verdict with its cause and remedy, then a line per rank."""
    lines = [Text.assemble((str(verdict.state), f"bold {_STYLES[verdict.state]}"), f"  {verdict.reason}")]
    cause, found = verdict.cause, verdict.evidence
    if cause is not None:
        lines += fields((
            ("cause", f"{cause.title} [{cause.code}]"),
            ("blamed", _blamed(verdict)),
            ("remedy", cause.remedy),
            ("retry", str(cause.retry) if found is not None else ""),
            ("seen", "" if found is None else found.line),
            ("order", "" if verdict.order is None else _ORDERS[verdict.order]),
        ), indent="  ")
    lines += [Text(f"  note: {note}", style="dim") for note in verdict.notes]
    if verdict.ranks:
        lines += [Text(""), *table(("RANK", "STATE", "NODE", "NETWORK", "GDR", "NICS", "WHY"),
                                   map(_row, verdict.ranks[:MOST_RANKS]))]
    if len(verdict.ranks) > MOST_RANKS:
        lines.append(Text(f"and {len(verdict.ranks) - MOST_RANKS} more ranks (--json has them all)", style="dim"))
    return lines


def diagnosis_json(verdict: GangVerdict) -> dict[str, Any]:
    """The same as plain values."""
    found = verdict.evidence
    return {
        "state": str(verdict.state), "ok": verdict.ok, "reason": verdict.reason,
        "cause": None if verdict.cause is None else _cause_json(verdict.cause),
        "blame": {**asdict(verdict.blame), "nodes": list(verdict.blame.nodes)},
        "evidence": None if found is None else {"line": found.line, "node": found.host, "source": found.source,
                                                "at_s": found.at_s, "peer": found.told.peer, "order": verdict.order},
        "missing_ranks": list(verdict.missing), "notes": list(verdict.notes),
        "ranks": [_rank_json(rank) for rank in verdict.ranks],
    }


def _blamed(verdict: GangVerdict) -> str:
    who = verdict.blame
    parts = [f"node {who.nodes[0]}" if len(who.nodes) == 1 else f"the path between {' and '.join(who.nodes)}"
             if len(who.nodes) == 2 and verdict.failed else f"nodes {', '.join(who.nodes[:8])}" if who.nodes else "",
             f"rank {who.rank}" if who.rank is not None else "", f"HCA {who.hca}" if who.hca else "",
             f"GID {who.gid}" if who.gid else ""]
    return ", ".join(part for part in parts if part)


def _row(rank: RankVerdict) -> tuple[str | Text, ...]:
    why = rank.reason
    if rank.failures:
        why = ("" if rank.stray else f"{why}; ") + ", ".join(failure.told.code for failure in rank.failures)
    state = Text("-") if rank.stray else Text(str(rank.state), style=_STYLES[rank.state])
    return (rank.rank, state, rank.host or "-",
            ", ".join(rank.networks) or "-", f"{rank.gdr_channels}/{rank.channels}" if rank.channels else "-",
            str(rank.nics) if rank.nics else "-", why)


def _cause_json(cause: Cause) -> dict[str, Any]:
    return {"code": cause.code, "kind": str(cause.kind), "title": cause.title, "remedy": cause.remedy,
            "retry": str(cause.retry)}


def _rank_json(rank: RankVerdict) -> dict[str, Any]:
    return {
        "rank": rank.rank, "state": str(rank.state), "reason": rank.reason, "node": rank.host,
        "networks": list(rank.networks), "channels": rank.channels, "gdr_channels": rank.gdr_channels,
        "nics": rank.nics, "hcas": list(rank.hcas), "nccl": rank.nccl, "on_node": rank.on_node,
        "stray": rank.stray,
        "why": [cause.code for cause in rank.why],
        "failures": [{"code": failure.told.code, "hca": failure.told.hca, "gid": failure.told.gid,
                      "peer": failure.told.peer, "at_s": failure.at_s, "line": failure.line}
                     for failure in rank.failures],
    }
