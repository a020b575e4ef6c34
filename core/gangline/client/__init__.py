"""What pipelines import: the client of a server, and how to find or start one.

Importing this package loads nothing else: the names below are fetched when first used, so that a
pipeline definition does not pay for an HTTP library it may never call.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gangline.client.aio import AsyncClient
    from gangline.client.connection import aconnect, connect
    from gangline.client.http import Client

_ROOM_OF = {
    "AsyncClient": "gangline.client.aio",
    "Client": "gangline.client.http",
    "aconnect": "gangline.client.connection",
    "connect": "gangline.client.connection",
}

__all__ = ["AsyncClient", "Client", "aconnect", "connect"]


def __getattr__(name: str) -> Any:
    if name not in _ROOM_OF:
        raise AttributeError(f"module 'gangline.client' has no attribute {name!r}")
    value = getattr(import_module(_ROOM_OF[name]), name)
    globals()[name] = value
    return value
