"""The command as a program, against an embedded server it starts itself, on emulated nodes."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cli_views import SOURCE_ROOT

import gangline
from gangline.client import Client, connect
from gangline.client.run import Run
from gangline.model.states import GangState

TRAIN = '''
import os, pathlib, time
import gangline

@gangline.clustered(gpu="H100:2", ranks_per_node=1)
def train(flag: str = "", fail: int = -1, code: int = 3, save: bool = False):
    info = gangline.cluster_info()
    print(f"rank {info.rank} of {info.world_size} is up", flush=True)
    gangline.report_progress(step=1, total=2, loss=0.5)
    if info.rank == fail:
        print("about to fail", flush=True)
        os._exit(code)
    if save:
        with gangline.new_version(step=7, metrics={"loss": 0.5}) as folder:
            (folder / f"{info.rank}.txt").write_text("saved")
    while flag and not pathlib.Path(flag).exists():
        time.sleep(0.02)
    print("done", flush=True)
    return {"rank": info.rank, "size": info.size}

@gangline.clustered
def square(x: int, plus: int = 0) -> int:
    if x < 0:
        raise ValueError("negative")
    return x * x + plus
'''


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A project, and a home whose embedded server lives as long as the module's tests."""
    place = tmp_path_factory.mktemp("cli")
    (place / "job").mkdir()
    (place / "job" / "train.py").write_text(TRAIN)
    environment = {k: v for k, v in os.environ.items() if k not in ("GANGLINE_URL", "GANGLINE_TOKEN")}
    environment |= {"GANGLINE_HOME": str(place / "home"), "PYTHONPATH": SOURCE_ROOT, "GANGLINE_PRELOAD": ""}
    subprocess.run([sys.executable, "-m", "gangline.cli", "fleet", "init", "--emulated", "H100:2", "--nodes",
                    "2", "--price", "3.60"], env=environment, check=True)
    yield place
    subprocess.run([sys.executable, "-m", "gangline.cli", "stop", "--force"], env=environment, check=True)


@pytest.fixture
def home(place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(place / "job")
    monkeypatch.setenv("GANGLINE_HOME", str(place / "home"))
    monkeypatch.setenv("GANGLINE_PRELOAD", "")  # nothing here needs torch
    for name in ("GANGLINE_URL", "GANGLINE_TOKEN", "GANGLINE_DEBUG"):
        monkeypatch.delenv(name, raising=False)
    return place / "home"


@pytest.fixture
def client(home: Path) -> Iterator[Client]:
    with connect(home=home) as client:
        yield client


Start = Callable[..., subprocess.Popen[str]]


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=90)
    return process.returncode, out, err


def read_until(process: subprocess.Popen[str], text: str) -> str:
    """Lines of stdout up to the one that holds `text`."""
    assert process.stdout is not None
    seen = ""
    while text not in seen:
        line = process.stdout.readline()
        assert line, f"it ended before {text!r}: {seen}"
        seen += line
    return seen


def gang_of(text: str) -> str:
    found = re.search(r"g-[a-z2-7]{12}", text)
    assert found is not None
    return found[0]


def ended(client: Client, gang: str) -> Any:
    """The gang's last view, once it is over."""
    cursor = 0
    deadline = time.monotonic() + 60
    while not (view := client.observe(gang)).state.final:
        assert time.monotonic() < deadline
        cursor = client.events(gang, cursor, 5.0).cursor
    return view


def test_run_follows_to_the_end(program: Start, gl: Any) -> None:
    status, out, err = finish(program("run", "train:train", "--size", "2", "--gpu", "H100:2", "--rdma"))
    assert status == 0, err
    assert re.search(r"\[rank 0\] rank 0 of 2 is up\n", out)
    assert "[rank 1] done" in out
    assert "succeeded in" in out
    assert 'result  {"rank": 0, "size": 2}' in out
    assert "note    emulated" in out
    assert "USD (" in out
    lines = err.splitlines()
    assert lines[0].endswith("submitted")
    assert lines[-1] == "the ranks are done, committing"
    assert any(line.startswith("placed on emulated-") for line in lines)
    gang = gang_of(err)
    assert gl("show", gang)[0] == 0
    status, out, _ = gl("explain", gang)
    assert status == 0
    assert "user code runs on every rank" in out
    status, out, _ = gl("logs", gang, "--rank", "1")
    assert out == "[rank 1] rank 1 of 2 is up\n[rank 1] done\n"
    assert json.loads(gl("usage", "--by", "gang,cause", "--json")[1])["rows"]


