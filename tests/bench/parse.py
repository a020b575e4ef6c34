"""What the Airflow provider adds to the parsing of a DAG file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

from lab import Lab
from table import Row

ABOUT = "modules and time that importing the Airflow operators and triggers adds"
MOST_MODULES = 60
_CODE = """
import json, sys, time
began_s = time.perf_counter()
import airflow.sdk, airflow.triggers.base
from airflow.sdk import BaseOperator, BaseOperatorLink  # loaded on first use
before, base_s = set(sys.modules), time.perf_counter()
import airflow_gangline.operators, airflow_gangline.triggers
done_s = time.perf_counter()
print(json.dumps({"added": len(set(sys.modules) - before), "base_ms": 1000 * (base_s - began_s),
                  "added_ms": 1000 * (done_s - base_s)}))
"""


def run(lab: Lab) -> list[Row]:
    found = []
    for turn in range(lab.rounds):
        found.append(_parse(lab))
        lab.say(f"parse: round {turn + 1} of {lab.rounds}: {found[-1]['added_ms']:.0f} ms added")
    against = "airflow.sdk + airflow.triggers.base"
    return [
        Row(what="modules the Airflow operators and triggers add", unit="modules", most=MOST_MODULES,
            ours=tuple(one["added"] for one in found)),
        Row(what="and the time of their import", unit="ms", ours=tuple(one["added_ms"] for one in found),
            against=against, other=tuple(one["base_ms"] for one in found)),
    ]


def _parse(lab: Lab) -> dict[str, Any]:
    """One fresh interpreter; it imports Airflow first, so each is its own comparison."""
    env = os.environ | {"AIRFLOW_HOME": str(lab.folder / "airflow")}
    done = subprocess.run([sys.executable, "-c", _CODE], check=True, capture_output=True, text=True, env=env)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found
