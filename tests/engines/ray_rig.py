"""A real Ray cluster for tests: a head and four raylets on loopback addresses, and others who use it too."""

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
from hub import Hub
from rig import FLEET, OTHER_FLEET, Trait, supervision, until

from gangline.engines.base import Engine, NodeStatus
from gangline.engines.ray.engine import RayEngine
from gangline.model.fleet import Pool

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

    def raylet(self, node: str) -> psutil.Process:
        """The raylet of a node named n1, n2, …"""
        mine = f"--node_ip_address=127.0.0.{10 + int(node[1:])}"
        return next(process for process in psutil.process_iter() if _is_raylet(process, mine, str(self.folder)))


class RayRig:
    """See `rig.Rig`."""

    pool = "ray"
    nodes = ("n1", "n2", "n3", "n4")
    gpu_type = "H100"
    gpus = GPUS
    traits = frozenset({Trait.QUEUE, Trait.FRACTIONS, Trait.PATHS, Trait.FOREIGN})

    def __init__(self, servers: RayServers, hub: Hub, home: Path) -> None:
        self.servers, self.hub, self.home = servers, hub, home
        self._made: dict[str, RayEngine] = {}
        self.engine: Engine = self.make(FLEET)
        self._other: Engine | None = None
        self._again: Engine | None = None

    def make(self, fleet: str, *, python: str | None = None, token_file: str | None = None) -> RayEngine:
        pool = Pool.model_validate({
            "name": self.pool, "engine": "ray", "gpu": f"H100:{GPUS}", "fabric": "ib-1", "python": python,
            "ray": {"address": self.servers.address, "token_file": token_file or self.servers.token_file,
                    "custom_resources": {"rdma": 1}}})
        return RayEngine((pool,), supervision(self.hub), self.home, fleet)

    def driver(self, code: str, *arguments: str) -> str:
        """What somebody else's Ray driver prints, in the namespace of our fleet."""
        done = subprocess.run([sys.executable, "-c", _DRIVER + code, self.servers.address, *arguments],
                              env=self.driver_env, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    @property
    def driver_env(self) -> dict[str, str]:
        return {**self.servers.env, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": self.servers.token_file}

    def again(self) -> Engine:
        if self._again is not None:
            self._again.close()  # the next call starts an envoy that has seen nothing
        else:
            self._again = self.make(FLEET)
        return self._again

    def other_fleet(self) -> Engine:
        if self._other is None:
            self._other = self.make(OTHER_FLEET)
        return self._other

    def occupy(self, node: str, gpus: int) -> Callable[[], None]:
        process = subprocess.Popen(
            [sys.executable, "-c", _DRIVER + _OTHERS, self.servers.address, f"127.0.0.{10 + int(node[1:])}", str(gpus)],
            env=self.driver_env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"

        def end() -> None:
            process.communicate()
            assert process.returncode == 0
        return end

    def others_drain(self, node: str, reason: str) -> Callable[[], None]:
        raise NotImplementedError("Ray has no drain that can be lifted")

    def kill_node(self, node: str) -> Callable[[], None]:
        """Only the raylet is killed: that all below it go along is Ray's promise and the leash's."""
        raylet = self.servers.raylet(node)
        below = raylet.children(recursive=True)
        raylet.kill()
        until(lambda: not any(process.is_running() and process.status() != psutil.STATUS_ZOMBIE for process in below),
              "all below the raylet to be gone", lambda: below)

        def revive() -> None:
            self.servers.run("node", node[1:])
            until(lambda: any(seen.name == node and seen.status is NodeStatus.READY
                              for seen in self.engine.observe().nodes), f"{node} to be back")
        return revive

    def close(self) -> None:
        for engine in (self.engine, self._other, self._again):
            if engine is not None:
                engine.close()


_DRIVER = f"""
import ray, sys
ray.init(address=sys.argv[1], _node_ip_address="127.0.0.10", namespace="gangline-{FLEET}", log_to_driver=False,
         configure_logging=False)
"""
# Somebody else's actor, on the node with this address, until standard input ends.
_OTHERS = """
host, gpus = sys.argv[2:]

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
