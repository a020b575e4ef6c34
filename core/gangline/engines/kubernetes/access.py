"""How the API server is reached and who we are there: a kubeconfig, or the service account of our own pod."""

from __future__ import annotations

import base64
import binascii
import json
import os
import ssl
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml

from gangline.model.engine import Kubernetes
from gangline.model.errors import Rejected, Unavailable

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_PLUGIN_S = 30.0
_TOKEN_S = 60.0  # the kubelet renews token files long before they run out, so reading each minute is often enough
_EARLY_S = 60.0  # a token is renewed so long before it runs out


@dataclass(frozen=True, slots=True)
class Access:
    """Where the API server is, whom to believe that it is the one, and the headers that say who we are.

    `headers(anew)` may read a file or run a credential plugin; `anew` says that the last ones were refused.
    """

    server: str
    verify: ssl.SSLContext
    headers: Callable[[bool], Mapping[str, str]]


def find_access(settings: Kubernetes, env: Mapping[str, str] = os.environ,
                service_account: Path = SERVICE_ACCOUNT) -> Access:
    """Access by the pool's kubeconfig, else by our own pod's service account, else by KUBECONFIG.

    Raises:
        Rejected: there is none of them, or it cannot be used.
    """
    if settings.kubeconfig is not None:
        return from_kubeconfig(Path(settings.kubeconfig), settings.context)
    host, port = env.get("KUBERNETES_SERVICE_HOST"), env.get("KUBERNETES_SERVICE_PORT", "443")
    if host and (service_account / "token").exists():
        verify = ssl.create_default_context(cafile=str(service_account / "ca.crt"))
        return Access(f"https://{f'[{host}]' if ':' in host else host}:{port}", verify,
                      _Renewed(lambda: _file_token(service_account / "token")))
    named = [Path(path) for path in env.get("KUBECONFIG", "").split(os.pathsep) if path]
    if named:
        return from_kubeconfig(next((path for path in named if path.exists()), named[0]), settings.context)
    raise Rejected("nothing says how to reach the API server", field="kubernetes.kubeconfig",
                   fix="name a kubeconfig in the pool, set KUBECONFIG, or run the server in a pod of the cluster")


def from_kubeconfig(path: Path, context: str | None) -> Access:
    """Access by one context of a kubeconfig, its current one unless named.

    Raises:
        Rejected: it cannot be read, names nothing of the kind, or wants a way of access that is not supported.
    """
    config = _Config(path)
    chosen = config.entry("contexts", "context", context or config.whole.get("current-context"))
    cluster = config.entry("clusters", "cluster", chosen.get("cluster"))
    user = config.entry("users", "user", chosen["user"]) if chosen.get("user") else {}
    server = cluster.get("server")
    if not isinstance(server, str) or not server.startswith(("https://", "http://")):
        raise config.refuse(f"its cluster {chosen.get('cluster')!r} has no server address")
    for given in sorted({"auth-provider", "username"} & user.keys()):
        raise config.refuse(f"its user has {given}, which is not supported", "use a token, a certificate or exec")
    return Access(server.rstrip("/"), config.verify(cluster, user), _headers(config, user))


