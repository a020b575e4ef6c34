"""Against a real Airflow: what must live lives and what must die dies, whatever is killed or clicked."""

from __future__ import annotations

import os
import signal
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from deployment import STATE_S, Deployment, running, wait_for

from conftest import DAGS, child_environ
from gangline.client import Client
from gangline.model.gang import GangView
from gangline.model.states import GangState

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]  # the first test also pays for starting everything

DAG = "gangs"
SYNC_DAG = "gangs_sync"
TASK = "train"
_SOURCE = '''
    """Tasks whose gang holds its nodes until the test lets it go."""
    from airflow.sdk import DAG, Asset
    from airflow_gangline.operators import GangOperator
    from gangs_work import hold

    common = {"task_id": "train", "function": hold, "args": {"gate": "GATES/{{ run_id }}"}, "retries": 1,
              "retry_delay": 0}
    with DAG("gangs", schedule=None):
        GangOperator(**common, outlets=[Asset(name="held", uri="gangline://held")])
    with DAG("gangs_sync", schedule=None):
        GangOperator(**common, deferrable=False)
'''

_WORK = '''
    """A gang that holds its nodes until the test lets it go."""
    import pathlib
    import time

    import gangline


    @gangline.clustered(size=2, gpu="cpu:4", volumes={"/ckpt": "held"}, grace="1s")
    def hold(gate: str) -> dict:
        info = gangline.cluster_info()
        pathlib.Path(f"{gate}.{info.attempt}.{info.rank}").touch()
        deadline = time.monotonic() + 600
        while not pathlib.Path(gate).exists():
            if time.monotonic() > deadline:
                raise TimeoutError(gate)
            time.sleep(0.05)
        with gangline.new_version(step=7, metrics={"loss": 0.5}) as folder:
            (folder / f"part-{info.rank}").write_text("weights")
        return {"ranks": info.world_size}
'''


@pytest.fixture(scope="module")
def gates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("gates")


@pytest.fixture(scope="module")
def airflow(airflow_db: Path, gates: Path, client: Client) -> Iterator[Deployment]:
    (DAGS / "gangs_work.py").write_text(textwrap.dedent(_WORK))
    (DAGS / "gangs.py").write_text(textwrap.dedent(_SOURCE).replace("GATES", str(gates)))
    with running(airflow_db, child_environ()) as deployment:
        deployment.wait_dag(DAG)
        deployment.wait_dag(SYNC_DAG)
        yield deployment


def gangs_of(client: Client, run_id: str, dag_id: str = DAG) -> list[GangView]:
    """The gangs of a run's task, oldest first."""
    return client.list(slot_prefix=f"airflow:airflow/{dag_id}/{run_id}/")[::-1]


def wait_running(airflow: Deployment, client: Client, run_id: str, *, count: int = 1,
                 dag_id: str = DAG) -> GangView:
    """The run's newest gang once there are `count`, it runs and the task waits for it as its DAG says."""
    waiting = "deferred" if dag_id == DAG else "running"

    def look() -> GangView | None:
        gangs, state = gangs_of(client, run_id, dag_id), airflow.task(dag_id, run_id, TASK).get("state")
        assert state not in ("failed", "success", "up_for_retry"), state
        runs = len(gangs) == count and gangs[-1].state is GangState.RUNNING
        return gangs[-1] if runs and state == waiting else None

    return wait_for(look, STATE_S, lambda: f"{airflow.task(dag_id, run_id, TASK).get('state')}, "
                                           f"{[(g.state, g.wait) for g in gangs_of(client, run_id, dag_id)]}")


def wait_ended(client: Client, gang: str) -> GangView:
    return wait_for(lambda: view if (view := client.observe(gang)).state.final else None, STATE_S,
                    lambda: f"{gang} is {client.observe(gang).state}")


def owners_of(client: Client, gang: str) -> int:
    """How many tries of the task have acted for the gang."""
    return 1 + sum(event.kind == "owner.changed" for event in client.events(gang).events)


