"""Parsing a DAG file that uses the provider stays cheap."""

from __future__ import annotations

import json
import subprocess
import sys

MOST_MODULES = 60
_CODE = """
import json, sys
import airflow.sdk, airflow.triggers.base
from airflow.sdk import BaseOperator, BaseOperatorLink  # loaded on first use
before = set(sys.modules)
import airflow_gangline.operators, airflow_gangline.triggers
airflow_gangline.operators.GangOperator(task_id="t", command=["true"])
print(json.dumps(sorted(set(sys.modules) - before)))
"""


def test_operators_and_triggers_load_few_modules_and_none_of_others() -> None:
    done = subprocess.run([sys.executable, "-c", _CODE], check=True, capture_output=True, text=True)
    added = json.loads(done.stdout.splitlines()[-1])
    assert len(added) <= MOST_MODULES, added
    ours = ("airflow_gangline", "gangline", *sys.stdlib_module_names)
    assert [name for name in added if name.split(".")[0] not in (*ours, "airflow")] == []
