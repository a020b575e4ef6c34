from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from service_world import World, check_invariants

from gangline.store import Store


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A world whose invariants are checked when the test is over."""
    store = Store.memory()
    made = World(store, tmp_path / "volumes")
    yield made
    check_invariants(store)
    store.close()