def test_run_of_a_failure(program: Start) -> None:
    status, out, err = finish(program("run", "train:train", "--size", "2", "--arg", "fail=1"))
    assert status == 1
    assert re.search(r"why   rank 1 on emulated-\d ended with exit code 3", out)
    assert "last lines of rank 1:" in out
    assert "    about to fail" in out
    assert "Traceback" not in err


def test_json_of_a_run(program: Start) -> None:
    status, out, err = finish(program("run", "train:train", "--gpu", "H100:1", "--json"))
    view = json.loads(out)
    assert (status, view["state"], view["ranks"][0]["result"]) == (0, "succeeded", {"rank": 0, "size": 1})
    assert "[rank 0] done" in err


def test_ctrl_c_cancels_the_gang(program: Start, client: Client) -> None:
    process = program("run", "train:train", "--gpu", "H100:1", "--arg", "flag=/never")
    read_until(process, "is up")
    process.send_signal(signal.SIGINT)
    status, out, err = finish(process)
    assert status == 130
    assert "cancelled in" in out
    assert "Ctrl-C again leaves at once" in err
    assert client.observe(gang_of(err)).state is GangState.CANCELLED


STUBBORN = '''
import signal, time
def wait():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print("is up", flush=True)
    while True:
        time.sleep(0.02)
'''


def test_a_second_ctrl_c_leaves_at_once(program: Start, client: Client, place: Path) -> None:
    (place / "job" / "stubborn.py").write_text(STUBBORN)
    (place / "job" / "stubborn.yaml").write_text("function: stubborn:wait\ngpu: H100:1\ngrace: 3s\n")
    process = program("run", "stubborn.yaml")
    read_until(process, "is up")
    process.send_signal(signal.SIGINT)
    assert process.stderr is not None
    said = ""
    while "stopping: Ctrl-C" not in said:
        said += process.stderr.readline()
    assert "Ctrl-C again leaves at once" in said
    process.send_signal(signal.SIGINT)
    status, _, err = finish(process)
    assert status == 130
    gang = gang_of(said)
    assert f"left; {gang} is stopping. Make sure with: gangline cancel {gang}" in err
    assert ended(client, gang).state is GangState.CANCELLED


def test_sigterm_detaches_and_the_gang_goes_on(
        program: Start, client: Client, tmp_path: Path, gl: Any) -> None:
    process = program("run", "train:train", "--name", "long", "--arg", f"flag={tmp_path}/go")
    read_until(process, "is up")
    process.send_signal(signal.SIGTERM)
    status, _, err = finish(process)
    assert status == 143
    gang = gang_of(err)
    assert f"Follow it with: gangline logs -f {gang}" in err
    assert not client.observe(gang).state.final
    assert "long" in gl("list", "--active")[1]
    follower = program("logs", "-f", "long")
    assert "[rank 0] rank 0 of 1 is up" in read_until(follower, "is up")
    (tmp_path / "go").write_text("")
    status, out, _ = finish(follower)
    assert (status, out) == (0, "[rank 0] done\n")
    assert ended(client, gang).state is GangState.SUCCEEDED
    by_name = gl("logs", "long")[1]  # although it is over
    assert by_name == "[rank 0] rank 0 of 1 is up\n[rank 0] done\n"


