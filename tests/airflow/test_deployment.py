"""Against a real Airflow: what must live lives and what must die dies, whatever is killed or clicked."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import DAGS, PLUGINS, child_environ
from deployment import Deployment, running, wait_for

from gangline.client import Client
from gangline.model.gang import GangView
from gangline.model.states import GangState

DAG = "gangs"
TASK = "train"
_SOURCE = '''
    """One task whose gang holds its nodes until the test lets it go."""
    from airflow.sdk import DAG, Asset
    from airflow_gangline.operators import GangOperator
    from gangs_work import hold

    with DAG("gangs", schedule=None):
        GangOperator(task_id="train", function=hold, args={"gate": "GATES/{{ run_id }}"},
                     outlets=[Asset(name="held", uri="gangline://held")], retries=1, retry_delay=0)
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
        deadline = time.monotonic() + 120
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
    (PLUGINS / "gangs.py").write_text("from airflow_gangline.plugin import GanglinePlugin as Listening\n")
    (DAGS / "gangs_work.py").write_text(textwrap.dedent(_WORK))
    (DAGS / "gangs.py").write_text(textwrap.dedent(_SOURCE).replace("GATES", str(gates)))
    with running(airflow_db, child_environ()) as deployment:
        deployment.wait_dag(DAG)
        yield deployment


def gangs_of(client: Client, run_id: str) -> list[GangView]:
    """The gangs of a run's task, oldest first."""
    return client.list(slot_prefix=f"airflow:airflow/{DAG}/{run_id}/")[::-1]


def wait_running(airflow: Deployment, client: Client, run_id: str, count: int = 1) -> GangView:
    """The run's newest gang once there are `count`, it runs and the task is deferred."""
    def look() -> GangView | None:
        gangs = gangs_of(client, run_id)
        done = len(gangs) == count and gangs[-1].state is GangState.RUNNING
        return gangs[-1] if done and airflow.task(DAG, run_id, TASK)["state"] == "deferred" else None

    return wait_for(look, 90, lambda: f"task {airflow.task(DAG, run_id, TASK).get('state')}, gangs "
                                      f"{[(g.gang, g.state, g.end) for g in gangs_of(client, run_id)]}")


def wait_ended(client: Client, gang: str) -> GangView:
    return wait_for(lambda: view if (view := client.observe(gang)).state.final else None, 30,
                    lambda: f"{gang} is {client.observe(gang).state}")


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


def test_a_killed_triggerer_costs_nothing(airflow: Deployment, client: Client, gates: Path) -> None:
    airflow.run(DAG, "triggerer")
    gang = wait_running(airflow, client, "triggerer")
    airflow.kill("triggerer")
    airflow.start("triggerer")
    (gates / "triggerer").touch()
    airflow.wait_state(DAG, "triggerer", TASK, "success")
    (only,) = gangs_of(client, "triggerer")
    assert (only.gang, only.state, len(only.attempts)) == (gang.gang, GangState.SUCCEEDED, 1)


def test_a_mark_cancels_even_when_no_triggerer_lives(airflow: Deployment, client: Client) -> None:
    airflow.kill("triggerer")
    try:
        airflow.run(DAG, "unwatched")
        gang = wait_running(airflow, client, "unwatched")
        airflow.mark(DAG, "unwatched", TASK, "failed")
        assert wait_ended(client, gang.gang).state is GangState.CANCELLED
    finally:
        airflow.start("triggerer")


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
