"""Whatever is killed, nothing of a gang is left, and the server hears the truth."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from conftest import CORE, Lab, end_template, is_gone, template_pid
from scripted import until

from gangline.model.orders import OrderPhase
from gangline.model.states import Cause
from gangline.node import proc
from gangline.node.supervisor import EXIT_CUT_OFF, EXIT_DEPOSED, EXIT_OK
from gangline.node.sweep import sweep

# Every rank writes its pid, starts a daemon that left its session and ignores SIGTERM, and goes on working.
STUBBORN = """
import os, pathlib, signal, subprocess, sys, time

def write(home, name):
    path = pathlib.Path(home, name)
    path.with_suffix(".new").write_text(str(os.getpid()))
    path.with_suffix(".new").rename(path)

def daemon(home, name):
    if os.fork() == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        write(home, name)
        time.sleep(600)
        os._exit(0)

def work(home):
    rank = os.environ["RANK"]
    daemon(home, f"daemon-{rank}")
    subprocess.Popen(["sh", "-c", f"trap '' TERM; echo $$ > {home}/shell-{rank}; sleep 600; sleep 600"],
                     start_new_session=True)
    write(home, f"rank-{rank}")
    time.sleep(600)

def hide(home):
    pid = os.fork()
    if pid == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        os.closerange(3, 1000)  # marks and all
        write(home, "hidden")
        time.sleep(600)
    write(home, "rank-0")
    time.sleep(600)

def patient(home):
    def term(*_):
        print("got SIGTERM", flush=True)
        raise SystemExit(0)
    signal.signal(signal.SIGTERM, term)
    write(home, "rank-0")
    time.sleep(600)

def deaf(home):
    signal.signal(signal.SIGTERM, lambda *_: print("not now", flush=True))
    daemon(home, "daemon-0")
    write(home, "rank-0")
    while True:
        time.sleep(600)

def fail_second(home):
    if os.environ["RANK"] == "1":
        until = time.monotonic() + 60
        while not os.path.exists(f"{home}/rank-0") and time.monotonic() < until:
            time.sleep(0.01)
        raise ValueError("rank one gives up")
    work(home)

def done(home):
    daemon(home, "daemon-0")
    return "done"
