"""Judging ends, composing environments, choosing how to start, reading logs: no process is started."""

from __future__ import annotations

import io
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from gangline.model.errors import Rejected
from gangline.model.gang import NodeShare
from gangline.model.orders import Order, OrderPhase, RankOrder, Task
from gangline.model.states import Cause
from gangline.node import environment, fetch
from gangline.node.logs import last_lines
from gangline.node.verdict import Ending, judge


def _ending(**fields: Any) -> Ending:
    return Ending(**{"rank": 3, "code": None, "signal": None, "last_lines": (), "ended_because": None,
                     "ended_as": Cause.CANCELLED, "oom_killed": False, "starting": True,
                     "master_port": 29500, **fields})


@pytest.mark.parametrize(("fields", "cause", "text"), [
    ({"code": 0}, Cause.SUCCESS, ""),
    ({"code": 0, "ended_because": "told so"}, Cause.SUCCESS, ""),
    ({"code": 0, "ended_because": "told so", "stopped": True}, Cause.CANCELLED,
     "rank 3 stopped when asked to: told so"),
    ({"code": 0, "stopped": True}, Cause.LOST, "rank 3 stopped because of a SIGTERM from outside"),
    ({"code": 2}, Cause.USER, "rank 3 ended with exit code 2"),
    ({"code": 1, "last_lines": ("Traceback", "KeyError: 'x'", "")}, Cause.USER,
     "rank 3 ended with exit code 1: KeyError: 'x'"),
    ({"code": 1, "ended_because": "told so"}, Cause.CANCELLED, "rank 3 ended with exit code 1: told so"),
    ({"signal": "SIGSEGV"}, Cause.USER, "rank 3 was ended by SIGSEGV"),
    ({"signal": "SIGKILL"}, Cause.LOST, "rank 3 was killed from outside by SIGKILL"),
    ({"signal": "SIGKILL", "oom_killed": True}, Cause.OOM, "rank 3 was killed by the kernel for memory"),
    ({"signal": "SIGKILL", "oom_killed": True, "ended_because": "told so"}, Cause.CANCELLED,
     "rank 3 was ended by SIGKILL: told so"),
    ({"signal": "SIGHUP", "oom_killed": True}, Cause.LOST, "rank 3 was killed from outside by SIGHUP"),
    ({"signal": "SIGTERM", "ended_because": "left", "ended_as": Cause.LOST}, Cause.LOST,
     "rank 3 was ended by SIGTERM: left"),
    ({"code": 1, "last_lines": ("port: 29500, code: -98, name: EADDRINUSE",)}, Cause.LAUNCH,
     "rank 3 found port 29500 taken (EADDRINUSE)"),
    ({"code": 1, "starting": False, "last_lines": ("port: 29500, EADDRINUSE",)}, Cause.USER,
     "rank 3 ended with exit code 1: port: 29500, EADDRINUSE"),
    ({"code": 1, "last_lines": ("port: 295001, EADDRINUSE",)}, Cause.USER,
     "rank 3 ended with exit code 1: port: 295001, EADDRINUSE"),
])
def test_judge(fields: dict[str, Any], cause: Cause, text: str) -> None:
    assert judge(_ending(**fields)) == (cause, text)


def _share(node: str, role: str, gpus: int) -> NodeShare:
    return NodeShare(node=node, address=f"10.0.0.{len(node)}", gpus=tuple(range(gpus)), gpu_type="H100",
                     role=role)


def _task(**fields: Any) -> Task:
    return Task(**{"name": "job", "slot": "s", "tenant": "t", "node_rank": 1, "world_size": 5,
                   "role": "rollout",
                   "ranks": (RankOrder(rank=2, local_rank=0, gpus=(4, 5)), RankOrder(rank=3, local_rank=1)),
                   "nodes": (_share("a", "trainer", 2), _share("b", "rollout", 2), _share("c", "rollout", 1)),
                   "ranks_by_node": ((0, 1), (2, 3), (4,)), "master_addr": "10.0.0.1", "master_port": 20000,
                   "command": ("true",), **fields})


@pytest.fixture
def place(tmp_path: Path) -> environment.Place:
    return environment.Place(run_dir=tmp_path, cwd=tmp_path, root=None, socket=Path("/s"), tree="h/g/2/1/b",
                             token="t")


