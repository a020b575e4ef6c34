"""What is said while a gang is followed: one line per change, and one line that is always true."""

from __future__ import annotations

from rich.text import Text

from gangline.cli.output import span
from gangline.cli.render_gang import nodes_text, progress_text, version_text
from gangline.client.run import blame
from gangline.model.gang import AttemptView, GangView
from gangline.model.states import Cause, GangState

_RANK_STYLES = ("cyan", "green", "yellow", "magenta", "blue", "bright_cyan", "bright_green", "bright_yellow",
                "bright_magenta", "bright_blue")
_ASKED = (Cause.PREEMPTED, Cause.RESIZED)  # ends that are decided well before they come
_NOW = {
    GangState.STARTING: "every node is ready, starting the ranks",
    GangState.RUNNING: "running",
    GangState.COMMITTING: "the ranks are done, committing",
}


def changes(old: GangView | None, new: GangView, *, waits: bool = True) -> list[str]:
    """What is new in a view, in the order it happened; `waits` says whether to tell why it waits."""
    said: list[str] = []
    known = {a.number: a for a in old.attempts} if old else {}
    for attempt in new.attempts:
        if attempt.number not in known:
            said.append(_placed(new, attempt))
        before = known.get(attempt.number)
        if attempt.end is not None and attempt.end.cause in _ASKED and attempt.ended_ms is None \
                and (before is None or before.end is None):
            said.append(f"stopping: {attempt.end.text}")
        if attempt.ended_ms is not None and (before is None or before.ended_ms is None) \
                and attempt.end is not None and attempt.end.cause is not Cause.SUCCESS:
            said.append(f"attempt {attempt.number} ended: {blame(attempt.end)}")
    versions = {v.uri for v in old.versions} if old else set()
    said += [f"committed {version_text(v)}" for v in new.versions if v.uri not in versions]
    if new.cancel_requested and not (old and old.cancel_requested) and not new.state.final:
        said.append(f"stopping: {new.cancel_requested}")
    moved = old is None or old.state is not new.state
    if new.state is GangState.QUEUED:
        if waits and _wait_text(new) and (moved or old is None or _wait_text(old) != _wait_text(new)):
            said.append(f"waiting: {_wait_text(new)}")
        elif moved:
            said.append("queued")
    elif moved and new.state in _NOW:
        said.append(_NOW[new.state])
    return said


def status_line(view: GangView, now_ms: int) -> Text:
    """The gang in one line, for a terminal to keep at its bottom."""
    since = span(view.submitted_ms if view.state is GangState.QUEUED else view.changed_ms, now_ms)
    detail = _wait_text(view) if view.state is GangState.QUEUED else progress_text(view)
    if view.state is GangState.QUEUED and view.wait and view.wait.earliest_ms:
        detail += f"; expected in {span(now_ms, view.wait.earliest_ms)}"
    return Text.assemble((view.name, "bold"), f" {view.state} {since}", f"  {detail}" if detail else "")


def log_line(rank: int, text: str, world_size: int) -> Text:
    """A rank's line with its tag, the tags of all ranks equally wide."""
    width = len(str(max(0, world_size - 1)))
    return Text.assemble((f"[rank {rank:>{width}}]", _RANK_STYLES[rank % len(_RANK_STYLES)]),
                         " ", Text.from_ansi(text))


def _placed(view: GangView, attempt: AttemptView) -> str:
    resumed = ", ".join(f"{r.volume}@{r.version}" for r in attempt.resume)
    again = f"attempt {attempt.number} " if attempt.number > 1 else ""
    elastic = view.spec.most > view.spec.nodes
    size = f", {len(attempt.nodes)} of {view.spec.size} nodes" if elastic else ""
    return f"{again}placed on {nodes_text(attempt)}{size}" + (f", resuming from {resumed}" if resumed else "")


def _wait_text(view: GangView) -> str:
    return view.wait.text if view.wait else ""