def test_a_terminal_keeps_one_line_in_place(home: Path, client: Client) -> None:
    main, side = pty.openpty()
    environment = {**os.environ, "PYTHONPATH": SOURCE_ROOT, "TERM": "xterm", "COLUMNS": "100"}
    process = subprocess.Popen([sys.executable, "-m", "gangline.cli", "run", "train:train", "--gpu", "H100:1",
                                "--arg", "flag=/never"], stdout=side, stderr=side, env=environment)
    os.close(side)
    try:
        seen = read_terminal(main, lambda text: re.search(r"train.{0,8} running .*step 1/2, loss 0.5", text))
        assert "\r\x1b[2K" in seen
        process.send_signal(signal.SIGINT)
        seen = read_terminal(main, lambda text: "cancelled" in text and "Ctrl-C [cancelled]" in text)
        assert process.wait(30) == 130
    finally:
        process.kill()
        process.wait()
        os.close(main)


def read_terminal(fd: int, enough: Callable[[str], object]) -> str:
    seen = ""
    deadline = time.monotonic() + 60
    while not enough(seen):
        ready, _, _ = select.select([fd], [], [], max(0.0, deadline - time.monotonic()))
        assert ready, f"not seen in time: {seen!r}"
        try:
            seen += os.read(fd, 65536).decode(errors="replace")
        except OSError:  # the other end is gone
            assert enough(seen), seen
    return seen


def test_waiting_is_explained_and_cancelled(gl: Any, client: Client, tmp_path: Path) -> None:
    flag = f"flag={tmp_path}/go"
    holder = gl("submit", "train:train", "--name", "holder", "--size", "2", "--arg", flag)[1].strip()
    waiter = gl("submit", "train:train", "--name", "waiter", "--size", "2", "--json")
    gang = json.loads(waiter[1])["gang"]
    cursor = 0
    while client.observe(gang).wait is None:
        cursor = client.events(gang, cursor, 10.0).cursor
    status, out, _ = gl("explain", "waiter")
    assert status == 0
    assert "held by" in out
    assert holder in out
    assert "cli/holder/" in out
    assert gl("show", "no-such-gang")[0] == 2
    status, _, err = gl("stop")
    assert status == 2
    assert "gangline stop --force" in err
    status, _, err = gl("cancel", "waiter", "holder", "--reason", "test is over")
    assert status == 0
    assert f"{gang} is cancelled" in err
    (tmp_path / "go").write_text("")
    assert ended(client, holder).cancel_requested.endswith("test is over")
    assert f"{gang} (waiter) has ended already: it was cancelled at" in gl("cancel", "waiter")[2]


@pytest.mark.parametrize(("argv", "said"), [
    (["--size", "3", "--gpu", "H100:2"], "3"),
    (["--gpu", "B300:8"], "B300"),
])
def test_what_the_fleet_can_never_run_is_refused(
        gl: Any, client: Client, argv: list[str], said: str) -> None:
    before = [view.gang for view in client.list()]
    status, out, err = gl("run", "train:train", *argv)
    assert (status, out) == (2, "")
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert said in err
    assert [view.gang for view in client.list()] == before


def test_the_same_slot_finds_the_same_gang(gl: Any, client: Client) -> None:
    first = json.loads(gl("submit", "train:train", "--gpu", "H100:1", "--slot", "step/1", "--json")[1])
    again = json.loads(gl("submit", "train:train", "--gpu", "H100:1", "--slot", "step/1", "--json")[1])
    assert (first["created"], again["created"], again["gang"]) == (True, False, first["gang"])
    ended(client, first["gang"])


def test_nodes_are_drained_by_their_owner(gl: Any) -> None:
    assert gl("fleet", "drain", "emulated-1", "--reason", "new NIC", "--owner", "ann")[0] == 0
    assert "new NIC (ann)" in gl("fleet", "show")[1]
    status, _, err = gl("fleet", "undrain", "emulated-1", "--owner", "bob")
    assert status == 2
    assert "ann" in err
    assert gl("fleet", "undrain", "emulated-1", "--owner", "ann")[0] == 0
    assert gl("fleet", "drain", "nowhere")[0] == 2


