"""Gangs from Dagster assets: what comes out, and what survives the end of a run."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from fleet_world import SUPPORT, World, dead

import dagster as dg
from dagster_gangline.slot import IS_RESUME_TAG
from gangline.model.states import GangState


@pytest.fixture
def instance(world: World, monkeypatch: pytest.MonkeyPatch) -> dg.DagsterInstance:
    folder = world.home.parent / "dagster"
    folder.mkdir()
    (folder / "dagster.yaml").touch()
    monkeypatch.setenv("DAGSTER_HOME", str(folder))
    monkeypatch.setenv("DAGSTER_DISABLE_TELEMETRY", "yes")
    monkeypatch.setenv("MARKS", str(world.marks))
    return dg.DagsterInstance.get()


def test_a_checkpoint_is_the_assets_data_version(world: World, instance: dg.DagsterInstance) -> None:
    import dagster_job

    result = dg.materialize([dagster_job.model], resources={"gangline": dagster_job.GanglineResource()},
                            instance=instance)
    event = result.asset_materializations_for_node("model")[0]
    newest = world.client.volume("ckpt").versions[0]
    assert event.tags is not None
    assert event.tags["dagster/data_version"] == f"ckpt@{newest.version}"
    assert event.metadata["step"].value == 60
    assert event.metadata["manifest_sha256"].value == newest.manifest_sha256
    assert "a-1" in str(event.metadata["placement"].value).replace("\\", "")


def test_a_fan_out_is_whole_and_in_order(world: World, instance: dg.DagsterInstance) -> None:
    import dagster_job

    result = dg.materialize([dagster_job.shards], resources={"gangline": dagster_job.GanglineResource()},
                            instance=instance)
    assert result.output_for_node("shards") == [1, 2, 3]
    slots = {view.slot for view in world.client.list()}
    assert slots == {f"dagster:dagster/{result.run_id}/shards#{i}" for i in range(3)}


def test_a_killed_run_that_is_re_executed_from_failure_finds_its_gang(
        world: World, instance: dg.DagsterInstance) -> None:
    gang = run_in_process_of_its_own(world, signal.SIGKILL)
    first = instance.get_runs()[0]
    assert first.status is dg.DagsterRunStatus.STARTED, "nobody could tell Dagster"
    instance.report_run_failed(first)

    again = re_execute_from_failure(instance, first)
    assert again.success
    assert [view.gang for view in world.client.list()] == [gang]
    assert world.events(gang).count("gang.submitted") == 1
    assert len(world.client.observe(gang).attempts) == 1


def test_a_run_of_all_steps_is_new_work(world: World, instance: dg.DagsterInstance) -> None:
    first = dg.execute_job(dg.reconstructable(training), instance)
    options = dg.ReexecutionOptions(first.run_id)
    dg.execute_job(dg.reconstructable(training), instance, reexecution_options=options)
    assert len({view.slot for view in world.client.list()}) == 2


def test_a_drained_run_leaves_its_gang_running(world: World, instance: dg.DagsterInstance) -> None:
    gang = run_in_process_of_its_own(world, signal.SIGTERM)
    view = world.until_final(gang)
    assert view.state is GangState.SUCCEEDED
    assert "cancel.requested" not in world.events(gang)


def test_a_terminated_run_cancels_its_gang(world: World, instance: dg.DagsterInstance) -> None:
    def cancelling() -> None:
        instance.report_run_canceling(instance.get_runs()[0])

    gang = run_in_process_of_its_own(world, signal.SIGTERM, cancelling)
    view = world.until_final(gang)
    assert view.state is GangState.CANCELLED
    assert all(dead(pid) for pid in world.pids(1).values())


def test_a_failed_gang_fails_the_step_with_its_evidence(world: World, instance: dg.DagsterInstance,
                                                        monkeypatch: pytest.MonkeyPatch) -> None:
    import dagster_job

    monkeypatch.setenv("STEPS", "-1")  # the ranks refuse to count backwards
    result = dg.materialize([dagster_job.model], resources={"gangline": dagster_job.GanglineResource()},
                            instance=instance, raise_on_error=False)
    assert not result.success
    failure = result.failure_data_for_node("model")
    assert failure is not None
    assert failure.user_failure_data is not None
    assert failure.user_failure_data.metadata["cause"].value == "user"
    assert "count" in str(failure.user_failure_data.metadata["last lines"].value)


def run_in_process_of_its_own(world: World, how: signal.Signals, before=lambda: None) -> str:
    """Start the job, and end its process by a signal while the gang trains; the gang's id."""
    dagster = str(Path(sys.executable).with_name("dagster"))
    with subprocess.Popen([dagster, "job", "execute", "-m", "dagster_job", "-j", "training"],
                          env={**os.environ, "PYTHONPATH": str(SUPPORT)}, cwd="/",
                          stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        gang = world.first_gang()
        world.until_step(gang, 12)
        before()
        process.send_signal(how)
        process.wait(60)
    return gang


def re_execute_from_failure(instance: dg.DagsterInstance, run: dg.DagsterRun) -> dg.JobExecutionResult:
    """Re-execution from failure here, with the tag that the webserver and the daemon give it."""
    return dg.execute_job(dg.reconstructable(training), instance, tags={IS_RESUME_TAG: "true"},
                          reexecution_options=dg.ReexecutionOptions.from_failure(run.run_id, instance))


def training() -> dg.JobDefinition:
    import dagster_job

    return dagster_job.defs.resolve_job_def("training")
