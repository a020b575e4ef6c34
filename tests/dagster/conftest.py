from collections.abc import Iterator

import pytest
from fleet_world import World, fleet_world


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    with fleet_world(monkeypatch) as made:
        yield made