def test_ranks_of_several_roles_are_counted_apart(place: environment.Place) -> None:
    order = Order(gang="g", attempt=2, generation=1, phase=OrderPhase.START)
    task = _task()
    env = environment.rank_env(order, task, task.ranks[0], place, {"BASE": "1"})
    assert (env["RANK"], env["ROLE_RANK"], env["ROLE_WORLD_SIZE"]) == ("2", "0", "3")
    assert env["ROLE_NAME"] == "rollout"
    assert (env["LOCAL_WORLD_SIZE"], env["WORLD_SIZE"], env["TORCHELASTIC_RESTART_COUNT"]) == ("2", "5", "1")
    assert (env["CUDA_VISIBLE_DEVICES"], env["BASE"]) == ("4,5", "1")
    assert environment.rank_env(order, task, task.ranks[1], place, {})["CUDA_VISIBLE_DEVICES"] == ""
    emulated = environment.rank_env(order, _task(emulated=True), task.ranks[0], place, {})
    assert emulated["CUDA_VISIBLE_DEVICES"] == ""


def test_the_users_settings_win_over_defaults_but_not_over_identity(place: environment.Place) -> None:
    inherited = {"PATH": "/bin", "GANGLINE_HOME": "/secret", "HOME": "/root"}
    user = {"OMP_NUM_THREADS": "4", "RANK": "9"}
    base = environment.base_env(inherited, "/venv/bin/python", user, local=True)
    assert base["PATH"] == "/venv/bin:/bin"
    assert (base["OMP_NUM_THREADS"], base["GLOO_SOCKET_IFNAME"], base["HOME"]) == ("4", "lo", "/root")
    assert "GANGLINE_HOME" not in base
    assert "GLOO_SOCKET_IFNAME" not in environment.base_env(inherited, "/venv/bin/python", {}, local=False)
    order = Order(gang="g", attempt=1, generation=1, phase=OrderPhase.START)
    task = _task()
    assert environment.rank_env(order, task, task.ranks[0], place, base)["RANK"] == "2"


@pytest.mark.parametrize(("command", "kind"), [
    (("python", "prog.py", "--x"), "script"), (("python3", "-u", "prog.py"), "script"),
    ((sys.executable, "-m", "prog"), "module"), (("python", "-c", "1"), None),
    (("python", "-W", "error", "prog.py"), None), (("python", "absent.py"), None), (("sh", "-c", "1"), None)])
def test_which_commands_a_fork_can_run(place: environment.Place, command: tuple[str, ...],
                                       kind: str | None) -> None:
    (place.cwd / "prog.py").touch()
    program = environment.find_program(_task(command=command), sys.executable, place, "/bin:/usr/bin")
    assert (program.spec["kind"] if program.spec else None) == kind
    assert program.argv is not None
    assert program.argv[0] == (sys.executable if "python" in command[0] else "sh")
    template = {"interpreter": sys.executable, "modules": ["json"]}
    assert environment.may_fork(program, {}, place, template) is (kind is not None)
    for early in ("LD_PRELOAD", "PYTHONHASHSEED", "TORCH_LOGS", "KMP_AFFINITY"):
        assert not environment.may_fork(program, {early: "1"}, place, template)
    assert not environment.may_fork(program, {}, place, {**template, "interpreter": "/usr/bin/other"})
    (place.cwd / "json.py").touch()
    assert not environment.may_fork(program, {}, place, template)


def test_last_lines_are_what_a_person_saw(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"one\n10%\r55%\r100%\n\xff\n\nlast\n\n")
    assert last_lines(log, 3) == ("\ufffd", "", "last")
    assert last_lines(log, 9)[:2] == ("one", "100%")
    assert last_lines(tmp_path / "absent", 3) == ()


@pytest.mark.parametrize("name", ["../escape", "/tmp/escape", "link/escape"])
def test_archives_cannot_write_outside(tmp_path: Path, name: str) -> None:
    archive = tmp_path / "a.tar"
    with tarfile.open(archive, "w") as tar:
        link = tarfile.TarInfo("link")
        link.type, link.linkname = tarfile.SYMTYPE, str(tmp_path)
        tar.addfile(link)
        info = tarfile.TarInfo(name)
        info.size = 1
        tar.addfile(info, io.BytesIO(b"x"))
    (tmp_path / "code").mkdir()
    with pytest.raises(Rejected, match="cannot be unpacked"):
        fetch._unpack(archive, tmp_path / "code" / "0")
    assert not list(tmp_path.rglob("escape"))
    assert not (tmp_path / "code" / "0").exists()
