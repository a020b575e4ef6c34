"""What only Slurm has, and ways in which it fails, on a real Slurm."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hub import Hub
from rig import MARK_ENV, OTHER_FLEET, Run, ask, look, start, until
from slurm_cluster import SlurmCluster, slurm_cluster
from slurm_rig import SlurmRig

from gangline.engines.base import TAG, JobStatus, NodeStatus
from gangline.engines.slurm.request import Submission
from gangline.model.errors import NotFound, Rejected, Unavailable
from gangline.model.node import NodeView
from gangline.model.states import NodeLifecycle

pytestmark = pytest.mark.slow

CLOUD = "c1"


@pytest.fixture(scope="module")
def cluster() -> Iterator[SlurmCluster]:
    with slurm_cluster() as running:
        yield running


@pytest.fixture
def rig(cluster: SlurmCluster, tmp_path: Path) -> Iterator[SlurmRig]:
    hub = Hub()
    rig = SlurmRig(cluster, hub, tmp_path / "home")
    yield rig
    for job in rig.engine.observe().jobs:
        rig.engine.stop(job.name, 0.0)
    until(lambda: all(job.status is JobStatus.ENDED for job in rig.engine.observe().jobs), "every job to be over")
    hub.close()


def test_the_token_is_in_nothing_that_others_can_read(rig: SlurmRig) -> None:
    run = start(rig, rig.nodes[:2])
    for told in (("scontrol", "show", "job", "-dd", run.id), ("scontrol", "write", "batch_script", run.id, "-"),
                 ("squeue", "--json"), ("scontrol", "show", "step", run.id)):
        said = rig.cluster.run(*told)
        assert said
        assert run.guest.token not in said
    for path in [*rig.home.rglob("*"), *(rig.cluster.folder / "log").rglob("*")]:
        if path.is_file():
            assert run.guest.token.encode() not in path.read_bytes(), path


def test_variables_of_the_server_change_nothing_and_go_nowhere(rig: SlurmRig, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SLURM_JWT", "SBATCH_PARTITION", "SQUEUE_FORMAT", "SINFO_FORMAT", "SLURM_HINT", "A_SECRET_OF_OURS"):
        monkeypatch.setenv(name, "nonsense")
    run = start(rig, rig.nodes[:1])
    run.wait_started()
    ranks = [int(told.split()[0]) for told in run.processes() if f"{MARK_ENV}={run.name}" in environment(told)]
    assert ranks
    for told in run.processes():
        assert "A_SECRET_OF_OURS" not in environment(told)


def environment(told: str) -> str:
    return Path(f"/proc/{told.split()[0]}/environ").read_text(errors="replace")


def test_the_job_shows_the_slot_and_waits_for_no_requeue(rig: SlurmRig) -> None:
    run = ask(rig, rig.nodes[:1], slot="daily/train\nsecond line")
    run.launch()
    run.wait_hello()
    shown = rig.cluster.run("scontrol", "show", "job", run.id)
    assert "Comment=daily/train second line" in shown
    assert "Requeue=0" in shown
    assert f"JobName={run.name}" in shown
    assert "OverSubscribe=NO" in shown


def test_parts_of_a_node_get_different_gpus_and_their_share_of_the_rest(rig: SlurmRig) -> None:
    rig.engine.observe()
    one, two = start(rig, rig.nodes[:1], 2), start(rig, rig.nodes[:1], 6)
    shown = [rig.cluster.run("scontrol", "show", "job", "-d", run.id) for run in (one, two)]
    assert "GRES=gpu:h100:2(IDX:0-1)" in shown[0]
    assert "GRES=gpu:h100:6(IDX:2-7)" in shown[1]
    assert ["NumCPUs=2 " in shown[0], "NumCPUs=6 " in shown[1]] == [True, True]
    assert ["Mem=8000 " in shown[0], "Mem=24000 " in shown[1]] == [True, True]


def test_a_job_that_has_ended_is_remembered_and_not_started_again(rig: SlurmRig) -> None:
    run = start(rig, rig.nodes[:1])
    rig.engine.stop(run.name, 5.0)
    run.wait_over()
    first = run.id
    assert run.launch(rig.again()) == first
    seen = run.seen()
    assert seen is not None
    assert (seen.id, seen.status) == (first, JobStatus.ENDED)


def test_a_submission_whose_answer_is_lost_is_found_again(rig: SlurmRig, tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("squeue", "scancel", "sinfo"):
        (programs / name).symlink_to(f"/usr/bin/{name}")
    sbatch = programs / "sbatch"
    sbatch.write_text("#!/bin/sh\n/usr/bin/sbatch \"$@\" >/dev/null\n"
                      "echo 'sbatch: error: Batch job submission failed: Socket timed out on send/recv' >&2\nexit 1\n")
    sbatch.chmod(0o755)
    rig.settings["bin"] = str(programs)
    run = ask(rig, rig.nodes[:2])
    with pytest.raises(Unavailable, match="Socket timed out"):
        run.launch(rig.again())
    assert run.launch() == run.id != ""
    run.wait_hello()
    assert [job.id for job in rig.engine.observe().jobs if job.name == run.name] == [run.id]


def test_of_two_jobs_with_one_name_only_the_first_runs(rig: SlurmRig) -> None:
    run = ask(rig, rig.nodes[:1])
    run.launch()
    second = submit_once_more(rig, run, rig.nodes[1])
    run.wait_hello()
    until(lambda: rig.cluster.run("squeue", "-h", "-j", second, "-o", "%r") == "Dependency", "the second to wait")
    seen = run.seen()
    assert seen is not None
    assert (seen.id, seen.status) == (run.id, JobStatus.RUNNING)
    rig.engine.stop(run.name, 0.0)
    run.wait_over()
    assert rig.state(second) == "CANCELLED"


def submit_once_more(rig: SlurmRig, run: Run, node: str) -> str:
    """What another server does that has looked before this one submitted."""
    body = rig.engine.prepare(run.job).body
    assert isinstance(body, Submission)
    options = [option.replace(f"--nodelist={rig.nodes[0]}", f"--nodelist={node}") for option in body.options
               if not option.startswith("--export")]
    return rig.cluster.run("sbatch", *options, "--export=NONE", str(rig.home / "slurm" / "supervise.sh"), *body.argv)


def test_the_node_that_runs_the_script_takes_its_job_with_it(rig: SlurmRig) -> None:
    run = start(rig, rig.nodes[:2])
    run.wait_started()
    rig.cluster.cut(rig.nodes[0])
    run.wait_over()
    assert run.processes() == []
    rig.revive(rig.nodes[0])


def test_a_node_that_dies_before_its_job_starts_ends_it(rig: SlurmRig) -> None:
    run = ask(rig, rig.nodes[1:3])
    rig.cluster.cut(rig.nodes[2])
    run.launch()
    until(lambda: (seen := run.seen()) and (seen.status is JobStatus.ENDED or (
        seen.status is JobStatus.WAITING and "ReqNodeNotAvail" in seen.text)), "its end, or why it waits",
        lambda: run.seen())
    rig.engine.stop(run.name, 0.0)
    run.wait_over()
    assert run.processes() == []
    rig.revive(rig.nodes[2])


def test_a_daemon_that_is_only_restarted_ends_nothing(rig: SlurmRig) -> None:
    run = start(rig, rig.nodes[:2])
    pid = int((rig.cluster.folder / "run" / f"{rig.nodes[1]}.pid").read_text())
    rig.cluster.run("kill", "-KILL", str(pid))
    until(lambda: look(rig, rig.nodes[1]).status is NodeStatus.UNKNOWN, "it not to respond")
    rig.cluster.start(rig.nodes[1])
    until(lambda: look(rig, rig.nodes[1]).status is NodeStatus.READY, "it to respond again")
    run.wait_status(JobStatus.RUNNING)


def test_a_job_in_a_reservation_runs_there_and_others_wait(rig: SlurmRig) -> None:
    rig.cluster.run("scontrol", "create", "reservation", "ReservationName=ours", "StartTime=now", "Duration=60",
                    "Users=root", f"Nodes={rig.nodes[0]}", "Flags=IGNORE_JOBS")
    try:
        until(lambda: look(rig, rig.nodes[0]).status is NodeStatus.DRAINED, "the reservation to begin")
        outside = ask(rig, rig.nodes[:1])
        outside.launch()
        until(lambda: (seen := outside.seen()) and "reserved" in seen.text, "a reason", lambda: outside.seen())
        rig.settings["reservation"] = "ours"
        engine = rig.again()
        until(lambda: look(rig, rig.nodes[0], engine).status is NodeStatus.READY, "it to be ready")
        inside = ask(rig, rig.nodes[:1])
        inside.launch(engine)
        inside.wait_hello()
        rig.engine.stop(inside.name, 0.0)
        rig.engine.stop(outside.name, 0.0)
        inside.wait_over()
    finally:
        rig.cluster.run("scontrol", "delete", "ReservationName=ours")


def test_a_drain_of_another_fleet_is_not_lifted(rig: SlurmRig) -> None:
    other = rig.other_fleet()
    other.drain(rig.nodes[0], "theirs")
    rig.engine.resume(rig.nodes[0])
    seen = look(rig, rig.nodes[0])
    assert seen.status is NodeStatus.DRAINED
    assert f"{TAG} {OTHER_FLEET}: theirs" in seen.text
    other.resume(rig.nodes[0])
    until(lambda: look(rig, rig.nodes[0]).status is NodeStatus.READY, "it to be ready")


def test_what_the_cluster_cannot_do_is_said(rig: SlurmRig) -> None:
    with pytest.raises(Rejected, match="RebootProgram"):
        rig.engine.reboot(rig.nodes[0])
    with pytest.raises(NotFound, match="no node n99"):
        rig.engine.drain("n99", "x")
    run = ask(rig, ("n99",))
    with pytest.raises(Rejected, match="node name"):
        run.launch()
    rig.settings["partition"] = "nowhere"
    with pytest.raises(Rejected, match="partition"):
        ask(rig, rig.nodes[:1]).launch(rig.again())


def test_a_sleeping_node_is_woken_runs_a_job_and_is_put_to_sleep(rig: SlurmRig) -> None:
    rig.settings["partition"] = "cloud"
    engine = rig.again()
    assert look(rig, CLOUD, engine).status is NodeStatus.ASLEEP
    for _ in range(2):
        engine.provision([view(CLOUD)])
    assert look(rig, CLOUD, engine).status in (NodeStatus.BOOTING, NodeStatus.READY)  # it may be fast
    until(lambda: look(rig, CLOUD, engine).status is NodeStatus.READY, "it to be up", lambda: look(rig, CLOUD, engine))
    run = ask(rig, (CLOUD,))
    run.launch(engine)
    run.wait_hello()
    engine.stop(run.name, 5.0)
    run.wait_over()
    for _ in range(2):
        engine.release([view(CLOUD)])
    until(lambda: look(rig, CLOUD, engine).status is NodeStatus.ASLEEP, "it to sleep")
    until(lambda: not (rig.cluster.folder / "run" / f"{CLOUD}.pid").exists(), "its daemon's end")


def view(node: str) -> NodeView:
    return NodeView(node=node, pool="train", engine="slurm", gpu_type="H100", gpu_count=8, zone="local",
                    lifecycle=NodeLifecycle.READY)


def test_a_grace_is_kept_and_then_nothing_is_left(rig: SlurmRig) -> None:
    run = ask(rig, rig.nodes[:1])
    engine = rig.engine
    body = engine.prepare(run.job).body
    assert isinstance(body, Submission)
    deaf = "import signal, sys, time; signal.signal(signal.SIGTERM, lambda *_: print('heard', flush=True))\n"
    argv = (body.argv[0], "-c", deaf + "print('there', flush=True)\nwhile True: time.sleep(1)", run.name)
    engine.launch(replace(engine.prepare(run.job), body=replace(body, argv=argv)), run.guest.token)
    until(lambda: "there" in engine.logs(run.name), "it to run")
    engine.stop(run.name, 1.0)
    run.wait_over()
    assert "heard" in engine.logs(run.name)
    assert run.processes() == []

