"""`gangline simulate` as it is called: output, refusals, the picture, and Ctrl-C."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from gangline.cli.app import run_cli
from gangline.simulation import engine

FLEET = """
pools:
  - {name: p, gpu: "H100:8", fabric: ib-1, rdma: {kind: infiniband, gbps: 3200}, min: 4, max: 4}
"""
TRACE = "submit_s,nodes,duration_s\n0,3,100\n10,4,50\n20,1,60\n30,1,500\n"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("fleet.yaml").write_text(FLEET)
    Path("jobs.csv").write_text(TRACE)
    return tmp_path


def simulate(*words: str) -> int:
    return run_cli(["simulate", "--fleet", "fleet.yaml", "--trace", "jobs.csv", *words])


def as_json(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_policies_side_by_side(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert simulate("--policy", "fifo", "--policy", "easy") == 0
    out = capsys.readouterr().out
    assert "jobs.csv: 4 jobs over 30s" in out
    assert "1m25s (1.62x)" in out  # fifo's mean wait of 85 s against 52.5 s
    assert "Ratios are to easy" in out


def test_json_and_its_defaults(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert simulate("--json") == 0
    found = as_json(capsys)
    assert set(found["policies"]) == {"submit-order", "easy"}
    assert found["policies"]["easy"]["wait_s"]["mean"] == 52.5
    assert found["trace"]["limits"] == "exact"


def test_the_fleets_own_policy_is_compared(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("fleet.yaml").write_text(FLEET + "scheduling: {policy: submit-order, reserve_first: 0}\n")
    assert simulate("--json") == 0
    found = as_json(capsys)["policies"]
    assert set(found) == {"submit-order", "easy"}
    assert found["submit-order"]["wait_s"]["max"] > found["easy"]["wait_s"]["max"]  # nothing is kept for the second


def test_a_fleet_thought_up(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert simulate("--json", "--policy", "fifo", "--what-if", "p=8", "--what-if", "p=3") == 0
    found = as_json(capsys)
    assert found["what_if"]["p=8"]["fifo"]["wait_s"]["max"] == 30  # the fourth, until the second ends
    assert found["what_if"]["p=3"]["fifo"]["too_big"] == 1
    assert found["policies"]["fifo"]["wait_s"]["max"] == 130
    assert simulate("--policy", "easy", "--what-if", "p=3") == 0
    assert "1 jobs ask for what p=3 can never hold" in capsys.readouterr().out


def test_without_a_fleet_file(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["simulate", "--nodes", "16", "--gpu", "A100:8", "--generate", "jobs=50,load=0.7,most=8", "--json"]
    assert run_cli(words) == 0
    one = as_json(capsys)
    assert one["trace"]["offered_load"] == pytest.approx(0.7, abs=1e-3)
    assert run_cli([*words, "--seed", "1"]) == 0
    assert as_json(capsys)["policies"]["easy"]["makespan_s"] != one["policies"]["easy"]["makespan_s"]


@pytest.mark.parametrize(("words", "message"), [
    (["--trace", "jobs.csv"], "there is no fleet to replay on"),
    (["--fleet", "fleet.yaml"], "give one of --trace and --generate"),
    (["--fleet", "absent.yaml", "--trace", "jobs.csv"], "no file absent.yaml"),
    (["--fleet", "fleet.yaml", "--trace", "absent.csv"], "no file absent.csv"),
    (["--fleet", "fleet.yaml", "--trace", "jobs.csv", "--limits", "trace"], "the trace has no limits"),
    (["--fleet", "fleet.yaml", "--trace", "jobs.csv", "--limits", "x0.5"], "'x0.5' says no limits"),
    (["--fleet", "fleet.yaml", "--trace", "jobs.csv", "--what-if", "q=3"], "the fleet has no pool 'q'"),
    (["--fleet", "fleet.yaml", "--trace", "jobs.csv", "--what-if", "p"], "'p' is not POOL=NODES"),
    (["--fleet", "fleet.yaml", "--trace", "jobs.csv", "--repair", "soon"], "'soon' is not a duration"),
    (["--fleet", "fleet.yaml", "--trace", "jobs.csv", "--policy", "magic"], "'magic' is not one of"),
    (["--fleet", "fleet.yaml", "--trace", "jobs.csv", "--compress", "0"], "0.0 is not in the range"),
    (["--nodes", "2", "--gpu", "none:0", "--trace", "jobs.csv"], "asks for no GPU at all"),
    (["--nodes", "2", "--generate", "jobs=many"], "'jobs=many'"),
    (["--nodes", "2", "--topology", "t.csv", "--generate", "jobs=5"], "as many nodes as it has hosts"),
    (["--nodes", "2", "--what-if", "p=3", "--generate", "jobs=5"], "needs a fleet whose pools it can change"),
])
def test_what_is_wrong_is_one_line(here: Path, capsys: pytest.CaptureFixture[str], words: list[str],
                                   message: str) -> None:
    assert run_cli(["simulate", *words]) == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1


def test_no_job_fits(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("jobs.csv").write_text("submit_s,nodes,duration_s\n0,30,100\n")
    assert simulate() == 2
    assert "none of the 1 jobs of jobs.csv fits the fleet" in capsys.readouterr().err


def test_the_picture(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    assert simulate("--plot", "out.png", "--what-if", "p=8") == 0
    assert Path("out.png").read_bytes().startswith(b"\x89PNG")
    assert "drawn: out.png" in capsys.readouterr().err
    assert simulate("--plot", "absent/out.png") == 2
    assert "cannot write absent/out.png" in capsys.readouterr().err


def test_a_picture_without_matplotlib(here: Path, capsys: pytest.CaptureFixture[str],
                                      monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert simulate("--plot", "out.png") == 2
    assert "pip install 'gangline[plot]'" in capsys.readouterr().err


def test_an_interrupt_says_how_far_it_got(here: Path, capsys: pytest.CaptureFixture[str],
                                          monkeypatch: pytest.MonkeyPatch) -> None:
    passes = 0
    decide = engine.decide

    def interrupted(*given: Any) -> Any:
        nonlocal passes
        passes += 1
        if passes == 10:
            raise KeyboardInterrupt
        return decide(*given)

    monkeypatch.setattr(engine, "decide", interrupted)
    monkeypatch.setattr(engine, "_REPORT_EVERY", 1)
    assert simulate("--policy", "fifo", "--policy", "easy") == 130
    assert "interrupted: easy after 0 of 4 gangs, 20s into the trace; finished: fifo" in capsys.readouterr().err
