"""Real server processes, found and started by clients. Their fleet has no nodes, so nothing else runs."""

from __future__ import annotations

import asyncio
import fcntl
import multiprocessing
import os
import select
import shutil
import signal
import stat
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gangline.client import aconnect, connect
from gangline.client.record import read_record, write_record
from gangline.model.errors import Conflict, Rejected, Unavailable
from gangline.model.gang import Submission
from gangline.model.spec import GangSpec
from gangline.model.states import GangState
from gangline.server.__main__ import main
from gangline.service.views import observe
from gangline.store import Store

FLEET = "pools:\n- {name: p, gpu: 'H100:8', min: 0, max: 4, boot: 1h, emulated: true}\n"
WORK = Submission(slot="cli/a", spec=GangSpec(name="sft", gpu=("H100:8",), command=("true",)))


@pytest.fixture(scope="session")
def made_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("made") / "gangline.db"
    Store.open(f"sqlite:///{made}").close()
    return made


@pytest.fixture
def new_home(tmp_path_factory: pytest.TempPathFactory, made_database: Path,
             monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Path]]:
    """Homes of fresh servers; whatever serves them at the end of the test is killed."""
    monkeypatch.delenv("GANGLINE_URL", raising=False)
    homes: list[Path] = []

    def make(name: str = "h", fleet: str = FLEET) -> Path:
        home = tmp_path_factory.mktemp("e") / name
        home.mkdir()
        shutil.copy(made_database, home / "gangline.db")
        (home / "fleet.yaml").write_text(fleet)
        homes.append(home)
        return home

    yield make
    for home in homes:
        record = read_record(home)
        if record is not None and record.alive:
            kill(record.pid)


@pytest.fixture
def home(new_home: Callable[..., Path]) -> Path:
    return new_home()


def kill(pid: int, signum: int = signal.SIGKILL) -> None:
    """Send a signal and wait until the process is gone."""
    fd = os.pidfd_open(pid)
    try:
        signal.pidfd_send_signal(fd, signum)
        assert select.select([fd], [], [], 30)[0], f"process {pid} did not end"
    finally:
        os.close(fd)


def await_end(home: Path) -> None:
    """Wait until no process holds the home."""
    with open(home / "server.lock") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)


def _serve_in_child(argv: list[str], stderr: Path) -> None:
    os.dup2(os.open(stderr, os.O_WRONLY | os.O_CREAT, 0o600), 2)
    sys.stderr = os.fdopen(2, "w", buffering=1)
    os._exit(main(argv))


def serve_by_hand(home: Path, scratch: Path, *more: str) -> tuple[int | None, str]:
    """Exit code and stderr of `python -m gangline.server` that is expected to refuse."""
    child = multiprocessing.get_context("fork").Process(
        target=_serve_in_child, args=(["--home", str(home), *more], scratch / "stderr"))
    child.start()
    child.join(60)
    return child.exitcode, (scratch / "stderr").read_text()


