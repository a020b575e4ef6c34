"""A whole Airflow on this machine: api-server, scheduler, dag-processor and triggerer as processes."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import httpx

COMPONENTS = ("api-server", "dag-processor", "scheduler", "triggerer")
READY_S = 300.0  # seconds on an idle machine; the tests share theirs
STOP_S = 5.0
STATE_S = 240.0
LOOK_AGAIN_S = 0.2

T = TypeVar("T")


@dataclass
class Deployment:
    """Runs Airflow's processes and speaks to its API."""

    home: Path
    environ: dict[str, str]
    port: int
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    _http: httpx.Client | None = None

    def start(self, component: str) -> None:
        """Start one component in a session of its own, so that all its children end with it."""
        port = ["--port", str(self.port)] if component == "api-server" else []
        with open(self.home / f"{component}.out", "ab") as out:
            self.processes[component] = subprocess.Popen(
                [sys.executable, "-m", "airflow", component, *port], stdin=subprocess.DEVNULL, stdout=out,
                stderr=out, env=self.environ, cwd="/", start_new_session=True)

    def kill(self, component: str) -> None:
        """End a component and everything it started, as a crash would."""
        process = self.processes.pop(component)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(15)

    def stop(self) -> None:
        for process in self.processes.values():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
        deadline = time.monotonic() + STOP_S
        for process in self.processes.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, deadline - time.monotonic()))
        for component in list(self.processes):
            self.kill(component)
        if self._http is not None:
            self._http.close()

    def wait_ready(self) -> None:
        wait_for(self._healthy, READY_S, lambda: f"Airflow is not healthy: {self._said()}")
        token = httpx.get(f"{self._base}/auth/token", timeout=30).json()["access_token"]
        self._http = httpx.Client(base_url=f"{self._base}/api/v2", timeout=30,
                                  headers={"Authorization": f"Bearer {token}"})

    def wait_dag(self, dag_id: str) -> None:
        wait_for(lambda: self._get(f"/dags/{dag_id}").status_code == 200, READY_S,
                 lambda: f"{dag_id} was not parsed: {self._get('/importErrors').text}")

    def run(self, dag_id: str, run_id: str) -> None:
        self._send("POST", f"/dags/{dag_id}/dagRuns", {"dag_run_id": run_id, "logical_date": None})

    def task(self, dag_id: str, run_id: str, task_id: str) -> dict[str, Any]:
        found: dict[str, Any] = self._get(f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}").json()
        return found

    def wait_state(self, dag_id: str, run_id: str, task_id: str, state: str) -> None:
        """Returns once the task instance is in the state."""
        def now() -> Any:
            return self.task(dag_id, run_id, task_id).get("state")

        wait_for(lambda: now() == state, STATE_S, lambda: f"{task_id} is {now()}: {self._said()}")

    def xcom(self, dag_id: str, run_id: str, task_id: str, key: str = "return_value") -> Any:
        path = f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}/xcomEntries/{key}"
        return self._get(path, deserialize="true").json().get("value")

    def links(self, dag_id: str, run_id: str, task_id: str) -> dict[str, str | None]:
        found: dict[str, str | None] = self._get(
            f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}/links").json()["extra_links"]
        return found

    def mark(self, dag_id: str, run_id: str, task_id: str, state: str) -> None:
        self._send("PATCH", f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}", {"new_state": state})

    def clear(self, dag_id: str, run_id: str, task_id: str) -> None:
        self._send("POST", f"/dags/{dag_id}/clearTaskInstances",
                   {"dry_run": False, "only_failed": False, "dag_run_id": run_id, "task_ids": [task_id]})

    def asset_events(self, dag_id: str, run_id: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._get("/assets/events", source_dag_id=dag_id,
                                                source_run_id=run_id).json()["asset_events"]
        return found

    @property
    def _base(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def _get(self, path: str, **query: str) -> httpx.Response:
        assert self._http is not None
        return self._http.get(path, params=query)

    def _send(self, method: str, path: str, body: dict[str, Any]) -> None:
        assert self._http is not None
        response = self._http.request(method, path, json=body)
        assert response.is_success, f"{method} {path}: {response.status_code} {response.text}"

    def _healthy(self) -> bool:
        for component, process in self.processes.items():
            assert process.poll() is None, f"{component} ended: {self._said()}"
        try:
            parts = httpx.get(f"{self._base}/api/v2/monitor/health", timeout=10).json()
        except (httpx.TransportError, json.JSONDecodeError):
            return False
        return all(part["status"] == "healthy" for part in parts.values())

    def _said(self) -> str:
        tails = []
        for component in COMPONENTS:
            with contextlib.suppress(OSError):
                tail = (self.home / f"{component}.out").read_text(errors="replace").splitlines()[-6:]
                tails.append(f"--- {component}\n" + "\n".join(tail))
        return "\n".join(tails)


def wait_for(look: Callable[[], T | None], within_s: float, why: Callable[[], str]) -> T:
    """What `look` returns once it is true; AssertionError with `why` when that takes too long."""
    deadline = time.monotonic() + within_s
    while not (found := look()):
        assert time.monotonic() < deadline, why()
        time.sleep(LOOK_AGAIN_S)
    return found


@contextlib.contextmanager
def running(home: Path, environ: dict[str, str]) -> Iterator[Deployment]:
    """A whole deployment, ready for work; ended with everything it started."""
    port = _free_port()
    deployment = Deployment(home=home, port=port, environ={**environ, **_settings(port)})
    try:
        for component in COMPONENTS:
            deployment.start(component)
        deployment.wait_ready()
        yield deployment
    finally:
        deployment.stop()


def _settings(port: int) -> dict[str, str]:
    return {
        "AIRFLOW__API__HOST": "127.0.0.1",
        "AIRFLOW__API__PORT": str(port),
        "AIRFLOW__API__WORKERS": "1",
        "AIRFLOW__API__BASE_URL": f"http://127.0.0.1:{port}",
        "AIRFLOW__API_AUTH__JWT_SECRET": "only-for-tests-on-loopback-0123456789abcdef",
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"http://127.0.0.1:{port}/execution/",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "True",
        "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
        "AIRFLOW__SCHEDULER__SCHEDULER_HEARTBEAT_SEC": "1",
        "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "10",
        "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL": "2",
        "AIRFLOW__TRIGGERER__JOB_HEARTBEAT_SEC": "1",
        "AIRFLOW__TRIGGERER__TRIGGERER_HEALTH_CHECK_THRESHOLD": "5",
        "AIRFLOW__WORKERS__MIN_HEARTBEAT_INTERVAL": "1",
        "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": "5",
        "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "5",
    }


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