@dataclass(frozen=True, slots=True)
class _Config:
    path: Path
    whole: dict[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        try:
            whole = yaml.safe_load(self.path.read_text())
        except OSError as exc:
            raise self.refuse(f"it cannot be read: {exc.strerror}") from None
        except (yaml.YAMLError, UnicodeDecodeError):
            raise self.refuse("it is not YAML") from None
        if not isinstance(whole, dict):
            raise self.refuse("it is not a kubeconfig")
        object.__setattr__(self, "whole", whole)

    def refuse(self, text: str, fix: str = "see it with: kubectl config view") -> Rejected:
        return Rejected(text, field=str(self.path), fix=fix)

    def entry(self, group: str, kind: str, name: object) -> dict[str, Any]:
        entries = self.whole.get(group)
        for entry in entries if isinstance(entries, list) else ():
            if isinstance(entry, dict) and entry.get("name") == name and isinstance(entry.get(kind), dict):
                found: dict[str, Any] = entry[kind]
                return found
        raise self.refuse(f"it has no {kind} {name!r}")

    def content(self, part: dict[str, Any], key: str) -> str | None:
        """What a field holds, be it in the file itself (KEY-data) or in a file it names."""
        try:
            if f"{key}-data" in part:
                return base64.b64decode(part[f"{key}-data"], validate=True).decode()
            return (self.path.parent / str(part[key])).read_text() if key in part else None
        except (OSError, binascii.Error, UnicodeDecodeError) as exc:
            raise self.refuse(f"{key} cannot be read: {exc}") from None

    def verify(self, cluster: dict[str, Any], user: dict[str, Any]) -> ssl.SSLContext:
        try:
            context = ssl.create_default_context(cadata=self.content(cluster, "certificate-authority"))
            certificate, key = self.content(user, "client-certificate"), self.content(user, "client-key")
            if certificate and key:
                _load_pair(context, certificate, key)
        except ssl.SSLError as exc:
            raise self.refuse(f"a certificate in it is not usable: {exc}") from None
        if cluster.get("insecure-skip-tls-verify"):
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return context


def _load_pair(context: ssl.SSLContext, certificate: str, key: str) -> None:
    # OpenSSL reads them from files alone; these are ours alone, and gone at once.
    with tempfile.TemporaryDirectory() as folder:
        pair = Path(folder) / "pair.pem"
        pair.touch(mode=0o600)
        pair.write_text(f"{certificate}\n{key}\n")
        context.load_cert_chain(pair)


def _headers(config: _Config, user: dict[str, Any]) -> Callable[[bool], Mapping[str, str]]:
    if "exec" in user:
        return _Renewed(lambda: _plugin_token(config, user["exec"]))
    if "tokenFile" in user:
        return _Renewed(lambda: _file_token(config.path.parent / user["tokenFile"]))
    if "token" in user:
        return lambda _: {"Authorization": f"Bearer {user['token']}"}
    return lambda _: {}


class _Renewed:
    """Headers with a token that is fetched again when its time is up."""

    def __init__(self, fetch: Callable[[], tuple[str, float]]) -> None:
        self._fetch, self._lock = fetch, threading.Lock()
        self._token, self._until_s = "", 0.0

    def __call__(self, anew: bool) -> Mapping[str, str]:
        with self._lock:
            if anew or not self._token or time.time() >= self._until_s:
                self._token, self._until_s = self._fetch()
            return {"Authorization": f"Bearer {self._token}"}


def _file_token(path: Path) -> tuple[str, float]:
    try:
        return path.read_text().strip(), time.time() + _TOKEN_S
    except OSError as exc:
        raise Unavailable(f"the token of the API server cannot be read: {exc.strerror}", field=str(path)) from None


def _plugin_token(config: _Config, plugin: Mapping[str, Any]) -> tuple[str, float]:
    """A token by a credential plugin (client.authentication.k8s.io), as the clouds' kubeconfigs use them."""
    argv = [str(plugin.get("command", "")), *map(str, plugin.get("args") or ())]
    version = str(plugin.get("apiVersion", "client.authentication.k8s.io/v1"))
    info = {"apiVersion": version, "kind": "ExecCredential", "spec": {"interactive": False}}
    env = {**os.environ, "KUBERNETES_EXEC_INFO": json.dumps(info),
           **{str(entry["name"]): str(entry["value"]) for entry in plugin.get("env") or ()}}
    try:
        done = subprocess.run(argv, env=env, capture_output=True, timeout=_PLUGIN_S, stdin=subprocess.DEVNULL,
                              check=True)
        status = json.loads(done.stdout)["status"]
        token, ends = str(status["token"]), status.get("expirationTimestamp")
        until_s = datetime.fromisoformat(ends).timestamp() - _EARLY_S if ends else time.time() + _TOKEN_S
    except subprocess.CalledProcessError as exc:
        words = exc.stderr.decode(errors="replace").strip()[-500:]
        raise Unavailable(f"{argv[0]} gave no credentials: {words}", field=str(config.path)) from None
    except (OSError, subprocess.SubprocessError, ValueError, KeyError, TypeError) as exc:
        raise Unavailable(f"{argv[0]} gave no credentials: {exc}", field=str(config.path)) from None
    return token, until_s