"""


def _begin(lab: Lab, function: str, ranks: int = 1, gang: str = "g-1") -> None:
    code = lab.snapshot(work=STUBBORN)
    lab.begin(gang, lab.task(function=f"work:{function}", args={"home": str(lab.home)}, snapshot=code,
                             ranks=ranks))
    lab.script.wait_report("started", gang)


def _tree(lab: Lab, ranks: int) -> list[int]:
    return [lab.pid(f"{kind}-{rank}") for rank in range(ranks) for kind in ("rank", "daemon", "shell")]


def _all_gone(pids: list[int], within_s: float = 20.0) -> None:
    until(lambda: all(is_gone(pid) for pid in pids), f"the end of {pids}", within_s)


def test_a_killed_rank_takes_its_peers_along(lab: Lab) -> None:
    lab.supervisor()
    _begin(lab, "work", ranks=2)
    pids = _tree(lab, 2)
    began = time.monotonic()
    os.kill(lab.pid("rank-1"), signal.SIGKILL)
    first, second = lab.script.wait_report("rank_exit", "g-1", 2)
    took_s = time.monotonic() - began
    assert (first.rank, first.signal, first.cause) == (1, "SIGKILL", Cause.LOST)
    assert "killed from outside by SIGKILL" in first.text
    assert (second.rank, second.cause) == (0, Cause.CANCELLED)
    _all_gone(pids)
    assert took_s < 10  # the promise is one second; this machine may be busy with anything
    assert not lab.script.of("empty", "g-1")  # the lease is held until the server says stop
    lab.stop("g-1")


def test_a_failed_rank_takes_its_peers_along(lab: Lab) -> None:
    lab.supervisor()
    _begin(lab, "fail_second", ranks=2)
    first, second = lab.script.wait_report("rank_exit", "g-1", 2)
    assert (first.rank, first.exit_code, first.cause) == (1, 1, Cause.USER)
    assert first.text == "rank 1 ended with exit code 1: ValueError: rank one gives up"
    assert first.last_lines[0].startswith("Traceback")
    assert (second.rank, second.cause) == (0, Cause.CANCELLED)
    _all_gone([lab.pid("daemon-0"), lab.pid("rank-0")])


def test_a_killed_supervisor_takes_all_along(lab: Lab) -> None:
    supervisor = lab.supervisor()
    _begin(lab, "work", ranks=2)
    pids = _tree(lab, 2) + supervisor.keepers(lab.home)
    assert len(pids) == 7
    supervisor.kill()
    _all_gone(pids)


def test_a_new_supervisor_sweeps_before_it_says_hello(lab: Lab) -> None:
    """Supervisor and keeper die together: only marks and groups lead to what they started."""
    first = lab.supervisor()
    _begin(lab, "work", ranks=2)
    pids = _tree(lab, 2)
    os.kill(first.process.pid, signal.SIGSTOP)  # or it would clean up after its keeper
    for keeper in first.keepers(lab.home):
        os.kill(keeper, signal.SIGKILL)
    lab.script.order("n1")
    lab.supervisor()
    lab.script.wait(lambda: len(lab.script.hellos) == 2, "the second hello")
    assert all(is_gone(pid) for pid in pids)
    assert is_gone(first.process.pid)  # it, too: it might have started the gang again
    assert lab.script.hellos[0].incarnation != lab.script.hellos[1].incarnation


def test_a_killed_keeper_takes_all_along(lab: Lab) -> None:
    supervisor = lab.supervisor()
    _begin(lab, "work", ranks=2)
    pids = _tree(lab, 2)
    (keeper,) = supervisor.keepers(lab.home)
    os.kill(keeper, signal.SIGKILL)
    exits = lab.script.wait_report("rank_exit", "g-1", 2)
    assert all(is_gone(pid) for pid in pids)  # before the server hears of it
    assert [(one.cause, one.signal) for one in exits] == [(Cause.LOST, "SIGKILL")] * 2
    lab.stop("g-1")


def test_a_daemon_without_marks_is_found_by_descent(lab: Lab) -> None:
    lab.supervisor()
    _begin(lab, "hide")
    hidden = lab.pid("hidden")
    lab.stop("g-1")
    assert is_gone(hidden)


def test_a_gang_outlives_the_template(tmp_path: Path, warm_lab: Lab) -> None:
    warm_lab.template = tmp_path / "own.sock"
    try:
        warm_lab.supervisor()
        _begin(warm_lab, "work")
        pids = _tree(warm_lab, 1)
        pid = template_pid(warm_lab.template)
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        until(lambda: is_gone(pid), "the template to end")
        _begin(warm_lab, "done", gang="g-2")  # by a new template
        assert warm_lab.script.wait_report("rank_exit", "g-2")[0].result == "done"
        assert template_pid(warm_lab.template) != pid
        assert not any(is_gone(one) for one in pids)
        warm_lab.stop("g-1")
        _all_gone(pids)
    finally:
        end_template(warm_lab.template)


def test_stop_gives_the_tree_its_grace(lab: Lab) -> None:
    lab.supervisor()
    _begin(lab, "patient")
    rank = lab.pid("rank-0")
    lab.stop("g-1", grace_s=60)
    assert is_gone(rank)
    end = lab.script.wait_report("rank_exit", "g-1")[0]
    assert (end.exit_code, end.cause) == (0, Cause.SUCCESS)
    assert lab.script.log("g-1", 0) == "got SIGTERM\n"


def test_grace_is_over_in_the_end(lab: Lab) -> None:
    lab.supervisor()
    _begin(lab, "deaf")
    pids = [lab.pid("rank-0"), lab.pid("daemon-0")]
    lab.order("g-1", OrderPhase.STOP, None, grace_s=600)
    lab.script.wait(lambda: "not now" in lab.script.log("g-1", 0), "the signal's echo")
    assert not any(is_gone(pid) for pid in pids)
    lab.stop("g-1", grace_s=0.1)  # the earlier end counts
    assert all(is_gone(pid) for pid in pids)
    end = lab.script.wait_report("rank_exit", "g-1")[0]
    assert (end.signal, end.cause) == ("SIGKILL", Cause.CANCELLED)


def test_a_gang_that_ended_well_leaves_no_daemon(lab: Lab) -> None:
    lab.supervisor()
    _begin(lab, "done")
    assert lab.script.wait_report("rank_exit", "g-1")[0].cause is Cause.SUCCESS
    daemon = lab.pid("daemon-0")
    assert not is_gone(daemon)  # peers elsewhere may still need what it serves
    lab.stop("g-1")
    assert is_gone(daemon)


def test_an_order_that_disappears_means_stop(lab: Lab) -> None:
    lab.supervisor()
    _begin(lab, "work")
    pids = _tree(lab, 1)
    lab.script.order("n1")
    lab.script.wait_report("empty", "g-1")
    assert all(is_gone(pid) for pid in pids)


def test_a_new_generation_waits_for_the_old_to_be_empty(cold_lab: Lab) -> None:
    lab = cold_lab
    lab.supervisor()
    _begin(lab, "work")
    pids = _tree(lab, 1)
    code = lab.snapshot(work=STUBBORN)
    task = lab.task(function="work:done", args={"home": str(lab.home)}, snapshot=code)
    lab.order("g-1", OrderPhase.ASSEMBLE, task, generation=2)
    lab.script.wait_report("ready", "g-1", generation=2)
    assert all(is_gone(pid) for pid in pids)
    kinds = [(report.kind, report.generation) for report in lab.script.reports]
    assert kinds.index(("empty", 1)) < kinds.index(("ready", 2))


def test_stop_during_assembly(cold_lab: Lab) -> None:
    lab = cold_lab
    lab.supervisor()
    task = lab.task(command=("true",))
    lab.order("g-1", OrderPhase.ASSEMBLE, task)
    lab.script.wait_report("ready", "g-1")
    lab.stop("g-1")
    assert not lab.script.of("rank_exit", "g-1")
    lab.order("g-2", OrderPhase.STOP, None)  # of a gang this supervisor never knew
    lab.script.wait_report("empty", "g-2")


def test_cut_off_from_the_server_it_ends_all(lab: Lab) -> None:
    lab.script.lease_s = 1.5
    supervisor = lab.supervisor()
    _begin(lab, "work")
    pids = _tree(lab, 1)
    lab.script.stop()
    assert supervisor.process.wait(20) == EXIT_CUT_OFF
    assert all(is_gone(pid) for pid in pids)


def test_deposed_it_ends_all(cold_lab: Lab) -> None:
    supervisor = cold_lab.supervisor()
    _begin(cold_lab, "work")
    pids = _tree(cold_lab, 1)
    with cold_lab.script.changed:
        cold_lab.script.deposed.add(cold_lab.script.hellos[0].incarnation)
        cold_lab.script.changed.notify_all()
    assert supervisor.process.wait(20) == EXIT_DEPOSED
    assert all(is_gone(pid) for pid in pids)


def test_told_to_leave_it_ends_all_and_says_so(lab: Lab) -> None:
    supervisor = lab.supervisor()
    _begin(lab, "work")
    pids = _tree(lab, 1)
    assert supervisor.terminate() == EXIT_OK
    assert all(is_gone(pid) for pid in pids)
    assert [one.cause for one in lab.script.of("rank_exit", "g-1")] == [Cause.LOST]
    assert [one.kind for one in lab.script.reports][-1] == "empty"


def test_sweep_ends_what_a_dead_supervisor_left(cold_lab: Lab) -> None:
    """As an engine does, when keeper and supervisor died at once."""
    supervisor = cold_lab.supervisor()
    _begin(cold_lab, "work")
    pids = _tree(cold_lab, 1)
    supervisor.process.send_signal(signal.SIGSTOP)
    for keeper in supervisor.keepers(cold_lab.home):
        os.kill(keeper, signal.SIGKILL)
    supervisor.process.kill()
    assert sweep(cold_lab.home, "other") == 0
    assert not is_gone(pids[1])
    assert sweep(cold_lab.home, "n1") >= 2
    _all_gone(pids, within_s=5)
    assert sweep(cold_lab.home, "n1") == 0
    supervisor.process.wait()


def test_sweep_needs_the_standard_library_alone(tmp_path: Path) -> None:
    import subprocess

    code = (f"import sys; sys.path.append({CORE!r}); from pathlib import Path; "
            f"from gangline.node.sweep import sweep; print(sweep(Path({str(tmp_path)!r}), 'n1'), "
            "'asyncio' in sys.modules)")
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "0 False\n"


@pytest.mark.skipif(not os.access("/sys/fs/cgroup/memory", os.W_OK), reason="needs a writable memory cgroup (v1)")
def test_the_kernels_kill_for_memory_is_named(cold_lab: Lab) -> None:
    group = Path(f"/sys/fs/cgroup/memory/gangline-test-{os.getpid()}")
    group.mkdir()
    try:
        (group / "memory.limit_in_bytes").write_text(str(48 << 20))
        (group / "memory.swappiness").write_text("0")
        code = cold_lab.snapshot(work="""