def test_success_with_a_link_a_result_and_an_asset_event(airflow: Deployment, client: Client,
                                                         gates: Path) -> None:
    airflow.run(DAG, "good")
    gang = wait_running(airflow, client, "good")
    assert airflow.links(DAG, "good", TASK) == {"Gang": f"gangline show {gang.gang}"}
    (gates / "good").touch()
    airflow.wait_state(DAG, "good", TASK, "success")
    result = airflow.xcom(DAG, "good", TASK)
    assert (result["gang"], result["state"], result["result"]) == (gang.gang, "succeeded", {"ranks": 2})
    (event,) = airflow.asset_events(DAG, "good")
    assert event["extra"]["uri"] == result["versions"][-1]
    assert (event["extra"]["gang"], event["extra"]["step"]) == (gang.gang, 7)


def test_a_dead_triggerer_loses_nothing_and_hides_nothing(airflow: Deployment, client: Client,
                                                          gates: Path) -> None:
    airflow.run(DAG, "survives")
    survives = wait_running(airflow, client, "survives")
    airflow.kill("triggerer")
    try:
        (gates / "survives").touch()
        assert wait_ended(client, survives.gang).state is GangState.SUCCEEDED
        airflow.run(DAG, "unwatched")
        unwatched = wait_running(airflow, client, "unwatched")
        airflow.mark(DAG, "unwatched", TASK, "failed")  # nobody but the API server can hear of this now
        assert wait_ended(client, unwatched.gang).state is GangState.CANCELLED
    finally:
        airflow.start("triggerer")
    airflow.wait_state(DAG, "survives", TASK, "success")
    (only,) = gangs_of(client, "survives")
    assert (only.gang, len(only.attempts)) == (survives.gang, 1)
    assert owners_of(client, survives.gang) == 1


@pytest.mark.parametrize("state", ["failed", "success"])
def test_marking_a_deferred_task_cancels_its_gang(airflow: Deployment, client: Client, state: str) -> None:
    run_id = f"marked-{state}"
    airflow.run(DAG, run_id)
    gang = wait_running(airflow, client, run_id)
    airflow.mark(DAG, run_id, TASK, state)
    assert wait_ended(client, gang.gang).state is GangState.CANCELLED
    assert len(gangs_of(client, run_id)) == 1


def test_clearing_a_deferred_task_starts_anew(airflow: Deployment, client: Client, gates: Path) -> None:
    airflow.run(DAG, "cleared")
    first = wait_running(airflow, client, "cleared")
    airflow.clear(DAG, "cleared", TASK)
    second = wait_running(airflow, client, "cleared", count=2)
    assert wait_ended(client, first.gang).state is GangState.CANCELLED
    (gates / "cleared").touch()
    airflow.wait_state(DAG, "cleared", TASK, "success")
    states = [(view.gang, view.state) for view in gangs_of(client, "cleared")]
    assert states == [(first.gang, GangState.CANCELLED), (second.gang, GangState.SUCCEEDED)]


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGKILL])
def test_a_worker_that_dies_leaves_the_gang_to_the_retry(airflow: Deployment, client: Client, gates: Path,
                                                         signum: signal.Signals) -> None:
    run_id = f"worker-{signum.name}"
    airflow.run(SYNC_DAG, run_id)
    gang = wait_running(airflow, client, run_id, dag_id=SYNC_DAG)
    os.kill(airflow.task(SYNC_DAG, run_id, TASK)["pid"], signum)
    wait_for(lambda: owners_of(client, gang.gang) == 2, STATE_S, lambda: "no retry took the gang over")
    (gates / run_id).touch()
    airflow.wait_state(SYNC_DAG, run_id, TASK, "success")
    (only,) = gangs_of(client, run_id, SYNC_DAG)
    assert (only.gang, len(only.attempts)) == (gang.gang, 1)


def test_marking_a_waiting_task_cancels_its_gang(airflow: Deployment, client: Client) -> None:
    airflow.run(SYNC_DAG, "marked")
    gang = wait_running(airflow, client, "marked", dag_id=SYNC_DAG)
    airflow.mark(SYNC_DAG, "marked", TASK, "failed")
    assert wait_ended(client, gang.gang).state is GangState.CANCELLED
    assert len(gangs_of(client, "marked", SYNC_DAG)) == 1
