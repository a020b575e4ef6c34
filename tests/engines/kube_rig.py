"""The Kubernetes engine with a toy cluster, as the conformance suite wants it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
from hub import Hub
from kube_toy.cluster import ToyCluster
from kube_toy.rights import Rights
from kube_toy.store import NODES, PODS
from rig import FLEET, OTHER_FLEET, Trait, supervision

from gangline.engines.base import Sight
from gangline.engines.kubernetes.engine import KubernetesEngine
from gangline.engines.supervision import Supervision
from gangline.model.fleet import Pool

NODE_NAMES = ("node-a", "node-b", "node-c", "node-d")
GPUS = 4
DEPLOY = Path(__file__).parents[2] / "deploy/kubernetes"
SERVER = "server-token"
NAMESPACE, ACCOUNT = "gangline", "gangline-server"
PATIENCE_S = 20.0


def kube_pool(**settings: Any) -> Pool:
    """A pool of H100 nodes whose image is this machine's own Python."""
    top = {key: settings.pop(key) for key in ("mode", "gpu", "python") if key in settings}
    return Pool.parse({"name": "h100", "engine": "kubernetes", "gpu": f"H100:{GPUS}", "python": sys.executable,
                       "kubernetes": {"image": "here", "namespace": NAMESPACE, "labels": {"pool": "h100"}, **settings},
                       **top})


def shipped() -> list[dict[str, Any]]:
    """Every manifest in deploy/kubernetes, but for what only kustomize and Gangline read."""
    return [item for path in sorted(DEPLOY.glob("*.yaml")) if path.name not in ("kustomization.yaml", "fleet.yaml")
            for item in yaml.safe_load_all(path.read_text())]


def shipped_rights() -> Rights:
    """Those of the server's account."""
    return Rights(shipped(), NAMESPACE, ACCOUNT)


class Settled(KubernetesEngine):
    """The engine, looking only once its watches have heard all that the toy has to tell: they are milliseconds
    behind, and the suite does not wait for what it has done itself."""

    toy: ToyCluster

    def observe(self) -> Sight:
        self.settle()
        return super().observe()

    def settle(self) -> None:
        version = self.toy.store.version
        cluster = self._cluster()
        for cache in cluster.caches:
            assert cache.wait_for(version, PATIENCE_S), "a watch did not hear of a change"


class KubeRig:
    """Four nodes on two leaves, with a pool of one kind of job."""

    pool, nodes, gpu_type, gpus = "h100", NODE_NAMES, "H100", GPUS
    traits = frozenset(Trait)

    def __init__(self, folder: Path, hub: Hub, *, groups: bool = True, **settings: Any) -> None:
        self.hub, self._pool, self._folder = hub, kube_pool(**settings), folder
        self.rights = shipped_rights()
        self.toy = ToyCluster(folder, {SERVER: self.rights}, groups=groups)
        for index, name in enumerate(NODE_NAMES):
            self.toy.add_node(name, GPUS, {
                "pool": "h100", "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
                "topology.kubernetes.io/zone": "zone-1", "fabric.topograph.run/tier-0": f"leaf-{index // 2}",
                "fabric.topograph.run/tier-1": "spine-0"})
        self._made: list[KubernetesEngine] = []
        self.supervision: Supervision = supervision(hub)
        self.engine = self.again()
        self._other = self._engine(OTHER_FLEET)

    def close(self) -> None:
        for engine in self._made:
            engine.close()
        self.toy.close()

    def again(self) -> Settled:
        return self._engine(FLEET)

    def other_fleet(self) -> Settled:
        return self._other

    def occupy(self, node: str, gpus: int) -> Callable[[], None]:
        pod = self.toy.add_pod("job-of-others", node, gpus)
        return lambda: self._remove(pod)

    def others_drain(self, node: str, reason: str) -> Callable[[], None]:
        """Cordoned, and a monitor of nodes says why."""
        self._edit(node, lambda item: (item["spec"].update(unschedulable=True), item["status"]["conditions"].append(
            {"type": "Maintenance", "status": "True", "message": reason})))
        return lambda: self._edit(node, lambda item: (item["spec"].pop("unschedulable"),
                                                      item["status"]["conditions"].pop()))

    def kill_node(self, node: str) -> Callable[[], None]:
        self.toy.kubelets.power_off(node)
        return lambda: self.toy.kubelets.power_on(node)

    def _engine(self, fleet: str) -> Settled:
        engine = Settled((self._pool,), self.supervision, self._folder, fleet,
                         access=lambda: self.toy.access(SERVER))
        engine.toy = self.toy
        self._made.append(engine)
        return engine

    def _remove(self, pod: dict[str, Any]) -> None:
        self.toy.store.remove(PODS, pod)

    def _edit(self, node: str, change: Callable[[dict[str, Any]], object]) -> None:
        with self.toy.store.changing(NODES, self.toy.store.get(NODES, "", node)) as held:
            change(held)
