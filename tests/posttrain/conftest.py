import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))


@pytest.fixture
def volumes(tmp_path, monkeypatch):
    """A directory for the volumes of functions that run outside a gang; a run resumes from what is there."""
    monkeypatch.setenv("GANGLINE_LOCAL_VOLUMES", str(tmp_path / "volumes"))
    monkeypatch.setenv("GANGLINE_LOCAL_RESUME", "1")
    return tmp_path / "volumes"