def test_versions_are_shown_named_and_verified(gl: Any, home: Path, client: Client) -> None:
    status, out, err = gl("run", "train:train", "--size", "2", "--arg", "save=true", "--volume", "/ckpt=sft",
                          "--slot", "step/save")
    assert status == 0, err
    assert "versions  sft@1 (step 7, loss 0.5)" in out
    assert "committed sft@1" in err
    assert "sft@1" in gl("volume", "show", "sft")[1]
    assert gl("volume", "name", "best", "sft@1")[0] == 0
    assert gl("volume", "name", "best", "sft@1", "--expect", "0")[0] == 2
    assert "sft@1 is verified" in gl("volume", "verify", "sft@best")[1]
    assert gl("volume", "verify", "sft@9")[0] == 2
    view = client.volume("sft")
    next(Path(view.root, view.versions[0].directory).rglob("0.txt")).write_text("spoilt")
    status, out, _ = gl("volume", "verify", "sft@1", "--json")
    assert status == 1
    assert "0.txt" in json.loads(out)["problems"][0]
    status, out, _ = gl("volume", "resume", "sft", "--slot", "step/save")
    assert status == 1  # the slot succeeded after its last version
    assert "starts fresh" in out
    assert "best=1" in gl("volume", "list")[1]


def test_status_and_doctor(gl: Any, client: Client) -> None:
    client.nodes()
    status, out, _ = gl("status")
    assert status == 0
    assert "(2 emulated)" in out
    assert json.loads(gl("status", "--json")[1])["version"] == gangline.__version__
    status, out, _ = gl("doctor")
    assert status == 0
    assert "answers at unix:" in out


def test_a_pipe_that_closes_early_is_no_error(program: Start, client: Client) -> None:
    client.nodes()
    process = program("fleet", "show", stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.close()
    assert process.wait(60) in (0, 141)
    assert process.stderr is not None
    assert "Traceback" not in process.stderr.read()


SCRIPT = '''
import json, sys
import gangline
from train import square, train

if __name__ == "__main__":
    one = square.options(gpu="H100:1", ranks_per_node=1)
    print(json.dumps(one.remote(5, plus=1)))
    print(json.dumps(one.map(range(3), plus=2)))
    run = train.submit(fail=0, code=9)
    try:
        run.result(timeout_s=60)
    except gangline.GangFailed as error:
        print(json.dumps(str(error).splitlines()))
    try:
        one.map([1, -1])
    except gangline.GangFailed as error:
        print(json.dumps(str(error).splitlines()[0]))
    stuck = train.submit(flag="/never")
    try:
        stuck.result(timeout_s=0.1)
    except TimeoutError as error:
        print(json.dumps(str(error)))
    stuck.cancel()
    print(json.dumps([stuck.wait().state, [e.kind for e in stuck.events()][-1]]))
'''


def test_python_submits_waits_and_maps(home: Path, place: Path) -> None:
    (place / "job" / "script.py").write_text(SCRIPT)
    environment = {**os.environ, "PYTHONPATH": SOURCE_ROOT}
    done = subprocess.run([sys.executable, str(place / "job" / "script.py")], cwd="/", env=environment,
                          capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    remote, mapped, failure, partly, late, cancelled = map(json.loads, done.stdout.splitlines())
    assert (remote, mapped) == (26, [2, 3, 6])
    assert "failed: rank 0 on emulated-" in failure[0]
    assert failure[1] == "last lines:"
    assert "  about to fail" in failure
    assert partly.startswith("1 of 2 gangs failed; the first: square (g-")
    assert late.endswith("it goes on")
    assert cancelled == ["cancelled", "gang.cancelled"]


def test_logs_and_views_of_a_run(client: Client, place: Path) -> None:
    from gangline.client.submission import Origin, prepare, submit

    origin = Origin(search=(place / "job",))
    prepared = prepare("train:train", options={"gpu": "H100:1", "ranks_per_node": 1}, origin=origin)
    run = Run(client, submit(client, [prepared])[0])
    assert [line.text for line in run.logs()] == ["rank 0 of 1 is up", "done"]
    assert run.result() == {"rank": 0, "size": 1}
    assert run.view().state is GangState.SUCCEEDED
    assert repr(run) == f"Run({run.gang})"
