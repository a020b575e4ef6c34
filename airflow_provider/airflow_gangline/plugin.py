"""The plugin: tells the server at once when Airflow ends a task whose worker cannot say so any more.

It is found through the entry point group `airflow.plugins`: plugins named in a provider's description
are loaded only where Airflow is told not to discover providers lazily, which is not its default.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any

from airflow.listeners import hookimpl
from airflow.plugins_manager import AirflowPlugin

if TYPE_CHECKING:
    from airflow_gangline.hooks import Endpoint

_log = logging.getLogger(__name__)
_OPERATOR = "GangOperator"
_OVER = frozenset({"failed", "success", "skipped"})


class EndListener:
    """Cancels what still runs of a task that is over.

    Airflow calls this in its API server when a person marks a task, also one that no triggerer has
    picked up, and in its scheduler when a worker vanished. On workers it is called too, for ends of the
    task's own; those the operator has dealt with.
    """

    @hookimpl
    def on_task_instance_success(self, previous_state: Any, task_instance: Any) -> None:
        _on_end(task_instance)

    @hookimpl
    def on_task_instance_failed(self, previous_state: Any, task_instance: Any, error: Any) -> None:
        _on_end(task_instance)

    @hookimpl
    def on_task_instance_skipped(self, previous_state: Any, task_instance: Any) -> None:
        _on_end(task_instance)


class GanglinePlugin(AirflowPlugin):
    """Registers the listener."""

    name = "gangline"
    listeners = [EndListener()]


def _on_end(ti: Any) -> None:
    # Only rows of the database have the operator's name; a task that will be tried again keeps its gang.
    if getattr(ti, "operator", None) != _OPERATOR or str(ti.state) not in _OVER:
        return
    from airflow_gangline.hooks import DEFAULT_CONN_ID, GanglineHook
    from airflow_gangline.translate import epoch_of, slot_for

    conn_id = getattr(getattr(ti, "task", None), "gangline_conn_id", None) or DEFAULT_CONN_ID
    try:
        endpoint = GanglineHook(conn_id).endpoint()
    except Exception as exc:  # noqa: BLE001  whatever it is, what Airflow is doing must not fail
        _log.warning("the gang of %s is left to its watcher: %s", ti.task_id, exc)
        return
    about = (endpoint, slot_for(endpoint.deployment, ti), epoch_of(ti))
    # In a thread: a server that does not answer must not hold up the scheduler or a person's click.
    threading.Thread(target=_cancel, args=about, name="gangline-cancel", daemon=True).start()


def _cancel(endpoint: Endpoint, slot: str, epoch: int) -> None:
    from airflow_gangline.translate import reason
    from gangline.model.errors import GanglineError

    try:
        with endpoint.connect(start=False) as client:
            cancelled = client.cancel_slot(slot, epoch, reason("the task is over"))
    except GanglineError as exc:
        _log.warning("the gang in %s is left to its watcher: %s", slot, exc)
    else:
        if cancelled:
            _log.info("the task of %s is over: cancelled %s", slot, ", ".join(cancelled))
