"""The operator against an embedded server: submit, defer, finish, fail, give up."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import Asset
from airflow.sdk.exceptions import (
    AirflowException,
    AirflowFailException,
    AirflowTaskTimeout,
    TaskDeferralTimeout,
    TaskDeferred,
)
from steps import TaskInstance, context

from airflow_gangline.operators import GangOperator
from airflow_gangline.triggers import GangTrigger
from gangline.client import Client
from gangline.model.gang import GangView
from gangline.model.states import GangState

FOREVER = ["sleep", "600"]


@pytest.fixture(autouse=True)
def _leave_nothing(client: Client) -> Iterator[None]:
    yield
    for view in client.list(slot_prefix="airflow:airflow/d/"):
        if not view.state.final:
            client.cancel(view.gang, reason="the test is over")
            ended(client, view.gang)


def gang(**changes: Any) -> GangOperator:
    return GangOperator(**{"task_id": "t", "command": FOREVER, "grace": 0, **changes})


def deferred(operator: GangOperator, ti: TaskInstance) -> GangTrigger:
    with pytest.raises(TaskDeferred) as caught:
        operator.execute(context(ti))
    assert caught.value.method_name == "execute_complete"
    assert isinstance(caught.value.trigger, GangTrigger)
    return caught.value.trigger


def ended(client: Client, gang_id: str) -> GangView:
    return _until(client, gang_id, lambda view: view.state.final)


def _until(client: Client, gang_id: str, done: Any) -> GangView:
    cursor = 0
    for _ in range(200):
        if done(view := client.observe(gang_id)):
            return view
        cursor = client.events(gang_id, cursor, 0.3).cursor
    raise AssertionError(f"{gang_id} is still {view.state}")


def run_to_end(client: Client, operator: GangOperator, ti: TaskInstance) -> dict[str, Any]:
    """What the task would return once its trigger has fired."""
    trigger = deferred(operator, ti)
    view = ended(client, trigger.gang)
    return operator.execute_complete(context(ti), {"gang": view.gang, "state": str(view.state)})


def test_it_defers_to_a_trigger_that_owns_the_gang(client: Client) -> None:
    ti = TaskInstance()
    with pytest.raises(TaskDeferred) as caught:
        gang(execution_timeout=timedelta(hours=1)).execute(context(ti))
    assert caught.value.timeout == timedelta(hours=1)
    view = client.observe(caught.value.trigger.gang)
    assert (view.slot, view.epoch, view.name) == (ti.slot, 0, "t")
    assert ti.xcoms["gang"] == view.gang
    assert ti.xcoms["gangline_link"] == f"gangline show {view.gang}"
    assert client.watch(view.gang, caught.value.trigger.token, 0, 0).view.gang == view.gang


def test_a_connection_names_the_deployment_and_goes_along_by_name(client: Client,
                                                                   monkeypatch: pytest.MonkeyPatch) -> None:
    extra = {"deployment": "staging", "tenant": "lab"}
    monkeypatch.setenv("AIRFLOW_CONN_STAGING", json.dumps(
        {"conn_type": "gangline", "host": client.address.url, "extra": extra}))
    ti = TaskInstance()
    trigger = deferred(gang(gangline_conn_id="staging"), ti)
    assert trigger.gangline_conn_id == "staging"
    view = client.observe(trigger.gang)
    assert (view.slot, view.tenant) == (ti.slot.replace("airflow:airflow/", "airflow:staging/"), "lab")
    client.cancel(trigger.gang)


def test_another_try_takes_the_gang_over_and_a_clear_starts_anew(client: Client) -> None:
    ti = TaskInstance(max_tries=2)
    first = deferred(gang(), ti)
    ti.try_number = 2
    second = deferred(gang(), ti)
    assert second.gang == first.gang
    assert second.token != first.token
    ti.max_tries = 4  # what a clear does
    third = deferred(gang(), ti)
    assert third.gang != first.gang
    assert ended(client, first.gang).state is GangState.CANCELLED


def test_a_gang_that_has_ended_well_needs_no_waiting(client: Client) -> None:
    ti = TaskInstance(max_tries=1)
    result = run_to_end(client, gang(command=["true"]), ti)
    assert result["state"] == "succeeded"
    again = gang(command=["true"]).execute(context(ti))  # the worker died before it could say so
    assert again == result


def test_a_failure_says_which_rank_where_and_its_last_lines(client: Client) -> None:
    ti = TaskInstance()
    command = ["python", "-c", "import sys; print('the last words', flush=True); sys.exit(3)"]
    with pytest.raises(AirflowException, match=r"(?s)rank 0 on \S+.*the last words") as caught:
        run_to_end(client, gang(command=command, gpu="cpu"), ti)
    assert not isinstance(caught.value, AirflowFailException)


def test_what_a_person_cancelled_is_not_tried_again(client: Client) -> None:
    ti = TaskInstance()
    operator = gang()
    trigger = deferred(operator, ti)
    client.cancel(trigger.gang, reason="not needed")
    view = ended(client, trigger.gang)
    with pytest.raises(AirflowFailException):
        operator.execute_complete(context(ti), {"gang": view.gang, "state": "cancelled"})


@pytest.mark.parametrize("changes", [
    {"size": 0}, {"gpu": "H100:x"}, {"function": "no_such_module:f", "command": None}, {"command": None},
    {"function": "os:getcwd"}, {"secrets": ["TOKEN"]},
])
def test_a_wrong_request_fails_at_once_and_submits_nothing(client: Client, changes: dict[str, Any]) -> None:
    ti = TaskInstance()
    with pytest.raises(AirflowFailException):
        gang(**changes).execute(context(ti))
    assert client.list(slot_prefix=ti.slot) == []


def test_a_superseded_try_fails_quietly(client: Client) -> None:
    ti = TaskInstance(max_tries=1)
    trigger = deferred(gang(), ti)
    with pytest.raises(AirflowFailException, match="left to it"):
        gang().execute_complete(context(ti), {"gang": trigger.gang, "state": "superseded"})
    assert not client.observe(trigger.gang).state.final


@pytest.mark.parametrize("event", [
    {"gang": "g-of-an-earlier-try", "state": "cancelled"}, {"gang": "g-of-an-earlier-try", "state": "superseded"},
    {"gang": "", "state": "superseded"},
], ids=["another-gang", "another-gang-superseded", "an-earlier-owner"])
def test_an_event_of_an_earlier_trys_trigger_is_not_believed(client: Client, event: dict[str, Any]) -> None:
    operator, ti = gang(), TaskInstance(max_tries=1)
    trigger = deferred(operator, ti)
    own = {"gang": trigger.gang, "token": trigger.token}
    with pytest.raises(TaskDeferred) as caught:
        operator.execute_complete(context(ti), {**event, "gang": event["gang"] or trigger.gang}, **own)
    assert caught.value.kwargs == own
    assert (caught.value.trigger.gang, caught.value.trigger.token) == (trigger.gang, trigger.token)


def test_an_owner_that_was_deposed_while_it_slept_leaves_the_gang_alone(client: Client) -> None:
    operator, ti = gang(), TaskInstance(max_tries=1)
    first = deferred(operator, ti)
    second = deferred(operator, ti)
    assert second.gang == first.gang
    with pytest.raises(AirflowFailException, match="left to it"):
        operator.execute_complete(context(ti), {"gang": first.gang, "state": "superseded"}, first.gang, first.token)
    assert not client.observe(first.gang).state.final


def test_a_trigger_timeout_cancels(client: Client) -> None:
    ti = TaskInstance(max_tries=1)
    operator = gang()
    trigger = deferred(operator, ti)
    with pytest.raises(TaskDeferralTimeout):
        operator.resume_execution("__fail__", {"error": "Trigger timeout"}, context(ti))
    view = ended(client, trigger.gang)
    assert view.state is GangState.CANCELLED
    with pytest.raises(AirflowException) as caught:  # Airflow's own cancel may be tried again
        operator.execute_complete(context(ti), {"gang": trigger.gang, "state": "cancelled"})
    assert not isinstance(caught.value, AirflowFailException)


@pytest.mark.parametrize(("max_tries", "cancelled"), [(1, False), (0, True)])
def test_a_broken_trigger_leaves_the_gang_to_the_next_try_if_there_is_one(
        client: Client, max_tries: int, cancelled: bool) -> None:
    ti = TaskInstance(max_tries=max_tries)
    operator = gang()
    trigger = deferred(operator, ti)
    with pytest.raises(AirflowException):
        operator.resume_execution("__fail__", {"error": "Trigger failure"}, context(ti))
    assert bool(client.observe(trigger.gang).cancel_requested) is cancelled


def test_a_spec_file_beside_the_dag(client: Client, tmp_path: Path) -> None:
    from airflow.sdk import DAG

    (tmp_path / "gang.yaml").write_text("name: from-file\ncommand: [sleep, '600']\nworkdir: code\n")
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "main.py").write_text("")
    with DAG("d", schedule=None) as dag:
        operator = GangOperator(task_id="t", spec="gang.yaml", size=2)
    dag.fileloc = str(tmp_path / "dag.py")
    view = client.observe(deferred(operator, TaskInstance()).gang)
    assert (view.name, view.spec.size) == ("from-file", 2)


def test_an_elastic_size_passes_through(client: Client) -> None:
    view = client.observe(deferred(gang(size="1..3"), TaskInstance()).gang)
    assert (view.spec.size, view.spec.most) == ("1..3", 3)


def test_outlets_of_a_gang_that_committed_nothing_still_name_it(client: Client) -> None:
    ti, model = TaskInstance(), Asset(name="model", uri="gangline://model")
    about = context(ti)
    operator = gang(command=["true"], outlets=[model])
    view = ended(client, deferred(operator, ti).gang)
    operator.execute_complete(about, {"gang": view.gang, "state": str(view.state)})
    assert about["outlet_events"][model].extra == {"gang": view.gang}


class Waiting:
    """A task that waits on its worker, in a thread, with what came of it."""

    def __init__(self, client: Client, ti: TaskInstance, **changes: Any) -> None:
        self.operator = gang(deferrable=False, **changes)
        self.outcome: Any = None
        self._thread = threading.Thread(target=self._run, args=(ti,))
        self._thread.start()
        self.gang = self._gang(client, ti)

    def _run(self, ti: TaskInstance) -> None:
        try:
            self.outcome = self.operator.execute(context(ti))
        except BaseException as exc:  # noqa: BLE001  it is looked at in the test's own thread
            self.outcome = exc

    @staticmethod
    def _gang(client: Client, ti: TaskInstance) -> str:
        pause = threading.Event()
        for _ in range(600):
            found = client.list(slot_prefix=ti.slot)
            if found and "gang" in ti.xcoms:
                return found[0].gang
            pause.wait(0.05)
        raise AssertionError("nothing was submitted")

    def end(self) -> Any:
        self._thread.join(30)
        assert not self._thread.is_alive()
        return self.outcome


def test_without_deferring_it_waits_for_the_result(client: Client) -> None:
    result = Waiting(client, TaskInstance(), command=["true"]).end()
    assert result["state"] == "succeeded"


def test_a_worker_that_goes_down_leaves_the_gang_to_the_next_try(client: Client) -> None:
    waiting = Waiting(client, TaskInstance(state="running", max_tries=1))
    waiting.operator.on_kill()
    assert "goes on for the next try" in str(waiting.end())
    assert client.observe(waiting.gang).cancel_requested is None


@pytest.mark.parametrize(("state", "max_tries"), [("failed", 1), ("restarting", 1), ("running", 0)],
                         ids=["marked", "cleared", "last-try"])
def test_a_kill_that_was_meant_cancels(client: Client, state: str, max_tries: int) -> None:
    waiting = Waiting(client, TaskInstance(state=state, max_tries=max_tries))
    waiting.operator.on_kill()
    assert isinstance(waiting.end(), AirflowException)
    assert ended(client, waiting.gang).state is GangState.CANCELLED


def test_an_execution_timeout_cancels(client: Client) -> None:
    import signal

    def expire(signum: int, frame: object) -> None:
        raise AirflowTaskTimeout("time is up")

    ti = TaskInstance()
    before = signal.signal(signal.SIGALRM, expire)
    try:
        threading.Thread(target=lambda: (_submitted(client, ti), signal.pthread_kill(
            threading.main_thread().ident or 0, signal.SIGALRM))).start()
        with pytest.raises(AirflowTaskTimeout):
            gang(deferrable=False).execute(context(ti))
    finally:
        signal.signal(signal.SIGALRM, before)
    assert ended(client, ti.xcoms["gang"]).state is GangState.CANCELLED


def _submitted(client: Client, ti: TaskInstance) -> None:
    Waiting._gang(client, ti)


@pytest.mark.parametrize(("setting", "expected"), [(None, True), ("False", False), ("True", True)])
def test_it_defers_unless_told_otherwise(monkeypatch: pytest.MonkeyPatch, setting: str | None,
                                         expected: bool) -> None:
    if setting is not None:
        monkeypatch.setenv("AIRFLOW__OPERATORS__DEFAULT_DEFERRABLE", setting)
    assert gang().deferrable is expected
    assert gang(deferrable=not expected).deferrable is not expected
