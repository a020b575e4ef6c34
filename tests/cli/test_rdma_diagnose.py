"""`rdma diagnose` at the command line: what it reads, says and ends with."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from nccl_log import good, warn

from gangline.cli.rdma_diagnose import diagnose
from gangline.model.errors import Rejected

DOWN = warn(1, "NET/IB : mlx5_7:1 Got async error event: port error")


def text(*lines: str) -> str:
    return "".join(f"{line}\n" for line in lines)


def run(*args: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(diagnose, args, input=stdin, catch_exceptions=False)


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    for rank in (0, 1):
        (tmp_path / f"rank{rank}.log").write_text(text(*good(rank)))
    return tmp_path


def test_proved_is_status_0(logs: Path) -> None:
    done = run(*(str(logs / f"rank{rank}.log") for rank in (0, 1)))
    assert done.exit_code == 0
    assert done.stdout.startswith("proved  all 2 ranks")


def test_a_failure_is_status_1_with_cause_blame_and_remedy_first(logs: Path) -> None:
    with (logs / "rank1.log").open("a") as file:
        file.write(text(DOWN))
    done = run(str(logs))
    assert done.exit_code == 1
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines[1:6]] == ["cause", "blamed", "remedy", "retry", "seen"]
    assert "node nb, rank 1, HCA mlx5_7:1" in lines[2]
    assert lines[8].split()[:2] == ["RANK", "STATE"]


def test_json_has_it_all(logs: Path) -> None:
    done = run("--json", str(logs))
    found = json.loads(done.stdout)
    assert (found["state"], found["ok"], found["cause"], found["missing_ranks"]) == ("proved", True, None, [])
    assert [(rank["rank"], rank["state"], rank["node"]) for rank in found["ranks"]] == [
        ("0", "proved", "na"), ("1", "proved", "nb")]


def test_standard_input_holds_many_ranks() -> None:
    done = run("--json", "-", stdin=text(*good(0), *good(1), DOWN))
    assert done.exit_code == 1
    found = json.loads(done.stdout)
    assert (found["cause"]["code"], found["blame"]["nodes"], found["evidence"]["order"]) == (
        "port-down", ["nb"], "arrival")


@pytest.mark.parametrize(("name", "options", "rank"), [
    ("rank12.log", (), "12"), ("job-rank_3.err", (), "3"), ("r7.out", (), "7"), ("rank-4/stderr", (), "4"),
    ("attempt_0/6/stderr.log", (), "6"), ("node-9.txt", ("--rank", r"node-(\d+)"), "9"),
    ("run3.log", (), "0"), ("r2/all.log", (), "0"),
])
def test_ranks_from_names(tmp_path: Path, name: str, options: tuple[str, ...], rank: str) -> None:
    file = tmp_path / "logs" / name
    file.parent.mkdir(parents=True)
    file.write_text(text(*good(0)))
    found = json.loads(run("--json", *options, str(file)).stdout)
    assert [one["rank"] for one in found["ranks"]] == [rank]


@pytest.mark.parametrize(("args", "said"), [
    (("/no/such/file",), "cannot read"), (("--rank", "(", "-"), "not a regular expression"),
    (("--rank", "a", "-"), "0 groups"), (("-", "-"), "twice"),
])
def test_bad_input_is_refused_in_one_line(args: tuple[str, ...], said: str) -> None:
    with pytest.raises(Rejected, match=said) as refused:
        run(*args, stdin="")
    assert refused.value.exit_code == 2


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Rejected, match="no files"):
        run(str(tmp_path))
