"""Following gangs while a step runs: news into the event log, and the right answer to an interruption."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import dagster as dg
from gangline.client import Client
from gangline.model.errors import Superseded
from gangline.model.gang import Ensured, GangView
from gangline.model.states import GangState
from gangline.model.units import format_duration

StepContext = dg.OpExecutionContext | dg.AssetExecutionContext

HOLD_S = 10.0
PROGRESS_EVERY_S = 5.0


def follow(context: StepContext, client: Client, ensured: Sequence[Ensured]) -> list[GangView]:
    """The last views of the gangs, in order, once all are final.

    A drain or restart of the run worker detaches: the gangs go on, and the re-executed step finds them
    again. Only a run that is being cancelled cancels them.

    Raises:
        dagster.Failure: another execution of this step has taken over; not retried.
    """
    following = [_Followed(gang=one.gang, token=one.token) for one in ensured]
    try:
        while True:
            waiting = [one for one in following if one.view is None or not one.view.state.final]
            if not waiting:
                return [one.view for one in following if one.view is not None]
            for one in waiting[1:]:  # renew the others' ownership without holding the line
                one.look(context, client, 0.0)
            waiting[0].look(context, client, HOLD_S)
    except Superseded as exc:
        raise dg.Failure(f"another execution of this step follows the gang now: {exc}", allow_retries=False) from exc
    except dg.DagsterExecutionInterruptedError:
        _interrupted(context, client, following)
        raise


@dataclass
class _Followed:
    gang: str
    token: str
    cursor: int = 0
    view: GangView | None = None
    said: str = ""
    progress_at_s: float = field(default=0.0)

    def look(self, context: StepContext, client: Client, hold_s: float) -> None:
        news = client.watch(self.gang, self.token, self.cursor, hold_s)
        self.cursor, self.view = news.cursor, news.view
        line = describe(news.view)
        if line != self.said:
            self.said = line
            context.log.info(line)
        self._progress(context, news.view)

    def _progress(self, context: StepContext, view: GangView) -> None:
        now_s = time.monotonic()
        progress = view.progress
        if progress.step is None or (now_s - self.progress_at_s < PROGRESS_EVERY_S and not view.state.final):
            return
        self.progress_at_s = now_s
        of = f"/{progress.total}" if progress.total else ""
        metrics = "  ".join(f"{name} {value:.4g}" for name, value in sorted(progress.metrics.items()))
        context.log.info(f"{view.name}: step {progress.step}{of}  {metrics}".rstrip())


def describe(view: GangView) -> str:
    """One line: the gang's state, why it waits, where it runs or why it ended."""
    who = f"{view.name} ({view.gang})"
    if view.state is GangState.QUEUED and view.wait is not None:
        return f"{who} waits: {view.wait.text}"
    if view.state.final:
        took_s = ((view.ended_ms or view.changed_ms) - view.submitted_ms) / 1000
        why = f": {view.end.text}" if view.end is not None and view.state is not GangState.SUCCEEDED else ""
        return f"{who} {view.state} after {format_duration(took_s)}{why}"
    where = ", ".join(n.node for n in view.attempts[-1].nodes) if view.attempts else "-"
    return f"{who} {view.state}, attempt {len(view.attempts)} on {where}"


def failure(view: GangView) -> dg.Failure:
    """The step failure of a gang that ended without success, with its evidence as metadata."""
    end = view.end
    facts: dict[str, Any] = {"gang": view.gang, "state": str(view.state), "attempts": len(view.attempts)}
    if end is not None:
        facts |= {"cause": str(end.cause), "rank": end.rank if end.rank is not None else "-", "node": end.node or "-"}
        if end.last_lines:
            facts["last lines"] = dg.MetadataValue.text("\n".join(end.last_lines))
    return dg.Failure(describe(view), metadata=facts)


def _interrupted(context: StepContext, client: Client, following: list[_Followed]) -> None:
    run = context.instance.get_run_by_id(context.run.run_id)
    if run is None or run.status not in (dg.DagsterRunStatus.CANCELING, dg.DagsterRunStatus.CANCELED):
        context.log.info("interrupted, but the run is not being cancelled: the gang goes on and is found again")
        return
    for one in following:
        if one.view is None or not one.view.state.final:
            client.cancel(one.gang, one.token, f"Dagster run {context.run.run_id} was terminated")
