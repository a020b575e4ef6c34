"""All parts together: a cluster with nodes, to be asked through its API."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from pathlib import Path

from gangline.engines.kubernetes.access import Access
from kube_toy import certificate
from kube_toy.control import Controllers
from kube_toy.kubelet import Kubelets
from kube_toy.rights import Rights
from kube_toy.serving import ApiServer
from kube_toy.store import NAMESPACES, NODES, PODS, Object, Store

ADMIN = "admin-token"
GPU = "nvidia.com/gpu"


@dataclass
class ToyCluster:
    """Starts at once; `close` ends it with every process it runs. `tokens` are known beside ADMIN's."""

    folder: Path
    tokens: dict[str, Rights | None] = field(default_factory=dict)
    groups: bool = True

    def __post_init__(self) -> None:
        self.store = Store()
        self.kubelets = Kubelets(self.store, self.folder)
        self.controllers = Controllers(self.store)
        self._certificate, key = certificate.make(self.folder)
        self.api = ApiServer(self.store, {ADMIN: None, **self.tokens}, self.kubelets.log, groups=self.groups,
                             certificate=(self._certificate, key))
        self.store.create(NAMESPACES, "", {"metadata": {"name": "default"}})

    def close(self) -> None:
        self.api.close()
        self.controllers.close()
        self.kubelets.close()

    def access(self, token: str = ADMIN) -> Access:
        verify = ssl.create_default_context(cafile=str(self._certificate))
        return Access(self.api.url, verify, lambda _: {"Authorization": f"Bearer {token}"})

    def kubeconfig(self, token: str = ADMIN) -> Path:
        path = self.folder / "kubeconfig"
        path.write_text(f"""
apiVersion: v1
kind: Config
current-context: toy
contexts: [{{name: toy, context: {{cluster: toy, user: toy}}}}]
clusters: [{{name: toy, cluster: {{server: "{self.api.url}", certificate-authority: toy.crt}}}}]
users: [{{name: toy, user: {{token: {token}}}}}]
""")
        return path

    def add_node(self, name: str, gpus: int, labels: dict[str, str]) -> None:
        sizes = {GPU: str(gpus), "cpu": "8", "memory": "16Gi", "pods": "110"}
        self.store.create(NODES, "", {
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **labels}}, "spec": {},
            "status": {"capacity": sizes, "allocatable": dict(sizes), "addresses": [
                {"type": "InternalIP", "address": "127.0.0.1"}],
                "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "ready"}]}})

    def add_pod(self, name: str, node: str, gpus: int, *, namespace: str = "others", **meta: object) -> Object:
        """A pod of somebody else, on the node at once."""
        limits = {GPU: str(gpus)} if gpus else {}
        return self.store.create(PODS, namespace, {
            "metadata": {"name": name, **meta}, "status": {"phase": "Running"},
            "spec": {"nodeName": node, "containers": [
                {"name": "main", "image": "pause", "resources": {"limits": limits, "requests": limits}}]}})
