"""Nodes that run the one container of each pod as a process of this machine."""

from __future__ import annotations

import base64
import contextlib
import os
import re
import shutil
import signal
import subprocess
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kube_toy.store import NODES, PODS, SECRETS, Object, Problem, Store

MARK = "TOY_KUBELET_POD"  # what is left of a container is found by it; ranks inherit it
_KEPT_ENV = ("PATH", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "LANG")


@dataclass
class _Running:
    process: subprocess.Popen[bytes]
    node: str
    timer: threading.Timer | None = None
    told: bool = False


@dataclass
class Kubelets:
    """All nodes of the cluster. A node that is `off` runs nothing and reports nothing."""

    store: Store
    folder: Path
    off: set[str] = field(default_factory=set)
    _running: dict[str, _Running] = field(default_factory=dict)
    _closing: bool = False

    def __post_init__(self) -> None:
        self._thread = threading.Thread(target=self._run, name="toy-kubelets", daemon=True)
        self._thread.start()

    def close(self) -> None:
        with self.store.changed:
            self._closing = True
            self.store.changed.notify_all()
        self._thread.join()
        for uid in list(self._running):
            kill(uid)

    def power_off(self, node: str) -> None:
        """The node loses power: the cluster finds out by its silence, and taints it."""
        with self.store.changed:
            self.off.add(node)
            for uid, running in list(self._running.items()):
                if running.node == node:
                    kill(uid)
            self._report(node, "Unknown", "Kubelet stopped posting node status.",
                         [{"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"},
                          {"key": "node.kubernetes.io/unreachable", "effect": "NoSchedule"}])

    def power_on(self, node: str) -> None:
        """It comes back: what ran there has failed."""
        with self.store.changed:
            self.off.discard(node)
            for pod in self.store.list(PODS):
                if pod["spec"].get("nodeName") == node and pod["metadata"]["uid"] in self._running:
                    self._over(pod, 137)
            self._report(node, "True", "kubelet is posting ready status", [])

    def log(self, pod: Object) -> str | None:
        path = self._folder(pod) / "log"
        return path.read_text(errors="replace") if path.exists() else None

    def _report(self, node: str, ready: str, message: str, taints: list[Object]) -> None:
        with self.store.changing(NODES, self.store.get(NODES, "", node)) as held:
            kept = [entry for entry in held["status"]["conditions"] if entry["type"] != "Ready"]
            held["status"]["conditions"] = [*kept, {"type": "Ready", "status": ready, "reason": "NodeStatus",
                                                    "message": message}]
            others = [taint for taint in held["spec"].get("taints", ()) if "unreachable" not in taint["key"]]
            held["spec"]["taints"] = others + taints

    def _run(self) -> None:
        store = self.store
        while not self._closing:
            with store.changed:
                version = store.version
                for pod in store.list(PODS):
                    if pod["spec"].get("nodeName") and pod["spec"]["nodeName"] not in self.off:
                        self._sync(pod)
                if version == store.version and not self._closing:
                    store.changed.wait()

    def _sync(self, pod: Object) -> None:
        uid, meta = pod["metadata"]["uid"], pod["metadata"]
        running = self._running.get(uid)
        over = pod["status"].get("phase") in ("Succeeded", "Failed")
        if "deletionTimestamp" in meta:
            if running is None or over:
                if not over:
                    self._over(pod, 143)
                self.store.remove(PODS, pod)
            else:
                self._end(uid, running, meta["deletionGracePeriodSeconds"])
        elif running is None and not over:
            self._start(pod)

    def _end(self, uid: str, running: _Running, grace_s: int) -> None:
        if not running.told:
            running.told = True
            with contextlib.suppress(ProcessLookupError):
                running.process.send_signal(signal.SIGTERM)
        if running.timer is None or grace_s < running.timer.interval:
            if running.timer is not None:
                running.timer.cancel()
            running.timer = threading.Timer(grace_s, kill, (uid,))
            running.timer.daemon = True
            running.timer.start()

    def _start(self, pod: Object) -> None:
        with self.store.changing(PODS, pod) as held:
            held["status"] |= {"phase": "Running", "podIP": "127.0.0.1"}
        if pod["spec"]["containers"][0]["image"] == "pause":
            return  # somebody else's, which only holds its GPUs
        folder = self._folder(pod)
        folder.mkdir(parents=True)
        try:
            argv, env = self._command(pod, folder)
        except Problem as problem:  # no Secret, no start: a kubelet would try again for ever
            with self.store.changing(PODS, pod) as held:
                held["status"] |= {"phase": "Pending", "containerStatuses": [
                    {"name": "supervisor", "state": {"waiting": {"reason": "CreateContainerConfigError",
                                                                 "message": problem.message}}}]}
            shutil.rmtree(folder)
            return
        with open(folder / "log", "wb") as log:
            process = subprocess.Popen(argv, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=folder,
                                       start_new_session=True)
        self._running[pod["metadata"]["uid"]] = _Running(process, pod["spec"]["nodeName"])
        threading.Thread(target=self._wait, args=(pod, process), daemon=True).start()

    def _command(self, pod: Object, folder: Path) -> tuple[list[str], dict[str, str]]:
        """The container's command and environment, its mounts of Secrets being folders of this machine."""
        container, space = pod["spec"]["containers"][0], pod["metadata"]["namespace"]
        mounts = {}
        for volume in pod["spec"].get("volumes", ()):
            if "secret" in volume:
                target = folder / volume["name"]
                target.mkdir()
                for key, value in self._secret(space, volume["secret"]["secretName"]).items():
                    (target / key).write_text(value)
                    (target / key).chmod(0o440)
                where = next(mount for mount in container["volumeMounts"] if mount["name"] == volume["name"])
                mounts[where["mountPath"]] = str(target)
        env = {key: os.environ[key] for key in _KEPT_ENV if key in os.environ}
        if search := env.get("PYTHONPATH"):
            env["PYTHONPATH"] = os.pathsep.join(map(os.path.abspath, search.split(os.pathsep)))
        env |= {"KUBERNETES_SERVICE_HOST": "10.0.0.1", MARK: pod["metadata"]["uid"]}
        for source in container.get("envFrom", ()):
            env |= self._secret(space, source["secretRef"]["name"])
        known = {"spec.nodeName": pod["spec"]["nodeName"], "status.podIP": "127.0.0.1"}
        own = {entry["name"]: entry["value"] if "value" in entry else known[entry["valueFrom"]["fieldRef"]["fieldPath"]]
               for entry in container["env"]}
        argv = [expanded(argument, own) for argument in container["command"]]
        for mount, target in mounts.items():
            argv = [argument.replace(mount, str(target), 1) if argument.startswith(mount) else argument
                    for argument in argv]
        return argv, env | own

    def _secret(self, namespace: str, name: str) -> dict[str, str]:
        data: dict[str, Any] = self.store.get(SECRETS, namespace, name)["data"]
        return {key: base64.b64decode(value).decode() for key, value in data.items()}

    def _wait(self, pod: Object, process: subprocess.Popen[bytes]) -> None:
        code = process.wait()
        kill(pod["metadata"]["uid"])  # a container's processes end with its first one
        with self.store.changed:
            if pod["spec"]["nodeName"] not in self.off:
                self._over(pod, code)

    def _over(self, pod: Object, code: int) -> None:
        running = self._running.pop(pod["metadata"]["uid"], None)
        if running is not None and running.timer is not None:
            running.timer.cancel()
        with self.store.changing(PODS, pod) as held:
            if held:
                held["status"] |= {"phase": "Failed" if code else "Succeeded", "containerStatuses": [
                    {"name": "supervisor", "state": {"terminated": {"exitCode": code if code >= 0 else 128 - code,
                                                                    "reason": "Error" if code else "Completed"}}}]}

    def _folder(self, pod: Object) -> Path:
        return self.folder / pod["metadata"]["uid"]


def kill(uid: str) -> None:
    """Every process of the container, as its cgroup would be ended."""
    marker = f"{MARK}={uid}".encode()
    while found := [folder for folder in Path("/proc").glob("[0-9]*") if _holds(folder, marker)]:
        for folder in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(folder.name), signal.SIGKILL)


def _holds(folder: Path, marker: bytes) -> bool:
    try:
        return (marker in (folder / "environ").read_bytes().split(b"\0")
                and "\nState:\tZ" not in (folder / "status").read_text())
    except OSError:
        return False


def expanded(argument: str, env: dict[str, str]) -> str:
    """`$(NAME)` by its value if it has one, `$$` as `$`, all else as it is: the rules of container commands."""
    def of(match: re.Match[str]) -> str:
        return "$" if match[0] == "$$" else env.get(match[1], match[0])
    return re.sub(r"\$\$|\$\(([^)]*)\)", of, argument)