def test_a_server_is_started_once_apart_from_its_starter(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_HOME", "/air")
    read_end, write_end = os.pipe()
    os.set_inheritable(write_end, True)
    with connect(home=home) as client, connect(home=home, start=False) as other:
        status = client.status()
        assert (status.home, status.fleet) == (str(home), str(home / "fleet.yaml"))
        assert other.status().pid == status.pid
        proc = Path(f"/proc/{status.pid}")
        assert (proc / "cwd").readlink() == Path("/")
        assert b"AIRFLOW_HOME" not in (proc / "environ").read_bytes()
        assert os.getsid(status.pid) != os.getsid(0)
        assert f"PPid:\t{os.getpid()}\n" not in (proc / "status").read_text()
        assert (proc / "fd/0").readlink() == Path("/dev/null")
    os.close(write_end)
    assert select.select([read_end], [], [], 20)[0], "the server holds a descriptor of its starter"
    os.close(read_end)
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    assert stat.S_IMODE((home / "s.sock").stat().st_mode) == 0o600


def _connect_in_child(home: Path, gate: Any, pids: Any) -> None:
    gate.wait()
    with connect(home=home) as client:
        pids.put(client.status().pid)


def test_ten_processes_that_need_a_server_at_once_start_one(home: Path) -> None:
    fork = multiprocessing.get_context("fork")
    gate, pids = fork.Event(), fork.Queue()
    children = [fork.Process(target=_connect_in_child, args=(home, gate, pids)) for _ in range(10)]
    for child in children:
        child.start()
    gate.set()
    assert len({pids.get(timeout=60) for _ in children}) == 1
    for child in children:
        child.join(20)
    assert (home / "server.log").read_text().count("gangline.server: serving") == 1


def test_a_client_outlives_its_server(home: Path) -> None:
    with connect(home=home) as client:
        ensured = client.ensure(WORK)
        first = client.status().pid
        cursor = client.watch(ensured.gang, ensured.token).cursor
        killer = threading.Timer(0.5, kill, [first])
        killer.start()  # while the watch is held, or between two of them
        while client.status().pid == first:
            watched = client.watch(ensured.gang, ensured.token, cursor, wait_s=2)
            assert watched.view.state is GangState.QUEUED
            cursor = watched.cursor
        killer.join()
        assert client.ensure(WORK).created is False


def test_a_loop_goes_on_while_a_server_is_started_for_it(home: Path) -> None:
    async def main() -> None:
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                await asyncio.sleep(0.01)
                ticks += 1

        ticking = asyncio.create_task(tick())
        async with await aconnect(home=home) as client:
            assert ticks > 3
            with pytest.raises(Rejected):
                await client.observe("g-none")
        ticking.cancel()

    asyncio.run(main())


def test_who_does_not_want_a_server_started_is_told_how(home: Path) -> None:
    with pytest.raises(Unavailable, match=f"gangline serve --home {home}"):
        connect(home=home, start=False)
    assert not (home / "server.log").exists()


def test_a_server_that_cannot_start_says_why(new_home: Callable[..., Path]) -> None:
    home = new_home(fleet="pools:\n- {name: p, gpus: 8}\n")
    with pytest.raises(Unavailable, match=r"pools\.0\.gpus: unknown field"):
        connect(home=home)
    assert read_record(home) is None


def test_a_home_that_cannot_be_used_is_refused_in_one_line(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.touch()
    for bad in (blocked, blocked / "below", Path("/proc/gangline")):
        with pytest.raises(Rejected, match="GANGLINE_HOME") as caught:
            connect(home=bad)
        assert str(bad) in str(caught.value)
    code, said = serve_by_hand(blocked, tmp_path)
    assert code == 2
    assert said.startswith("gangline: home: cannot use")
    assert said.count("\n") == 1


def test_a_home_with_a_long_path_is_served_from_a_short_one(new_home: Callable[..., Path]) -> None:
    home = new_home("n" * 110)
    with connect(home=home) as client:
        url = client.status().url
        assert url.startswith(f"unix:/tmp/gangline-{os.getuid()}/")
        client.stop()
        await_end(home)
    assert not Path(url.removeprefix("unix:")).exists()
    Path(url.removeprefix("unix:")).parent.rmdir()


def test_a_home_has_one_server(home: Path, tmp_path: Path) -> None:
    with connect(home=home) as client:
        pid = client.status().pid
    assert serve_by_hand(home, tmp_path) == (
        2, f"gangline: a server already runs for {home}: process {pid} at unix:{home}/s.sock "
           "(use it, or end it with: gangline stop)\n")


def test_a_server_of_another_version_is_only_good_for_stopping(home: Path) -> None:
    with connect(home=home):
        record = read_record(home)
    assert record is not None
    write_record(home, replace(record, version="0.0.1"))
    with connect(home=home) as client:
        with pytest.raises(Conflict, match=r"0\.0\.1.*gangline stop"):
            client.list()
        assert client.stop() == record.pid


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_server_and_leaves_its_gangs(home: Path, signum: int) -> None:
    with connect(home=home) as client:
        gang = client.ensure(WORK).gang
        kill(client.status().pid, signum)
    assert not (home / "server.json").exists()
    assert not (home / "s.sock").exists()
    store = Store.open(f"sqlite:///{home / 'gangline.db'}")
    assert observe(store, gang).state is GangState.QUEUED
    store.close()


@pytest.mark.parametrize(("options", "words"), [
    (("--listen", "0.0.0.0:0"), "GANGLINE_TOKEN"),
    (("--listen", "nowhere"), "HOST:PORT"),
    (("--fleet", "/none.yaml"), "cannot read /none.yaml"),
    (("--token-file", "/none"), "cannot read /none"),
])
def test_a_server_started_wrongly_says_so_in_one_line(home: Path, tmp_path: Path, options: tuple[str, ...],
                                                     words: str) -> None:
    code, said = serve_by_hand(home, tmp_path, *options)
    assert code == 2
    assert words in said
    assert said.count("\n") == 1
    assert read_record(home) is None
