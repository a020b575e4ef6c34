"""What Slurm is asked for: options, a constant script, and nothing of ours for a shell to read."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from gangline.engines.base import Job, JobNode, job_name
from gangline.engines.slurm import SlurmEngine
from gangline.engines.slurm.programs import Programs
from gangline.engines.slurm.request import SCRIPT, Submission
from gangline.engines.supervision import Supervision
from gangline.model.engine import Slurm
from gangline.model.errors import NotFound, Rejected, Unavailable
from gangline.model.fleet import Pool

FLEET = "00c0ffee"
NAME = job_name(FLEET, "g-7", 2)


def engine(home: Path, gpu: str = "H100:8", **slurm: object) -> SlurmEngine:
    pool = Pool.parse({"name": "train", "engine": "slurm", "gpu": gpu, "slurm": {"partition": "gpu", **slurm}})
    return SlurmEngine((pool,), Supervision(server_url="https://gangline.example:8443"), home, FLEET)


def job(nodes: tuple[str, ...] = ("n1", "n2"), *, gpus: int = 8, whole: bool = True, limit_s: float | None = None,
        slot: str = "daily/train") -> Job:
    parts = tuple(JobNode(node=node, gpus=gpus, whole=whole) for node in nodes)
    return Job(name=NAME, gang="g-7", attempt=2, pool="train", slot=slot, tenant="default", title="sft", nodes=parts,
               limit_s=limit_s)


def asked(home: Path, wanted: Job, **slurm: object) -> Submission:
    body = engine(home, **slurm).prepare(wanted).body
    assert isinstance(body, Submission)
    return body


def test_whole_nodes_are_asked_for_by_name_and_for_us_alone(tmp_path: Path) -> None:
    options = asked(tmp_path, job()).options
    assert {f"--job-name={NAME}", "--comment=daily/train", "--partition=gpu", "--nodes=2", "--ntasks=2",
            "--ntasks-per-node=1", "--nodelist=n1,n2", "--gres=gpu:8", "--exclusive", "--mem=0", "--no-requeue",
            "--open-mode=append", "--dependency=singleton", "--chdir=/", "--propagate=NONE"} <= set(options)
    assert not any(option.startswith("--time") for option in options)


def test_a_pools_settings_are_passed_on(tmp_path: Path) -> None:
    options = asked(tmp_path, job(), account="lab", qos="high", reservation="ours", constraint="h100&ib").options
    assert {"--account=lab", "--qos=high", "--reservation=ours", "--constraint=h100&ib"} <= set(options)


@pytest.mark.parametrize(("limit_s", "option"), [(1, "--time=1"), (60, "--time=1"), (61, "--time=2"),
                                                 (6 * 3600, "--time=360")])
def test_a_limit_is_told_in_minutes_rounded_up(tmp_path: Path, limit_s: float, option: str) -> None:
    assert option in asked(tmp_path, job(limit_s=limit_s)).options


def test_a_part_of_a_node_does_not_ask_for_it_alone(tmp_path: Path) -> None:
    options = asked(tmp_path, job(("n1",), gpus=2, whole=False)).options
    assert "--gres=gpu:2" in options
    assert "--exclusive" not in options
    assert "--oversubscribe" not in options


def test_processors_are_asked_for_where_there_are_no_gpus(tmp_path: Path) -> None:
    options = asked(tmp_path, job(("n1",), gpus=4, whole=False), gpu="cpu:96").options
    assert "--cpus-per-task=4" in options
    assert not any(option.startswith("--gres") for option in options)


def test_variables_are_exported_by_name_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s3cr3t")
    monkeypatch.setenv("SLURM_JWT", "eyJ")
    monkeypatch.setenv("LANG", "C.UTF-8")
    (exported,) = [option for option in asked(tmp_path, job()).options if option.startswith("--export=")]
    names = exported.removeprefix("--export=").split(",")
    assert {"GANGLINE_NODE_TOKEN", "PATH", "LANG"} <= set(names)
    assert not {"AWS_SECRET_ACCESS_KEY", "SLURM_JWT", "SLURM_CONF", "ALL", "NONE"} & set(names)
    assert "=" not in exported.removeprefix("--export=")


def test_the_supervisors_arguments_are_the_scripts(tmp_path: Path) -> None:
    body = asked(tmp_path, job())
    assert body.argv[0] == sys.executable
    assert list(body.argv[body.argv.index("--job"):][:2]) == ["--job", NAME]
    assert NAME not in SCRIPT


@pytest.mark.parametrize("node", ["", "n1,n2", "n[1-4]", "n1 --wrap=x", "$(x)", "-n1", "n1\nn2", "n1;x", "größe"])
def test_a_node_that_is_no_name_is_refused(tmp_path: Path, node: str) -> None:
    with pytest.raises(Rejected, match="no name of a Slurm node"):
        engine(tmp_path).prepare(job((node,)))
    for change in (engine(tmp_path).resume, engine(tmp_path).reboot, lambda name: engine(tmp_path).drain(name, "x")):
        with pytest.raises(NotFound):
            change(node)


def test_a_pool_of_another_cluster_is_refused(tmp_path: Path) -> None:
    other = Job(name=NAME, gang="g-7", attempt=2, pool="other", slot="", tenant="", title="", nodes=job().nodes)
    with pytest.raises(Rejected, match="pool other"):
        engine(tmp_path).prepare(other)


def test_a_log_folder_that_slurm_would_read_as_a_pattern_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Rejected, match="log_dir"):
        engine(tmp_path, log_dir="/logs/%j").prepare(job())


@pytest.mark.parametrize("name", ["../../etc/passwd", "gangline-00c0ffee-../x-1", ""])
def test_logs_are_those_of_jobs_alone(tmp_path: Path, name: str) -> None:
    assert engine(tmp_path).logs(name) == ""


def test_the_end_of_a_long_log_is_told(tmp_path: Path) -> None:
    folder = tmp_path / "slurm" / "logs"
    folder.mkdir(parents=True)
    (folder / f"{NAME}.log").write_text("ü" * 100_000 + "the end")
    told = engine(tmp_path).logs(NAME)
    assert told.endswith("the end")
    assert len(told.encode()) <= 64 * 1024


def program(folder: Path, name: str, body: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)


def test_a_program_that_hangs_is_ended(tmp_path: Path) -> None:
    program(tmp_path, "squeue", "exec sleep 1000")
    with pytest.raises(Unavailable, match=r"did not answer within 0\.1 s"):
        Programs(Slurm(partition="gpu", bin=str(tmp_path)), within_s=0.1).run("squeue")


def test_a_program_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="squeue cannot be run"):
        engine(tmp_path, bin=str(tmp_path)).observe()


def test_what_cannot_be_read_is_unavailable_and_shown(tmp_path: Path) -> None:
    program(tmp_path, "squeue", "echo a new kind of table")
    with pytest.raises(Unavailable, match="a new kind of table"):
        engine(tmp_path, bin=str(tmp_path)).observe()


def test_programs_get_the_pools_configuration_and_nothing_that_changes_what_is_asked(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SLURM_JWT", "SBATCH_PARTITION", "SQUEUE_FORMAT", "SLURM_CLUSTERS", "ANY_SECRET"):
        monkeypatch.setenv(name, "x")
    monkeypatch.setenv("PYTHONPATH", "here")
    program(tmp_path, "env-of-ours", "exec env")
    said = Programs(Slurm(partition="gpu", bin=str(tmp_path), conf="/etc/other.conf")).run("env-of-ours")
    told = dict(line.partition("=")[::2] for line in said.splitlines())
    assert told["SLURM_CONF"] == "/etc/other.conf"
    assert told["PYTHONPATH"] == str(Path("here").absolute())
    assert not [name for name, value in told.items() if value == "x"]