import pathlib, time
def eat(group):
    pathlib.Path(group, "cgroup.procs").write_text("0")
    kept = []
    while True:
        kept.append(b"x" * (8 << 20))
""")
        cold_lab.supervisor()
        cold_lab.begin("g-1", cold_lab.task(function="work:eat", args={"group": str(group)}, snapshot=code))
        end = cold_lab.script.wait_report("rank_exit", "g-1")[0]
        assert (end.signal, end.cause) == ("SIGKILL", Cause.OOM)
        cold_lab.stop("g-1")
    finally:
        until(lambda: not (group / "cgroup.procs").read_text(), "the group to be empty")
        group.rmdir()


def _talk(lab: Lab, gang: str) -> Any:
    """A rank's connection to its supervisor, as its info file says."""
    import socket

    info = json.loads(next(lab.home.glob(f"nodes/n1/run/{gang}.*/info.json")).read_text())
    client = socket.socket(socket.AF_UNIX)
    client.connect(str(lab.home / "nodes" / "n1" / "s.sock"))
    lines = client.makefile("rw")

    def ask(**request: Any) -> dict[str, Any]:
        lines.write(json.dumps({"token": info["token"], "rank": 0, **request}) + "\n")
        lines.flush()
        return dict(json.loads(lines.readline()))

    return ask, client


