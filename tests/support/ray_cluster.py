"""A real Ray cluster on this machine for tests, by tests/servers/ray.sh, and others who use it too."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "tests/servers/ray.sh"
GPUS = 8


class RayServers:
    """The cluster of tests/servers/ray.sh."""

    def __init__(self) -> None:
        # A real one of the developer's own, started beforehand, saves half a minute a run.
        given = os.environ.get("GANGLINE_TEST_RAY")
        self.given = given is not None
        self.folder = Path(given or tempfile.mkdtemp(prefix="gr", dir="/tmp"))  # short: sockets lie in it
        self.env = {**os.environ, "RAY": str(Path(sys.executable).with_name("ray")),
                    "PYTHONPATH": os.pathsep.join(map(os.path.abspath, ["core", *_search_path()]))}
        if not self.given:
            self.run("up", "4", str(_free_port()))

    def run(self, command: str, *arguments: str) -> None:
        subprocess.run([SCRIPT, command, self.folder, *arguments], env=self.env, cwd=ROOT, check=True, timeout=180)

    def down(self) -> None:
        if not self.given:
            self.run("down")
            shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def address(self) -> str:
        return f"127.0.0.10:{(self.folder / 'port').read_text().strip()}"

    @property
    def token_file(self) -> str:
        return str(self.folder / "token")

    @property
    def driver_env(self) -> dict[str, str]:
        return {**self.env, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": self.token_file}

    def driver(self, code: str, *arguments: str, fleet: str = "") -> str:
        """What somebody else's Ray driver prints, in the namespace of a fleet."""
        done = subprocess.run([sys.executable, "-c", _DRIVER + code, self.address, fleet, *arguments],
                              env=self.driver_env, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def occupy(self, node: str, gpus: int) -> Callable[[], None]:
        """Somebody else's actor holds GPUs of the node; what is returned ends it."""
        process = subprocess.Popen(
            [sys.executable, "-c", _DRIVER + _OTHERS, self.address, "", f"127.0.0.{10 + int(node[1:])}", str(gpus)],
            env=self.driver_env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"

        def end() -> None:
            process.communicate()
            assert process.returncode == 0
        return end

    def kill_raylet(self, node: str) -> list[psutil.Process]:
        """The raylet is dead; what was below it then, which Ray and the leash promise to take along."""
        raylet = self.raylet(node)
        below = raylet.children(recursive=True)
        raylet.kill()
        return below

    def raylet(self, node: str) -> psutil.Process:
        """The raylet of a node named n1, n2, …"""
        mine = f"--node_ip_address=127.0.0.{10 + int(node[1:])}"
        return next(process for process in psutil.process_iter() if _is_raylet(process, mine, str(self.folder)))


_DRIVER = """
import ray, sys
ray.init(address=sys.argv[1], _node_ip_address="127.0.0.10", namespace="gangline-" + sys.argv[2], log_to_driver=False,
         configure_logging=False)
"""
# Somebody else's actor, on the node with this address, until standard input ends.
_OTHERS = """
host, gpus = sys.argv[3:]

@ray.remote
class Other:
    def hold(self):
        return "held"

held = Other.options(num_gpus=int(gpus), num_cpus=1, resources={f"node:{host}": 0.001}).remote()
print(ray.get(held.hold.remote()), flush=True)
sys.stdin.read()
ray.kill(held)
"""


def ray_servers() -> Iterator[RayServers]:
    """The cluster for as long as it is wanted; skips where Ray is not installed, which CI does not accept."""
    if find_spec("ray") is None:
        assert os.environ.get("GANGLINE_CI") != "1", "Ray is not installed; see tests/servers/install.sh"
        pytest.skip("Ray is not installed")
    with contextlib.ExitStack() as stack:
        servers = RayServers()
        stack.callback(servers.down)
        yield servers


def _search_path() -> list[str]:
    return [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]


def _free_port() -> int:
    """Below the range of outgoing connections, so that none takes it before Ray does."""
    for port in range(16379, 16479):
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.10", port))
            return port
    raise AssertionError("no free port for Ray")


def _is_raylet(process: psutil.Process, address: str, folder: str) -> bool:
    with contextlib.suppress(psutil.Error):
        words = process.cmdline()
        return bool(words) and words[0].endswith("/raylet") and address in words and folder in " ".join(words)
    return False
