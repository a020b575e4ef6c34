"""Events in words. Pure functions over events."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gangline.client.run import located
from gangline.model.gang import Event
from gangline.model.states import Cause

Data = Mapping[str, Any]


def in_words(event: Event) -> str:
    """What happened, as one line; "" for what only the ledger and the planner care about."""
    say = _WORDS.get(event.kind)
    if say is not None:
        return say(event.data)
    facts = ", ".join(f"{name} {value}" for name, value in event.data.items() if value not in (None, "", []))
    return event.kind.replace(".", " ") + (f": {facts}" if facts else "")


def _placed(d: Data) -> str:
    nodes = d.get("nodes") or ()
    names = ", ".join(str(n.get("node", n)) if isinstance(n, Mapping) else str(n) for n in nodes)
    return f"attempt {d.get('attempt')} placed" + (f" on {names}" if names else "")


def _rank_exited(d: Data) -> str:
    if d.get("cause") == Cause.SUCCESS:
        return f"rank {d.get('rank')} on {d.get('node')} is done"
    who, code = f"rank {d.get('rank')} on {d.get('node')}", d.get("exit_code")
    if code == 0 and d.get("cause") == Cause.CANCELLED:
        return f"{who} stopped when asked to"
    if d.get("signal"):
        return f"{who} was ended by {d['signal']}"
    return f"{who} failed: " + (str(d.get("cause")) if code is None else f"exit code {code}")


def _ended(d: Data) -> str:
    if d.get("cause") == Cause.SUCCESS:
        return f"attempt {d.get('attempt')} ended well"
    what = located(str(d.get("text") or ""), d.get("rank"), d.get("node"))
    return f"attempt {d.get('attempt')} ended ({d.get('cause')}): {what}"


def _queued(d: Data) -> str:
    if not d.get("after"):
        return "queued"
    kept = d.get("kept") or ()
    return f"queued for attempt {int(d['after']) + 1}" + (f", keeping {', '.join(kept)}" if kept else "")


def _step(d: Data) -> str:
    return "" if d.get("step") is None else f" at step {d['step']}"


def _over(word: str) -> Callable[[Data], str]:
    return lambda d: word + (f": {d['text']}" if d.get("text") and d.get("cause") != Cause.SUCCESS else "")


_WORDS: dict[str, Callable[[Data], str]] = {
    "gang.submitted": lambda d: "submitted" + (f", after {d['previous']}" if d.get("previous") else ""),
    "owner.changed": lambda d: "found again by its submitter",
    "plan.waiting": lambda d: f"waits: {d.get('text')}",
    "gang.queued": _queued,
    "gang.placed": _placed,
    "attempt.ready": lambda d: f"node {d.get('node')} is ready",
    "gang.starting": lambda d: "every node is ready, starting the ranks",
    "gang.running": lambda d: "user code runs on every rank",
    "gang.committing": lambda d: "every rank is done, committing",
    "rank.exited": _rank_exited,
    "attempt.ended": _ended,
    "cancel.requested": lambda d: f"asked to stop ({d.get('cause')}): {d.get('reason')}",
    "preempt.requested": lambda d: f"asked to stop and wait again: {d.get('text')}",
    "resize.requested": lambda d: f"asked to stop and start again: {d.get('text')}",
    "node.suspect": lambda d: f"node {d.get('node')} was blamed for the ends of {', '.join(d.get('gangs') or ())} "
                              f"within {d.get('within_h')} h; nobody has drained it",
    "version.published": lambda d: f"committed {d.get('volume')}@{d.get('version')}{_step(d)}",
    "version.damaged": lambda d: f"{d.get('volume')}@{d.get('version')} is damaged: {d.get('text')}",
    "gang.succeeded": _over("succeeded"),
    "gang.failed": _over("failed"),
    "gang.cancelled": _over("cancelled"),
    "lease.opened": lambda d: "",
    "lease.closed": lambda d: "",
}
