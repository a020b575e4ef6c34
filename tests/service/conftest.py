from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from service_world import World, check_invariants, fresh_store


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A world whose invariants are checked when the test is over."""
    made = World(fresh_store(), tmp_path / "volumes")
    yield made
    check_invariants(made.store)
