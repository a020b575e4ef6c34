"""Gangline for Apache Airflow: gangs of GPU nodes as deferrable tasks.

The names below are loaded when first used, so that importing the package costs a DAG file nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow_gangline.hooks import GanglineHook
    from airflow_gangline.operators import GangOperator
    from airflow_gangline.triggers import GangTrigger

_MODULE_OF = {
    "GangOperator": "airflow_gangline.operators",
    "GangTrigger": "airflow_gangline.triggers",
    "GanglineHook": "airflow_gangline.hooks",
}

__all__ = ["GangOperator", "GangTrigger", "GanglineHook"]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'airflow_gangline' has no attribute {name!r}")
    return getattr(import_module(_MODULE_OF[name]), name)
