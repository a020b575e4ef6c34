"""The conformance suite on the toy cluster: real supervisors, and no more rights than are shipped."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from conformance import Conformance, undo
from hub import Hub
from kube_rig import KubeRig

pytestmark = pytest.mark.slow

__all__ = ["undo"]  # the suite's own fixture


@pytest.fixture(scope="module")
def hub() -> Iterator[Hub]:
    hub = Hub()
    yield hub
    hub.close()


class TestKubernetesJobs(Conformance):
    """As Indexed Jobs, in a cluster whose scheduler knows of gangs."""

    @pytest.fixture(scope="class")
    @classmethod
    def rig(cls, tmp_path_factory: pytest.TempPathFactory, hub: Hub) -> Iterator[KubeRig]:
        rig = KubeRig(Path(tmp_path_factory.mktemp("jobs")), hub)
        yield rig
        rig.close()


@pytest.mark.slow
class TestKubernetesJobSets(Conformance):
    """The same as JobSets, in which each index has its node."""

    @pytest.fixture(scope="class")
    @classmethod
    def rig(cls, tmp_path_factory: pytest.TempPathFactory, hub: Hub) -> Iterator[KubeRig]:
        rig = KubeRig(Path(tmp_path_factory.mktemp("jobsets")), hub, job_kind="jobset")
        yield rig
        rig.close()
