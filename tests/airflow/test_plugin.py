"""The listener: a task that is over takes its gang with it, one that will be tried again does not."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.utils.state import TaskInstanceState

from airflow_gangline.plugin import EndListener, GanglinePlugin
from gangline.client import Client
from gangline.model.gang import Ensured, Submission
from gangline.model.spec import GangSpec


def row(run_id: str, state: TaskInstanceState, **changes: Any) -> SimpleNamespace:
    """A task instance as the API server and the scheduler have it."""
    fields = {"dag_id": "plugin", "run_id": run_id, "task_id": "t", "map_index": -1, "max_tries": 1,
              "operator": "GangOperator", "state": state}
    return SimpleNamespace(**{**fields, **changes})


def submitted(client: Client, run_id: str) -> Ensured:
    spec = GangSpec(name="t", command=("sleep", "600"), grace=0)
    return client.ensure(Submission(slot=f"airflow:airflow/plugin/{run_id}/t/-1", epoch=1, spec=spec))


def heard(client: Client, ensured: Ensured, ti: SimpleNamespace) -> bool:
    """Whether the listener asked for the gang's end when told of the task's."""
    listener = EndListener()
    if ti.state is TaskInstanceState.SUCCESS:
        listener.on_task_instance_success(previous_state=None, task_instance=ti)
    else:
        listener.on_task_instance_failed(previous_state=None, task_instance=ti, error="marked")
    for thread in threading.enumerate():
        if thread.name == "gangline-cancel":
            thread.join(30)
    asked = client.observe(ensured.gang).cancel_requested is not None
    client.cancel(ensured.gang)
    return asked


@pytest.mark.parametrize("state", [TaskInstanceState.FAILED, TaskInstanceState.SUCCESS])
def test_a_task_that_is_over_takes_its_gang_with_it(client: Client, state: TaskInstanceState) -> None:
    assert heard(client, submitted(client, f"over-{state}"), row(f"over-{state}", state))


@pytest.mark.parametrize("changes", [
    {"state": TaskInstanceState.UP_FOR_RETRY}, {"operator": "BashOperator"}, {"max_tries": 0},
], ids=["tried again", "of another kind", "of an earlier epoch"])
def test_other_ends_leave_the_gang_alone(client: Client, changes: dict[str, Any],
                                         request: pytest.FixtureRequest) -> None:
    run_id = request.node.callspec.id.replace(" ", "-")
    ti = row(run_id, TaskInstanceState.FAILED, **{"operator": "GangOperator"})
    vars(ti).update(changes)
    assert not heard(client, submitted(client, run_id), ti)


def test_a_connection_that_is_gone_hinders_nothing(client: Client) -> None:
    ti = row("gone", TaskInstanceState.FAILED, task=SimpleNamespace(gangline_conn_id="gang_elsewhere"))
    assert not heard(client, submitted(client, "gone"), ti)


def test_the_plugin_registers_it() -> None:
    assert [type(listener) for listener in GanglinePlugin.listeners] == [EndListener]
