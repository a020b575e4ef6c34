"""A real Slurm cluster on this machine for tests, by tests/servers/slurm.sh."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "servers" / "slurm.sh"
NODES, GPUS = 4, 8  # of the partition `train`; `cloud` has one more node, c1, which sleeps


@dataclass(frozen=True)
class SlurmCluster:
    """A running cluster: its folder, and its clients' programs."""

    folder: Path

    @property
    def conf(self) -> str:
        return str(self.folder / "slurm.conf")

    def run(self, *argv: str) -> str:
        """What a client program prints."""
        env = {**os.environ, "SLURM_CONF": self.conf}
        return subprocess.run(argv, env=env, check=True, capture_output=True, text=True, timeout=60).stdout.strip()

    def cut(self, node: str) -> None:
        """The node loses power."""
        _script("cut", self.folder, node)

    def start(self, node: str) -> None:
        _script("start", self.folder, node)

    def revive(self, node: str) -> None:
        """The node is back, and idle."""
        self.start(node)
        _until(lambda: self.states(node) == {"idle"}, f"{node} to be idle")

    def wait_job(self, job: str, *states: str) -> None:
        _until(lambda: self.run("squeue", "-h", "-t", "all", "-j", job, "-o", "%T") in states, f"job {job}")

    def end(self, job: str) -> None:
        """Somebody's job is over."""
        self.run("scancel", "-s", "KILL", job)
        self.run("scancel", job)
        self.wait_job(job, "CANCELLED", "FAILED", "COMPLETED")

    def states(self, node: str) -> set[str]:
        return set(self.run("sinfo", "-h", "-N", "-n", node, "-O", "StateComplete:;").split(";")[0].split("+"))


def _until(done: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 60
    while not done():
        assert time.monotonic() < deadline, f"waited 60s for {what}"
        time.sleep(0.1)


def need_slurm() -> None:
    """Skips the test where Slurm cannot run, with the reason; in CI that is a failure."""
    missing = [name for name in ("slurmctld", "slurmd", "sbatch", "munged") if shutil.which(name) is None]
    reason = "" if os.geteuid() == 0 else "it needs root"
    if missing:
        reason = f"{missing[0]} is not installed: run tests/servers/install.sh slurm"
    if reason and os.environ.get("GANGLINE_CI") == "1":
        pytest.fail(f"real Slurm cannot be tested: {reason}")
    if reason:
        pytest.skip(f"real Slurm: {reason}")


@contextlib.contextmanager
def slurm_cluster() -> Iterator[SlurmCluster]:
    """A cluster of `NODES` nodes, all idle; ended with all it runs."""
    need_slurm()
    folder = Path(tempfile.mkdtemp(prefix="gl-slurm-", dir="/tmp"))  # munge's user must reach it, and paths be short
    folder.chmod(0o755)
    try:
        _script("up", folder, str(NODES))
        yield SlurmCluster(folder)
    finally:
        _script("down", folder)
        shutil.rmtree(folder, ignore_errors=True)


def _script(command: str, folder: Path, *args: str) -> None:
    env = {**os.environ, "PORT": str(_free_ports(NODES + 2))} if command == "up" else None
    with tempfile.TemporaryFile() as said:  # daemons inherit it, so a pipe would never end
        done = subprocess.run([SCRIPT, command, folder, *args], env=env, stdin=subprocess.DEVNULL, stdout=said,
                              stderr=said, timeout=120)
        said.seek(0)
        assert done.returncode == 0, said.read().decode(errors="replace")


def _free_ports(count: int) -> int:
    """The first of so many free ports in a row."""
    for first in range(17100, 32000, 50):
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
            for port in range(first, first + count):
                stack.enter_context(socket.socket()).bind(("127.0.0.1", port))
            return first
    raise AssertionError("there are no free ports")
