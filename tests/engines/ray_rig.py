"""A Ray rig for the conformance suite."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import psutil
from hub import Hub
from ray_cluster import GPUS, RayServers
from rig import FLEET, OTHER_FLEET, Trait, supervision, until

from gangline.engines.base import Engine, NodeStatus
from gangline.engines.ray.engine import RayEngine
from gangline.model.fleet import Pool


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
        return self.servers.driver(code, *arguments, fleet=FLEET)

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
        return self.servers.occupy(node, gpus)

    def others_drain(self, node: str, reason: str) -> Callable[[], None]:
        raise NotImplementedError("Ray has no drain that can be lifted")

    def kill_node(self, node: str) -> Callable[[], None]:
        """Only the raylet is killed: that all below it go along is Ray's promise and the leash's."""
        below = self.servers.kill_raylet(node)
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
