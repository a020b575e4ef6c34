"""A supervisor that dies, is cut off or told to leave takes all it runs along."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from node_lab import CORE, Lab, end_template, is_gone, template_pid
from scripted import until
from stubborn import all_gone, begin, tree

from gangline.model.states import Cause
from gangline.node import proc
from gangline.node.supervisor import EXIT_CUT_OFF, EXIT_DEPOSED, EXIT_OK
from gangline.node.sweep import sweep


def test_a_killed_supervisor_takes_all_along(lab: Lab, tmp_path: Path) -> None:
    supervisor = lab.supervisor()
    begin(lab, tmp_path, "work", ranks=2)
    pids = tree(tmp_path, 2) + supervisor.keepers(lab.home)
    assert len(pids) == 7
    supervisor.kill()
    all_gone(pids)


def test_a_new_supervisor_sweeps_before_it_says_hello(lab: Lab, tmp_path: Path) -> None:
    """Supervisor and keeper die together: only marks and groups lead to what they started."""
    first = lab.supervisor()
    begin(lab, tmp_path, "work", ranks=2)
    pids = tree(tmp_path, 2)
    os.kill(first.process.pid, signal.SIGSTOP)  # or it would clean up after its keeper
    for keeper in first.keepers(lab.home):
        os.kill(keeper, signal.SIGKILL)
    lab.script.order("n1")
    lab.supervisor()
    lab.script.wait(lambda: len(lab.script.hellos) == 2, "the second hello")
    assert all(is_gone(pid) for pid in pids)
    assert is_gone(first.process.pid)  # it, too: it might have started the gang again
    assert lab.script.hellos[0].incarnation != lab.script.hellos[1].incarnation


def test_a_gang_outlives_the_template(tmp_path: Path, warm_lab: Lab) -> None:
    warm_lab.template = tmp_path / "own.sock"
    try:
        warm_lab.supervisor()
        begin(warm_lab, tmp_path, "work")
        pids = tree(tmp_path, 1)
        pid = template_pid(warm_lab.template)
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        until(lambda: is_gone(pid), "the template to end")
        begin(warm_lab, tmp_path, "done", gang="g-2")  # by a new template
        assert warm_lab.script.wait_report("rank_exit", "g-2")[0].result == "done"
        assert template_pid(warm_lab.template) != pid
        assert not any(is_gone(one) for one in pids)
        warm_lab.stop("g-1")
        all_gone(pids)
    finally:
        end_template(warm_lab.template)


def test_cut_off_from_the_server_it_ends_all(lab: Lab, tmp_path: Path) -> None:
    lab.script.lease_s = 1.5
    supervisor = lab.supervisor()
    begin(lab, tmp_path, "work")
    pids = tree(tmp_path, 1)
    lab.script.stop()
    assert supervisor.process.wait(20) == EXIT_CUT_OFF
    assert all(is_gone(pid) for pid in pids)


def test_deposed_it_ends_all(cold_lab: Lab, tmp_path: Path) -> None:
    supervisor = cold_lab.supervisor()
    begin(cold_lab, tmp_path, "work")
    pids = tree(tmp_path, 1)
    with cold_lab.script.changed:
        cold_lab.script.deposed.add(cold_lab.script.hellos[0].incarnation)
        cold_lab.script.changed.notify_all()
    assert supervisor.process.wait(20) == EXIT_DEPOSED
    assert all(is_gone(pid) for pid in pids)


def test_told_to_leave_it_ends_all_and_says_so(lab: Lab, tmp_path: Path) -> None:
    supervisor = lab.supervisor()
    begin(lab, tmp_path, "work")
    pids = tree(tmp_path, 1)
    assert supervisor.terminate() == EXIT_OK
    assert all(is_gone(pid) for pid in pids)
    assert [one.cause for one in lab.script.of("rank_exit", "g-1")] == [Cause.LOST]
    assert [one.kind for one in lab.script.reports][-1] == "empty"


def test_sweep_ends_what_a_dead_supervisor_left(cold_lab: Lab, tmp_path: Path) -> None:
    """As an engine does, when keeper and supervisor died at once."""
    supervisor = cold_lab.supervisor()
    begin(cold_lab, tmp_path, "work")
    pids = tree(tmp_path, 1)
    supervisor.process.send_signal(signal.SIGSTOP)
    for keeper in supervisor.keepers(cold_lab.home):
        os.kill(keeper, signal.SIGKILL)
    supervisor.process.kill()
    assert sweep(cold_lab.home, "other") == 0
    assert not is_gone(pids[1])
    assert sweep(cold_lab.home, "n1") >= 2
    all_gone(pids, within_s=5)
    assert sweep(cold_lab.home, "n1") == 0
    supervisor.process.wait()


def test_sweep_needs_the_standard_library_alone(tmp_path: Path) -> None:
    code = (f"import sys; sys.path.append({CORE!r}); from pathlib import Path; "
            f"from gangline.node.sweep import sweep; print(sweep(Path({str(tmp_path)!r}), 'n1'), "
            "'asyncio' in sys.modules)")
    done = subprocess.check_output([sys.executable, "-I", "-S", "-c", code], text=True)
    assert done == "0 False\n"


def test_living_processes_are_told_apart_from_later_ones() -> None:
    me = proc.look(os.getpid())
    assert me is not None
    assert proc.is_alive(me.pid, me.start_ticks)
    assert not proc.is_alive(me.pid, me.start_ticks - 1)
    assert not proc.send(me._replace(start_ticks=1), 0)
    assert proc.send(me, 0)