def test_ranks_talk_to_the_server_through_the_supervisor(cold_lab: Lab) -> None:
    lab = cold_lab
    lab.supervisor()
    mount = {"mount": "/ckpt", "volume": "sft", "root": str(lab.home / "volumes" / "sft")}
    lab.begin("g-1", lab.task(command=("sleep", "600"), mounts=(mount,)))
    lab.script.wait_report("started", "g-1")
    ask, client = _talk(lab, "g-1")
    with client:
        assert ask(op="hello") == {"ok": True}
        opened = ask(op="open_save", mount="/ckpt", key="step-1", step=1)
        assert opened == {"ok": True, "save": 0, "directory": "versions/0", "root": mount["root"]}
        assert ask(op="open_save", mount="/ckpt", key="step-1", step=1) == opened
        entry = {"path": "a.bin", "bytes": 1, "sha256": "0" * 64}
        saved = ask(op="report_save", save=0, files=[entry], format="files", metrics={"loss": 1.5}, extra={})
        assert (saved["ok"], saved["published"]) == (True, None)
        with lab.script.changed:
            lab.script.published[0] = 4
        assert ask(op="save_state", save=0)["published"] == 4
        assert (lab.script.saves[0]["gang"], lab.script.saves[0]["generation"]) == ("g-1", 1)
        assert lab.script.saved[0]["files"] == [entry]
        for step in range(50):
            assert ask(op="progress", progress={"step": step, "metrics": {"loss": 2.0}}) == {"ok": True}
        lab.script.wait_report("advanced", "g-1")
        lab.script.wait(lambda: lab.script.of("advanced", "g-1")[-1].progress.step == 49, "the newest progress")
        assert len(lab.script.of("advanced", "g-1")) < 25  # thinned out
        assert ask(op="open_save", mount="/other", key="x")["error"]["kind"] == "not_found"
        assert ask(op="open_save", mount="/ckpt")["error"]["kind"] == "rejected"
        assert ask(op="save_state", save=9)["error"]["kind"] == "not_found"
        assert ask(op="dance")["error"]["kind"] == "rejected"
        assert ask(op="hello", token="stolen")["error"]["kind"] == "not_found"
        lab.stop("g-1")
        assert ask(op="hello")["error"]["kind"] == "not_found"


def test_living_processes_are_told_apart_from_later_ones() -> None:
    me = proc.look(os.getpid())
    assert me is not None
    assert proc.is_alive(me.pid, me.start_ticks)
    assert not proc.is_alive(me.pid, me.start_ticks - 1)
    assert not proc.send(me._replace(start_ticks=1), 0)
    assert proc.send(me, 0)
