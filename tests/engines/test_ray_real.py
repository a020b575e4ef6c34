"""The Ray engine against a real Ray cluster."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from conformance import Conformance, undo  # noqa: F401 - a fixture
from hub import Hub
from ray_rig import RayRig, RayServers, ray_servers

servers = pytest.fixture(scope="module", name="servers")(ray_servers)


@pytest.fixture(scope="module")
def rig(servers: RayServers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayRig]:
    home = tmp_path_factory.mktemp("ray", numbered=True)
    rig = RayRig(servers, Hub(), Path(home))
    yield rig
    rig.close()
    rig.hub.close()


class TestRay(Conformance):
    """What every engine promises."""
