"""What ranks see, and what the server hears of them, warm and cold alike."""

from __future__ import annotations

import json
import signal
import socket
from pathlib import Path
from typing import Any

import pytest
from node_lab import CORE, Lab
from scripted import until

from gangline.model.orders import OrderPhase
from gangline.model.states import Cause

REPORT_ENV = """
import json, os, sys

def show(**args):
    info = json.load(open(os.environ["GANGLINE_INFO"]))
    print("hello from", os.environ["RANK"])
    return {"env": {k: v for k, v in os.environ.items()}, "args": args, "path0": sys.path[0],
            "cwd": os.getcwd(), "info": info, "mode": os.stat(os.environ["GANGLINE_INFO"]).st_mode & 0o777}
"""

ODD = """
import math, os, pathlib

def floats():
    return {"nan": math.nan, "inf": [math.inf, -math.inf], "tuple": (1, 2.5), 3: None}

def unset():
    return {"good": 1, "bad": [1, {2}]}

def big():
    return "x" * (1 << 20)

def fail():
    print("about to fail")
    raise ValueError("no such luck")

def leave():
    raise SystemExit("that is all")

def quit():
    raise SystemExit(7)

class Group:
    @staticmethod
    def inner():
        return "inner"
"""


def test_ranks_start_together_and_know_their_place(lab: Lab) -> None:
    code = lab.snapshot(work=REPORT_ENV)
    nodes = ("n1", "n2")
    tasks = {node: lab.task(nodes, node, ranks=2, function="work:show", args={"lr": 0.5}, snapshot=code,
                            env={"MINE": "yes"}) for node in nodes}
    for node in nodes:
        lab.supervisor(node)
        lab.order("g-1", OrderPhase.ASSEMBLE, tasks[node], node)
    lab.script.wait_report("ready", "g-1", 2)
    assert not lab.script.of("started", "g-1")
    assert not lab.script.logs
    for node in nodes:
        lab.order("g-1", OrderPhase.START, tasks[node], node)
    lab.script.wait_report("started", "g-1", 2)
    exits = lab.script.wait_report("rank_exit", "g-1", 4)

    assert [one.cause for one in exits] == [Cause.SUCCESS] * 4
    results = {one.rank: one.result for one in exits}
    for rank, got in results.items():
        env, info = got["env"], got["info"]
        assert (env["RANK"], env["LOCAL_RANK"]) == (str(rank), str(rank % 2))
        assert env["NODE_RANK"] == env["GROUP_RANK"] == str(rank // 2)
        assert (env["WORLD_SIZE"], env["LOCAL_WORLD_SIZE"], env["GROUP_WORLD_SIZE"]) == ("4", "2", "2")
        assert (env["MASTER_ADDR"], env["MASTER_PORT"]) == ("127.0.1.1", str(lab.port))
        assert (env["ROLE_RANK"], env["ROLE_WORLD_SIZE"]) == (str(rank), "4")
        assert (env["TORCHELASTIC_RUN_ID"], env["TORCHELASTIC_RESTART_COUNT"]) == ("g-1", "0")
        assert (env["GLOO_SOCKET_IFNAME"], env["OMP_NUM_THREADS"], env["MINE"]) == ("lo", "1", "yes")
        assert env["CUDA_VISIBLE_DEVICES"] == ""
        assert got["args"] == {"lr": 0.5}
        assert got["path0"] == got["cwd"] == str(lab.home / "code" / code)
        assert got["mode"] == 0o600
        assert info["ranks_by_node"] == [[0, 1], [2, 3]]
        assert [share["address"] for share in info["nodes"]] == ["127.0.1.1", "127.0.1.2"]
        assert (info["gang"], info["attempt"], info["node_rank"], info["size"]) == ("g-1", 1, rank // 2, 2)
    for node in nodes:
        lab.order("g-1", OrderPhase.STOP, None, node)
    lab.script.wait_report("empty", "g-1", 2)
    assert [lab.script.log("g-1", rank) for rank in range(4)] == [f"hello from {n}\n" for n in range(4)]
    assert not list(lab.home.glob("nodes/*/run/*"))
    assert not list(lab.home.glob("nodes/*/trees/*"))


@pytest.mark.parametrize(("function", "cause", "code", "says"), [
    ("odd:floats", Cause.SUCCESS, 0, None),
    ("odd:Group.inner", Cause.SUCCESS, 0, None),
    ("odd:unset", Cause.USER, 1, "result['bad'][1] is a builtins.set"),
    ("odd:big", Cause.USER, 1, "at most 1048576 are kept"),
    ("odd:fail", Cause.USER, 1, "ValueError: no such luck"),
    ("odd:leave", Cause.USER, 1, "that is all"),
    ("odd:quit", Cause.USER, 7, None),
    ("odd:missing", Cause.USER, 1, "module odd has no missing"),
    ("odd:math.pi", Cause.USER, 1, "is a float, not a function"),
    ("absent:fn", Cause.USER, 1, "No module named 'absent'"),
])
def test_how_functions_end(ends: Ends, function: str, cause: Cause, code: int, says: str | None) -> None:
    end = ends.of(function=function)
    assert (end.cause, end.exit_code, end.signal) == (cause, code, None)
    if says is not None:
        assert says in end.text
        assert any(says in line for line in end.last_lines)
    if function == "odd:floats":
        assert end.result == {"nan": "NaN", "inf": ["Infinity", "-Infinity"], "tuple": [1, 2.5], "3": None}
    if function == "odd:fail":
        assert end.last_lines[0] == "about to fail"
        assert not any("boot.py" in line for line in end.last_lines)  # the user's frames alone


SCRIPT = """
import atexit, json, os, sys, threading, time
atexit.register(lambda: print("hook", __name__))
def late():
    time.sleep(0.05)
    print("thread")
threading.Thread(target=late).start()
print(json.dumps([sys.argv, __name__, sys.path[0], __file__, __spec__ is None, sys.stdin.read()]))
sys.stderr.write("error")
if len(sys.argv) > 1:
    sys.exit(int(sys.argv[1]))
"""


@pytest.mark.parametrize(("command", "code"), [
    (("python", "prog.py"), 0), (("python", "-u", "prog.py", "3"), 3), (("python", "-m", "prog", "4"), 4)])
def test_python_commands_are_programs(ends: Ends, command: tuple[str, ...], code: int) -> None:
    end = ends.of(command=command)
    assert end.exit_code == code
    assert end.cause is (Cause.USER if code else Cause.SUCCESS)
    first, *rest = ends.last_log.splitlines()
    argv, name, path0, file, no_spec, stdin = json.loads(first)
    code_dir = f"{ends.lab.home}/code/{ends.code}"
    assert argv == [f"{code_dir}/prog.py" if "-m" in command else "prog.py", *([str(code)] if code else [])]
    assert (name, path0, file, stdin) == ("__main__", code_dir, f"{code_dir}/prog.py", "")
    assert no_spec is ("-m" not in command)
    assert "".join(rest) == "errorthreadhook __main__"


@pytest.mark.parametrize(("command", "signal_name", "cause"), [
    (("sh", "-c", "echo $RANK; kill -SEGV $$"), "SIGSEGV", Cause.USER),
    (("sh", "-c", "kill -TERM $$"), "SIGTERM", Cause.LOST),
    (("sh", "-c", "kill -KILL $$"), "SIGKILL", Cause.LOST),
    (("sh", "-c", "echo a; echo b >&2; exit 9"), None, Cause.USER)])
def test_any_command_runs(ends: Ends, command: tuple[str, ...], signal_name: str | None,
                          cause: Cause) -> None:
    end = ends.of(command=command)
    assert (end.signal, end.cause) == (signal_name, cause)
    if signal_name is None:
        assert end.exit_code == 9
        assert end.last_lines == ("a", "b")


def test_a_taken_port_is_the_launchs_fault(ends: Ends) -> None:
    end = ends.of(command=("sh", "-c", f"echo listen failed, port: {ends.lab.port}, EADDRINUSE; exit 1"))
    assert end.cause is Cause.LAUNCH
    end = ends.of(command=("sh", "-c", "echo 'bind: Address already in use (port 1)'; exit 1"))
    assert end.cause is Cause.USER


@pytest.mark.parametrize(("fields", "cause", "says"), [
    ({"function": "odd:floats", "interpreter": "/nowhere/py"}, Cause.USER, "no interpreter /nowhere/py"),
    ({"command": ("no-such-program",)}, Cause.USER, "no program 'no-such-program'"),
    ({"command": ("./absent.sh",)}, Cause.USER, "no program './absent.sh'"),
    ({"function": "odd:floats", "snapshot": "0" * 64}, Cause.USER, "no code snapshot"),
])
def test_what_cannot_run_is_refused(ends: Ends, fields: dict[str, Any], cause: Cause, says: str) -> None:
    refused = ends.refused(**fields)
    assert refused.cause is cause
    assert says in refused.text


def test_bad_archives_are_refused(ends: Ends) -> None:
    no_tar = ends.lab.blob(b"this is no archive" * 100)
    assert "cannot be unpacked" in ends.refused(function="odd:floats", snapshot=no_tar).text
    ends.lab.script.blobs["1" * 64] = b"other bytes"
    wrong = ends.refused(function="odd:floats", snapshot="1" * 64)
    assert wrong.cause is Cause.LAUNCH
    assert "arrived with other bytes" in wrong.text


def test_a_port_in_use_is_refused(ends: Ends) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        refused = ends.refused(function="odd:floats", master_port=taken.getsockname()[1])
    assert refused.cause is Cause.LAUNCH
    assert "EADDRINUSE" in refused.text


class Ends:
    """Runs single-rank gangs to their end."""

    def __init__(self, lab: Lab, gang: str) -> None:
        self.lab, self._gang, self._count = lab, gang, 0
        self.code = lab.snapshot(odd=ODD, prog=SCRIPT)
        self.last_log = ""

    def of(self, **fields: Any) -> Any:
        gang = self._next()
        self.lab.begin(gang, self.lab.task(**{"snapshot": self.code, **fields}))
        end = self.lab.script.wait_report("rank_exit", gang)[0]
        self.lab.script.wait_report("started", gang)
        self.lab.stop(gang)
        self.last_log = self.lab.script.log(gang, 0)
        return end

    def refused(self, **fields: Any) -> Any:
        gang = self._next()
        self.lab.order(gang, OrderPhase.ASSEMBLE, self.lab.task(**{"snapshot": self.code, **fields}))
        refused = self.lab.script.wait_report("refused", gang)[0]
        assert not self.lab.script.of("ready", gang)
        self.lab.stop(gang)
        return refused

    def _next(self) -> str:
        self._count += 1
        return f"{self._gang}-{self._count}"


@pytest.fixture
def ends(shared: Lab, gang: str) -> Ends:
    return Ends(shared, gang)


def test_the_templates_interpreter_starts_warm_and_others_cold(warm_lab: Lab) -> None:
    """A fork has its template's command line; a fresh interpreter has its own."""
    code = warm_lab.snapshot(work="def show():\n    return open('/proc/self/cmdline').read()\n")
    warm_lab.supervisor()
    for gang, fields, is_warm in (("g-1", {}, True), ("g-2", {"env": {"LD_BIND_NOW": "1"}}, False),
                                  ("g-3", {"env": {"OMP_NUM_THREADS": "2"}}, False)):
        warm_lab.begin(gang, warm_lab.task(function="work:show", snapshot=code, **fields))
        end = warm_lab.script.wait_report("rank_exit", gang)[0]
        assert ("gangline.node.template" in end.result) is is_warm
        warm_lab.stop(gang)


def test_own_modules_win_over_those_the_template_has_imported(shared: Lab, gang: str) -> None:
    code = shared.snapshot(argparse="MINE = True\n",
                           work="import argparse\ndef show():\n    return argparse.MINE\n")
    shared.begin(gang, shared.task(function="work:show", snapshot=code))
    assert shared.script.wait_report("rank_exit", gang)[0].result is True
    shared.stop(gang)


def test_two_gangs_share_a_node(shared: Lab, gang: str) -> None:
    code = shared.snapshot(work="import time\ndef quick():\n    return 1\n"
                                "def slow():\n    time.sleep(600)\n")
    other = f"{gang}-other"
    shared.begin(gang, shared.task(function="work:slow", snapshot=code))
    shared.script.wait_report("started", gang)
    shared.begin(other, shared.task(function="work:quick", snapshot=code))
    assert shared.script.wait_report("rank_exit", other)[0].result == 1
    shared.stop(other)
    assert not shared.script.of("rank_exit", gang)
    shared.stop(gang)
    end = shared.script.wait_report("rank_exit", gang)[0]
    assert (end.signal, end.cause) == (signal.SIGKILL.name, Cause.CANCELLED)


def test_logs_arrive_whole_through_a_server_restart(shared: Lab, gang: str, tmp_path: Path) -> None:
    code = shared.snapshot(work="""
import os, time
def talk(flag):
    n = 0
    while not os.path.exists(flag):
        print("line", n)
        n += 1
        time.sleep(0.001)
    print("end", n)
    return n
""")
    flag = tmp_path / "enough"
    shared.begin(gang, shared.task(function="work:talk", args={"flag": str(flag)}, snapshot=code))
    shared.script.wait(lambda: "line 10\n" in shared.script.log(gang, 0), "the first lines")
    shared.script.stop()
    sent = len(shared.script.logs[gang, 1, 0])
    path = next(shared.home.glob(f"nodes/n1/run/{gang}.*/rank-0.log"))
    until(lambda: path.stat().st_size > sent + 200, "lines while no server is there")
    flag.touch()
    until(lambda: b"end" in path.read_bytes(), "the last line")
    shared.script.start()
    count = shared.script.wait_report("rank_exit", gang)[0].result
    shared.stop(gang)
    assert shared.script.log(gang, 0).splitlines() == [*(f"line {n}" for n in range(count)), f"end {count}"]
    assert not shared.script.gaps
    assert len(shared.script.hellos) == 1  # the same supervisor went on


def test_a_damaged_version_is_named_before_any_rank_starts(shared: Lab, gang: str, tmp_path: Path) -> None:
    """Verification itself is the volumes' matter; here it is asked, and its answer obeyed."""
    (tmp_path / "v1").mkdir()
    mount = {"mount": "/ckpt", "volume": "sft", "root": str(tmp_path), "resume": 7, "resume_dir": "v1",
             "manifest_sha256": "0" * 64}
    nodes = ("n0", "n1")
    shared.order(gang, OrderPhase.ASSEMBLE, shared.task(nodes, "n1", command=("true",), mounts=(mount,)))
    shared.script.wait_report("ready", gang)  # not this node's to verify: node rank 0 does
    shared.stop(gang)
    other = f"{gang}-other"
    shared.order(other, OrderPhase.ASSEMBLE, shared.task(command=("true",), mounts=(mount,)))
    damaged = shared.script.wait_report("damaged", other)[0]
    assert (damaged.volume, damaged.version) == ("sft", 7)
    assert damaged.text
    assert not shared.script.of("ready", other)
    shared.stop(other)


def test_a_preloaded_module_with_threads_means_cold_starts(tmp_path: Path, warm_lab: Lab) -> None:
    """A process with threads must not be forked."""
    module = "import threading, time\nthreading.Thread(target=time.sleep, args=(600,), daemon=True).start()"
    (tmp_path / "threaded.py").write_text(module)
    warm_lab.template = tmp_path / "own.sock"
    warm_lab.env |= {"GANGLINE_PRELOAD": "threaded", "PYTHONPATH": f"{CORE}:{tmp_path}"}
    code = warm_lab.snapshot(work="def show():\n    return open('/proc/self/cmdline').read()\n")
    warm_lab.supervisor()
    warm_lab.begin("g-1", warm_lab.task(function="work:show", snapshot=code))
    end = warm_lab.script.wait_report("rank_exit", "g-1")[0]
    assert "gangline.node.template" not in end.result
    assert "started 1 threads" in Path(f"{warm_lab.template}.log").read_text()
