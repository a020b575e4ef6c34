"""Gangline: many GPU nodes at once, from a pipeline step, on your own fleet.

Importing this package loads nothing else: each public name is fetched when it is first used, so a
pipeline definition or a rank pays only for what it touches.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gangline.client import AsyncClient, Client, aconnect, connect
    from gangline.client.decorator import Clustered, clustered
    from gangline.client.run import Run
    from gangline.model.errors import (
        Bug,
        Conflict,
        GangFailed,
        GanglineError,
        NotFound,
        Rejected,
        Superseded,
        Unavailable,
    )
    from gangline.model.spec import GangSpec
    from gangline.runtime.checkpoint import load_checkpoint, save_checkpoint
    from gangline.runtime.info import ClusterInfo, cluster_info
    from gangline.runtime.progress import report_progress
    from gangline.runtime.stopping import stop_requested
    from gangline.runtime.versions import new_version, resume_path

    __version__: str

_HOME_OF = {
    **dict.fromkeys(("AsyncClient", "Client", "aconnect", "connect"), "gangline.client"),
    **dict.fromkeys(("Clustered", "clustered"), "gangline.client.decorator"),
    "Run": "gangline.client.run",
    **dict.fromkeys(("Bug", "Conflict", "GangFailed", "GanglineError", "NotFound", "Rejected", "Superseded",
                     "Unavailable"), "gangline.model.errors"),
    "GangSpec": "gangline.model.spec",
    **dict.fromkeys(("load_checkpoint", "save_checkpoint"), "gangline.runtime.checkpoint"),
    **dict.fromkeys(("ClusterInfo", "cluster_info"), "gangline.runtime.info"),
    "report_progress": "gangline.runtime.progress",
    "stop_requested": "gangline.runtime.stopping",
    **dict.fromkeys(("new_version", "resume_path"), "gangline.runtime.versions"),
}

__all__ = [
    "AsyncClient", "Bug", "Client", "ClusterInfo", "Clustered", "Conflict", "GangFailed", "GangSpec",
    "GanglineError", "NotFound", "Rejected", "Run", "Superseded", "Unavailable", "__version__", "aconnect",
    "cluster_info", "clustered", "connect", "load_checkpoint", "new_version", "report_progress",
    "resume_path", "save_checkpoint", "stop_requested",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        value: Any = _version()
    elif name in _HOME_OF:
        value = getattr(import_module(_HOME_OF[name]), name)
    else:
        raise AttributeError(f"module 'gangline' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version  # slow to import, rarely needed

    try:
        return version("gangline")
    except PackageNotFoundError:  # run from a source tree that was never installed
        return "0.1.0+source"
