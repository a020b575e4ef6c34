"""Airflow accepts the provider's description, and everything it names exists."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from collections.abc import Iterator
from importlib.resources import files

import jsonschema
import pytest

from airflow_gangline.get_provider_info import get_provider_info


def _schema(name: str) -> dict[str, object]:
    return json.loads((files("airflow") / name).read_text())


def test_fits_airflows_schema() -> None:
    info = get_provider_info()
    jsonschema.validate(info, _schema("provider_info.schema.json"))
    assert info["package-name"] == "gangline"  # Airflow refuses any name but the distribution's


def _named() -> Iterator[str]:
    info = get_provider_info()
    for group in ("operators", "hooks", "triggers"):
        for entry in info[group]:
            yield from entry["python-modules"]
    yield from info["extra-links"]
    yield from (entry["hook-class-name"] for entry in info["connection-types"])


@pytest.mark.parametrize("name", list(_named()))
def test_what_it_names_exists(name: str) -> None:
    module, _, attribute = name.rpartition(".")
    if attribute[0].isupper():
        assert hasattr(importlib.import_module(module), attribute)
    else:
        importlib.import_module(name)


def test_reading_it_imports_nothing() -> None:
    code = ("import sys; import airflow_gangline; before = set(sys.modules); "
            "from airflow_gangline.get_provider_info import get_provider_info; get_provider_info(); "
            "print(sorted(set(sys.modules) - before))")
    out = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert out.strip() == "['airflow_gangline.get_provider_info']"


def test_the_connection_form_is_the_hooks() -> None:
    from airflow_gangline.hooks import GanglineHook

    (form,) = get_provider_info()["connection-types"]
    assert form["connection-type"] == GanglineHook.conn_type
    assert form["hook-name"] == GanglineHook.hook_name
    assert form["hook-class-name"] == f"{GanglineHook.__module__}.{GanglineHook.__qualname__}"
