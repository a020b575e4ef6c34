"""How the API server is found, and who we are there."""

from __future__ import annotations

import base64
import json
import ssl
import stat
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from gangline.engines.kubernetes.access import find_access, from_kubeconfig
from gangline.model.engine import Kubernetes
from gangline.model.errors import Rejected, Unavailable

SETTINGS = Kubernetes(image="x")


def kubeconfig(folder: Path, user: dict[str, Any], cluster: dict[str, Any] | None = None) -> Path:
    path = folder / "config"
    path.write_text(yaml.safe_dump({
        "current-context": "one",
        "contexts": [{"name": "one", "context": {"cluster": "c", "user": "u"}},
                     {"name": "two", "context": {"cluster": "d", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": "https://one:6443", **(cluster or {})}},
                     {"name": "d", "cluster": {"server": "https://two/", "insecure-skip-tls-verify": True}}],
        "users": [{"name": "u", "user": user}]}))
    return path


def plugin(folder: Path, output: str, code: int = 0) -> Path:
    """A credential plugin that says this, and counts how often it was asked."""
    path = folder / "plugin"
    path.write_text(f"#!{sys.executable}\nimport os, sys\nopen({str(folder / 'calls')!r}, 'a').write("
                    f"os.environ['KUBERNETES_EXEC_INFO'] + os.environ['EXTRA'] + sys.argv[1] + '\\n')\n"
                    f"sys.stderr.write('log in first')\nprint({output!r})\nsys.exit({code})\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def exec_user(path: Path) -> dict[str, Any]:
    return {"exec": {"command": str(path), "args": ["$(touch x)"], "env": [{"name": "EXTRA", "value": "y"}],
                     "apiVersion": "client.authentication.k8s.io/v1beta1"}}


def test_a_kubeconfig_names_server_and_token(tmp_path: Path) -> None:
    access = from_kubeconfig(kubeconfig(tmp_path, {"token": "secret"}), None)
    assert access.server == "https://one:6443"
    assert access.headers(False) == {"Authorization": "Bearer secret"}
    assert access.verify.verify_mode is ssl.CERT_REQUIRED


def test_another_context_may_be_named(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path, {"token": "secret"})
    access = find_access(Kubernetes(image="x", kubeconfig=str(path), context="two"), {})
    assert access.server == "https://two"
    assert access.verify.verify_mode is ssl.CERT_NONE
    with pytest.raises(Rejected, match="no context 'three'"):
        from_kubeconfig(path, "three")


def test_a_token_file_is_read_again_when_the_token_is_refused(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("first\n")
    access = from_kubeconfig(kubeconfig(tmp_path, {"tokenFile": "token"}), None)
    assert access.headers(False) == {"Authorization": "Bearer first"}
    (tmp_path / "token").write_text("second\n")
    assert access.headers(False) == {"Authorization": "Bearer first"}
    assert access.headers(True) == {"Authorization": "Bearer second"}


def test_a_plugin_is_asked_until_its_token_runs_out(tmp_path: Path) -> None:
    ends = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 3600))
    told = json.dumps({"kind": "ExecCredential", "status": {"token": "t", "expirationTimestamp": ends}})
    access = from_kubeconfig(kubeconfig(tmp_path, exec_user(plugin(tmp_path, told))), None)
    for _ in range(3):
        assert access.headers(False) == {"Authorization": "Bearer t"}
    call, = (tmp_path / "calls").read_text().splitlines()
    assert '"interactive": false' in call
    assert call.endswith("y$(touch x)")
    access.headers(True)
    assert len((tmp_path / "calls").read_text().splitlines()) == 2


@pytest.mark.parametrize(("output", "code", "words"), [
    ("", 1, "log in first"), ("no json", 0, "no credentials"), ('{"status": {}}', 0, "no credentials")])
def test_a_plugin_that_gives_nothing_is_told_in_its_words(tmp_path: Path, output: str, code: int, words: str) -> None:
    access = from_kubeconfig(kubeconfig(tmp_path, exec_user(plugin(tmp_path, output, code))), None)
    with pytest.raises(Unavailable, match=words):
        access.headers(False)


def test_a_plugin_that_is_missing_is_told(tmp_path: Path) -> None:
    access = from_kubeconfig(kubeconfig(tmp_path, exec_user(tmp_path / "none")), None)
    with pytest.raises(Unavailable, match="no credentials"):
        access.headers(False)


@pytest.mark.parametrize(("user", "cluster", "words"), [
    ({"auth-provider": {"name": "gcp"}}, {}, "auth-provider"), ({"username": "me", "password": "x"}, {}, "username"),
    ({}, {"certificate-authority-data": "%%%"}, "certificate-authority"),
    ({}, {"certificate-authority-data": base64.b64encode(b"nothing").decode()}, "certificate"),
    ({}, {"server": "ftp://x"}, "no server address"),
    ({"client-certificate-data": base64.b64encode(b"x").decode(), "client-key-data": base64.b64encode(b"y").decode()},
     {}, "certificate"),
])
def test_what_cannot_be_used_is_refused(tmp_path: Path, user: dict[str, Any], cluster: dict[str, Any],
                                        words: str) -> None:
    with pytest.raises(Rejected, match=words):
        from_kubeconfig(kubeconfig(tmp_path, user, cluster), None)


@pytest.mark.parametrize("text", ["[", "- a", "contexts: 3"])
def test_a_file_that_is_no_kubeconfig_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "config").write_text(text)
    with pytest.raises(Rejected):
        from_kubeconfig(tmp_path / "config", None)
    with pytest.raises(Rejected, match="cannot be read"):
        from_kubeconfig(tmp_path / "none", None)


def test_in_a_pod_it_is_the_service_account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "token").write_text("of the pod")
    monkeypatch.setattr(ssl, "create_default_context", lambda cafile: ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
    env = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443", "KUBECONFIG": "/nowhere"}
    access = find_access(SETTINGS, env, tmp_path)
    assert access.server == "https://[fd00::1]:443"
    assert access.headers(False) == {"Authorization": "Bearer of the pod"}


def test_else_it_is_the_first_file_of_the_variable(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path, {"token": "secret"})
    assert find_access(SETTINGS, {"KUBECONFIG": f"/nowhere:{path}"}, tmp_path).server == "https://one:6443"
    with pytest.raises(Rejected, match="nothing says"):
        find_access(SETTINGS, {}, tmp_path)
