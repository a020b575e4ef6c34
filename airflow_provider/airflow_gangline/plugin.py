"""The plugin: tells the server at once when a person marks a task whose gang still runs.

It is found through the entry point group `airflow.plugins`: plugins named in a provider's description
are loaded only where Airflow is told not to discover providers lazily, which is not its default.
"""

from __future__ import annotations

import logging
from typing import Any

from airflow.listeners import hookimpl
from airflow.plugins_manager import AirflowPlugin

_log = logging.getLogger(__name__)
_OPERATOR = "GangOperator"


class MarkListener:
    """Cancels the gang of a task that was marked by hand.

    Airflow calls these in its API server for marks by hand, also when no triggerer has picked the
    task up yet, and on workers for ends of the task's own, which the operator has dealt with.
    """

    @hookimpl
    def on_task_instance_success(self, previous_state: Any, task_instance: Any) -> None:
        _on_mark(task_instance)

    @hookimpl
    def on_task_instance_failed(self, previous_state: Any, task_instance: Any, error: Any) -> None:
        _on_mark(task_instance)

    @hookimpl
    def on_task_instance_skipped(self, previous_state: Any, task_instance: Any) -> None:
        _on_mark(task_instance)


class GanglinePlugin(AirflowPlugin):
    """Registers the listener."""

    name = "gangline"
    listeners = [MarkListener()]


def _on_mark(ti: Any) -> None:
    # Only the API server's task instances are rows of the database, with the operator's name in them.
    if getattr(ti, "operator", None) != _OPERATOR:
        return
    try:
        _cancel(ti)
    except Exception as exc:  # noqa: BLE001  whatever it is, the mark itself must not fail
        _log.warning("gang of %s not cancelled at the mark, its watcher will do it: %s", ti.task_id, exc)


def _cancel(ti: Any) -> None:
    from airflow_gangline.hooks import DEFAULT_CONN_ID, GanglineHook
    from airflow_gangline.translate import epoch_of, reason, slot_for

    conn_id = getattr(getattr(ti, "task", None), "gangline_conn_id", None) or DEFAULT_CONN_ID
    endpoint = GanglineHook(conn_id).endpoint()
    with endpoint.connect(start=False) as client:
        cancelled = client.cancel_slot(slot_for(endpoint.deployment, ti), epoch_of(ti),
                                       reason("the task was marked by hand"))
    if cancelled:
        _log.info("%s was marked: cancelled %s", ti.task_id, ", ".join(cancelled))
