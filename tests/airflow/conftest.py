"""Airflow configures itself when it is first imported, so its home is chosen here, before any import."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from gangline.client import Client

_FLEET = """
pools:
  - {name: cpu, engine: local, gpu: "cpu:4", min: 2, max: 2}
"""
HOME = Path(tempfile.mkdtemp(prefix="gl-af-"))
atexit.register(shutil.rmtree, HOME, ignore_errors=True)
DAGS = HOME / "dags"
PLUGINS = HOME / "plugins"
DAGS.mkdir()
PLUGINS.mkdir()
os.environ.update({
    "AIRFLOW_HOME": str(HOME),
    "AIRFLOW__CORE__DAGS_FOLDER": str(DAGS),
    "AIRFLOW__CORE__PLUGINS_FOLDER": str(PLUGINS),
    "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
    "AIRFLOW__CORE__EXECUTOR": "LocalExecutor",
    "AIRFLOW__CORE__PARALLELISM": "4",
    "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{HOME}/airflow.db",
    "AIRFLOW__LOGGING__BASE_LOG_FOLDER": str(HOME / "logs"),
    "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
    "GANGLINE_HOME": str(HOME / "gangline"),
})
os.environ.pop("GANGLINE_URL", None)


@pytest.fixture(scope="session")
def airflow_db() -> Path:
    """A migrated metadata database; the home it lies in."""
    subprocess.run([sys.executable, "-m", "airflow", "db", "migrate"], check=True, capture_output=True,
                   env=child_environ(), timeout=120)
    return HOME


@pytest.fixture(scope="session", autouse=True)
def _end_the_embedded_server() -> Iterator[None]:
    """Whatever test started the embedded server of this session's home, none outlives the session."""
    yield
    from gangline.client import connect
    from gangline.model.errors import GanglineError, Unavailable

    home = HOME / "gangline"
    try:
        with connect(home=home, start=False) as client:
            client.stop(force=True)
    except Unavailable:
        pass  # no test needed one
    except GanglineError:
        _kill_recorded(home)
        raise


def _kill_recorded(home: Path) -> None:
    for record in (home / "server.json", *home.glob("nodes/*/supervisor.json")):
        with contextlib.suppress(OSError, ValueError):
            os.kill(int(json.loads(record.read_text())["pid"]), signal.SIGKILL)


def child_environ() -> dict[str, str]:
    """The environment for Airflow's own processes: they import this very source tree."""
    import airflow_gangline
    import gangline.model

    roots = [str(Path(airflow_gangline.__file__).parents[1]), str(Path(gangline.model.__file__).parents[2])]
    inherited = [str(Path(p).resolve()) for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(dict.fromkeys(roots + inherited + _metadata()))}


def _metadata() -> list[str]:
    """Where Airflow finds the provider's entry point: nowhere new, unless this tree was never installed."""
    try:
        distribution("gangline")
    except PackageNotFoundError:
        folder = HOME / "metadata"
        written = folder / "gangline-source.dist-info"
        if not written.exists():
            import gangline

            project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
            written.mkdir(parents=True)
            (written / "METADATA").write_text(
                f"Metadata-Version: 2.1\nName: gangline\nVersion: {gangline.__version__}\n")
            (written / "entry_points.txt").write_text("\n".join(
                f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in found.items())
                for group, found in project["entry-points"].items()))
        return [str(folder)]
    return []


@pytest.fixture(scope="session")
def client() -> Iterator[Client]:
    """The session's embedded server, with two nodes of four processor slots."""
    from gangline.client import connect

    home = HOME / "gangline"
    home.mkdir(exist_ok=True)
    (home / "fleet.yaml").write_text(_FLEET)
    with connect(home=home) as found:
        yield found
