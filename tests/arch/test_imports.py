"""What user code and pipeline files import loads no server, no trainer and no orchestrator.

That `import gangline` alone loads nothing at all, and the client no HTTP library, is tested beside them.
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

HEAVY = {"airflow", "alembic", "dagster", "fastapi", "sqlalchemy", "torch", "uvicorn"}


@pytest.mark.parametrize("module", ["gangline.client", "gangline.client.decorator", "gangline.model.spec",
                                    "gangline.runtime"])
def test_importing_it_loads_nothing_heavy(module: str) -> None:
    code = f"import json, sys, {module}; print(json.dumps(sorted({{name.partition('.')[0] for name in sys.modules}})))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(json.loads(done.stdout))
    assert "gangline" in loaded
    assert loaded & HEAVY == set()
