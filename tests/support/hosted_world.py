"""A real server over a real cluster of another system, in real processes, and nothing left after."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pytest
from fleet_world import World, wait_gone

import gangline

READY_S = 120.0


class Cluster(Protocol):
    """A cluster of four nodes, with 8 GPUs of type H100 each, as a pool and as others can disturb it."""

    nodes: tuple[str, ...]

    def pool(self) -> str:
        """The pool in the fleet file, as one YAML flow mapping without its braces, `engine` included."""

    def jobs(self) -> dict[str, str]:
        """The state of each job of ours that has not ended, by name, in the system's own words."""

    def occupy(self, node: str) -> Callable[[], None]:
        """A job of somebody else has the whole node when this returns; what is returned ends it."""

    def drain(self, node: str) -> Callable[[], None]:
        """Somebody else takes the node out of service; what is returned puts it back."""

    def cut(self, node: str) -> Callable[[], None]:
        """The node loses power; what is returned brings it back."""


@dataclass
class HostedWorld(World):
    """A server over a cluster, and a local pool beside it."""

    cluster: Cluster
    process: subprocess.Popen[bytes]
    listen: str

    def kill_server(self) -> None:
        """kill -9, without any farewell."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def start_server(self) -> None:
        """Another server of the same home, at the same address."""
        self.process = serve(self.home, self.listen)

    def job_of(self, gang: str) -> str:
        """The name of the only job that a gang has and that has not ended."""
        return next(name for name in self.cluster.jobs() if gang.removeprefix("g-") in name)


@contextlib.contextmanager
def hosted_world(monkeypatch: pytest.MonkeyPatch, cluster: Cluster, *, more: str = "") -> Iterator[HostedWorld]:
    """A server over the cluster for one test; `more` are further pools, as lines of the fleet file."""
    folder = Path(tempfile.mkdtemp(prefix="gl-", dir="/tmp"))
    home, marks = folder / "home", folder / "marks"
    home.mkdir(mode=0o700)
    marks.mkdir()
    (home / "fleet.yaml").write_text(
        f"pools:\n  - {{name: train, gpu: 'H100:8', zone: z1, fabric: ib-1, price_per_gpu_hour: '2.50', lease: 10s,\n"
        f"     node_home: {folder / 'nodes'}, {cluster.pool()}}}\n{more}")
    monkeypatch.setenv("GANGLINE_HOME", str(home))
    monkeypatch.delenv("GANGLINE_URL", raising=False)
    listen = f"127.0.0.1:{_free_port()}"
    process = serve(home, listen)
    try:
        with gangline.connect() as client:
            world = HostedWorld(home, marks, client, cluster, process, listen)
            _until(lambda: {*cluster.nodes} <= {node.node for node in client.nodes() if node.takes_work}, "the nodes")
            try:
                yield world
            finally:
                client.stop(force=True)
        world.process.wait(READY_S)
        _until(lambda: not cluster.jobs(), "the jobs to be over")
        left = wait_gone(folder)
        assert not left, f"left behind: {left}"
    finally:
        if process.poll() is None:
            process.kill()
    shutil.rmtree(folder)


def serve(home: Path, listen: str) -> subprocess.Popen[bytes]:
    """A server of the home, once it can be found."""
    core = Path(gangline.__file__).parents[1]
    log = open(home.parent / "server.log", "ab")  # noqa: SIM115 - the server's for good
    (home / "s.sock").unlink(missing_ok=True)
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "gangline.server", "--listen", listen], stdin=subprocess.DEVNULL, stdout=log,
        stderr=log, cwd="/", env={**os.environ, "GANGLINE_HOME": str(home), "PYTHONPATH": str(core)},
        start_new_session=True)
    log.close()

    def answers() -> bool:
        assert process.poll() is None, (home.parent / "server.log").read_text()[-4000:]
        return (home / "s.sock").exists()

    _until(answers, "the server to answer")
    return process


def _until(done: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + READY_S
    while not done():
        assert time.monotonic() < deadline, f"waited {READY_S:.0f}s for {what}"
        time.sleep(0.05)


def _free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
