"""However ranks end and whatever is killed, nothing of a gang is left and the server hears the truth."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
from node_lab import Lab, is_gone, written_pid
from scripted import until
from stubborn import STUBBORN, all_gone, begin, tree

from gangline.model.orders import OrderPhase
from gangline.model.states import Cause


def test_a_killed_rank_takes_its_peers_along(shared: Lab, gang: str, tmp_path: Path) -> None:
    begin(shared, tmp_path, "work", ranks=2, gang=gang)
    pids = tree(tmp_path, 2)
    began = time.monotonic()
    os.kill(written_pid(tmp_path / "rank-1"), signal.SIGKILL)
    first, second = shared.script.wait_report("rank_exit", gang, 2)
    took_s = time.monotonic() - began
    assert (first.rank, first.signal, first.cause) == (1, "SIGKILL", Cause.LOST)
    assert "killed from outside by SIGKILL" in first.text
    assert (second.rank, second.cause) == (0, Cause.CANCELLED)
    all_gone(pids)
    assert took_s < 10  # the promise is one second; this machine may be busy with anything
    assert not shared.script.of("empty", gang)  # the lease is held until the server says stop
    shared.stop(gang)


def test_a_failed_rank_takes_its_peers_along(shared: Lab, gang: str, tmp_path: Path) -> None:
    begin(shared, tmp_path, "fail_second", ranks=2, gang=gang)
    first, second = shared.script.wait_report("rank_exit", gang, 2)
    assert (first.rank, first.exit_code, first.cause) == (1, 1, Cause.USER)
    assert first.text == "rank 1 ended with exit code 1: ValueError: rank one gives up"
    assert first.last_lines[0].startswith("Traceback")
    assert (second.rank, second.cause) == (0, Cause.CANCELLED)
    all_gone([written_pid(tmp_path / "daemon-0"), written_pid(tmp_path / "rank-0")])


def test_a_killed_keeper_takes_all_along(shared: Lab, gang: str, tmp_path: Path) -> None:
    begin(shared, tmp_path, "work", ranks=2, gang=gang)
    pids = tree(tmp_path, 2)
    (keeper,) = shared.started[0].keepers(shared.home, gang)
    os.kill(keeper, signal.SIGKILL)
    exits = shared.script.wait_report("rank_exit", gang, 2)
    assert all(is_gone(pid) for pid in pids)  # before the server hears of it
    assert [(one.cause, one.signal) for one in exits] == [(Cause.LOST, "SIGKILL")] * 2
    shared.stop(gang)


def test_a_daemon_without_marks_is_found_by_descent(shared: Lab, gang: str, tmp_path: Path) -> None:
    begin(shared, tmp_path, "hide", gang=gang)
    hidden = written_pid(tmp_path / "hidden")
    shared.stop(gang)
    assert is_gone(hidden)


def test_a_daemon_without_marks_is_found_when_the_keeper_is_killed(shared: Lab, gang: str,
                                                                   tmp_path: Path) -> None:
    begin(shared, tmp_path, "hide", gang=gang)
    hidden = written_pid(tmp_path / "hidden")
    (keeper,) = shared.started[0].keepers(shared.home, gang)
    os.kill(keeper, signal.SIGKILL)
    shared.script.wait_report("rank_exit", gang)
    shared.stop(gang)
    all_gone([hidden])


def test_stop_gives_the_tree_its_grace(shared: Lab, gang: str, tmp_path: Path) -> None:
    begin(shared, tmp_path, "patient", gang=gang)
    rank = written_pid(tmp_path / "rank-0")
    shared.stop(gang, grace_s=60)
    assert is_gone(rank)
    end = shared.script.wait_report("rank_exit", gang)[0]
    assert (end.exit_code, end.cause) == (0, Cause.CANCELLED), "stopped is not done"
    assert shared.script.log(gang, 0) == "got SIGTERM\n"


def test_a_rank_that_catches_the_signal_keeps_its_helpers_until_it_leaves(shared: Lab, gang: str,
                                                                          tmp_path: Path) -> None:
    begin(shared, tmp_path, "with_helper", gang=gang)
    helper = written_pid(tmp_path / "helper")
    shared.stop(gang, grace_s=60)
    assert is_gone(helper)
    assert shared.script.log(gang, 0) == "my helper lives\nand I leave\n"


def test_a_wrapper_that_does_not_catch_the_signal_does_not_keep_it_either(shared: Lab, gang: str,
                                                                          tmp_path: Path) -> None:
    begin(shared, tmp_path, "wraps", gang=gang)
    wrapped = written_pid(tmp_path / "wrapped")
    shared.stop(gang, grace_s=60)
    assert is_gone(wrapped)
    assert shared.script.log(gang, 0) == "my wrapper is no obstacle\n"


def test_a_rank_that_hears_a_stranger_and_leaves_is_lost_not_done(shared: Lab, gang: str,
                                                                  tmp_path: Path) -> None:
    begin(shared, tmp_path, "listens", ranks=2, gang=gang)
    written_pid(tmp_path / "rank-0")  # it listens, too
    os.kill(written_pid(tmp_path / "rank-1"), signal.SIGTERM)
    first, second = shared.script.wait_report("rank_exit", gang, 2)
    assert (first.rank, first.exit_code, first.cause) == (1, 0, Cause.LOST)
    assert "SIGTERM from outside" in first.text
    assert (second.rank, second.exit_code, second.cause) == (0, 0, Cause.CANCELLED), "its peers may leave, too"
    shared.stop(gang)


def test_grace_is_over_in_the_end(shared: Lab, gang: str, tmp_path: Path) -> None:
    begin(shared, tmp_path, "deaf", gang=gang)
    pids = [written_pid(tmp_path / "rank-0"), written_pid(tmp_path / "daemon-0")]
    shared.order(gang, OrderPhase.STOP, None, grace_s=600)
    shared.script.wait(lambda: "not now" in shared.script.log(gang, 0), "the signal's echo")
    assert not any(is_gone(pid) for pid in pids)
    shared.stop(gang, grace_s=0.1)  # the earlier end counts
    assert all(is_gone(pid) for pid in pids)
    end = shared.script.wait_report("rank_exit", gang)[0]
    assert (end.signal, end.cause) == ("SIGKILL", Cause.CANCELLED)


def test_a_gang_that_ended_well_leaves_no_daemon(shared: Lab, gang: str, tmp_path: Path) -> None:
    begin(shared, tmp_path, "done", gang=gang)
    assert shared.script.wait_report("rank_exit", gang)[0].cause is Cause.SUCCESS
    daemon = written_pid(tmp_path / "daemon-0")
    assert not is_gone(daemon)  # peers elsewhere may still need what it serves
    shared.stop(gang)
    assert is_gone(daemon)


def test_an_order_that_disappears_means_stop(shared: Lab, gang: str, tmp_path: Path) -> None:
    begin(shared, tmp_path, "work", gang=gang)
    pids = tree(tmp_path, 1)
    shared.script.order("n1")
    shared.script.wait_report("empty", gang)
    assert all(is_gone(pid) for pid in pids)


def test_a_new_generation_waits_for_the_old_to_be_empty(shared: Lab, gang: str, tmp_path: Path) -> None:
    begin(shared, tmp_path, "work", gang=gang)
    pids = tree(tmp_path, 1)
    code = shared.snapshot(work=STUBBORN)
    task = shared.task(function="work:done", args={"home": str(tmp_path)}, snapshot=code)
    shared.order(gang, OrderPhase.ASSEMBLE, task, generation=2)
    shared.script.wait_report("ready", gang, generation=2)
    assert all(is_gone(pid) for pid in pids)
    kinds = [(report.kind, report.generation) for report in shared.script.reports if report.gang == gang]
    assert kinds.index(("empty", 1)) < kinds.index(("ready", 2))


def test_stop_during_assembly(shared: Lab, gang: str, tmp_path: Path) -> None:
    task = shared.task(command=("true",))
    shared.order(gang, OrderPhase.ASSEMBLE, task)
    shared.script.wait_report("ready", gang)
    shared.stop(gang)
    assert not shared.script.of("rank_exit", gang)
    shared.order(f"{gang}-other", OrderPhase.STOP, None)  # of a gang this supervisor never knew
    shared.script.wait_report("empty", f"{gang}-other")


@pytest.mark.skipif(not os.access("/sys/fs/cgroup/memory", os.W_OK),
                    reason="needs a writable memory cgroup (v1)")
def test_the_kernels_kill_for_memory_is_named(shared: Lab, gang: str, tmp_path: Path) -> None:
    group = Path(f"/sys/fs/cgroup/memory/gangline-test-{os.getpid()}")
    group.mkdir()
    try:
        (group / "memory.limit_in_bytes").write_text(str(48 << 20))
        (group / "memory.swappiness").write_text("0")
        code = shared.snapshot(work="""
import pathlib, time
def eat(group):
    pathlib.Path(group, "cgroup.procs").write_text("0")
    kept = []
    while True:
        kept.append(b"x" * (8 << 20))
""")
        shared.begin(gang, shared.task(function="work:eat", args={"group": str(group)}, snapshot=code))
        end = shared.script.wait_report("rank_exit", gang)[0]
        assert (end.signal, end.cause) == ("SIGKILL", Cause.OOM)
        shared.stop(gang)
    finally:
        until(lambda: not (group / "cgroup.procs").read_text(), "the group to be empty")
        group.rmdir()
