"""The Slurm engine keeps every engine's promises, on a real Slurm."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from conformance import Conformance, undo  # noqa: F401 - a fixture
from hub import Hub
from slurm_cluster import SlurmCluster, slurm_cluster
from slurm_rig import SlurmRig

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cluster() -> Iterator[SlurmCluster]:
    with slurm_cluster() as running:
        yield running


@pytest.fixture
def rig(cluster: SlurmCluster, tmp_path: Path) -> Iterator[SlurmRig]:
    hub = Hub()
    yield SlurmRig(cluster, hub, tmp_path / "home")
    hub.close()


class TestSlurm(Conformance):
    """All of the suite."""
