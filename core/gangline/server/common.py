"""What every file of routes needs: the state, and values as replies."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from typing import Annotated, Any

from fastapi import Depends, Request
from fastapi.responses import Response

from gangline.model.base import Wire
from gangline.server.state import ServerState
from gangline.service.claims import Claim


async def _state(request: Request) -> ServerState:
    state: ServerState = request.app.state.gangline
    return state


async def _state_for_client(request: Request) -> ServerState:
    state = await _state(request)
    state.used_s = time.monotonic()
    return state


async def _claim(request: Request) -> Claim | None:
    """For which attempt alone the request may speak; None for a caller who may speak for all."""
    claim: Claim | None = getattr(request.state, "claim", None)
    return claim


Claimed = Annotated[Claim | None, Depends(_claim)]
NodeSide = Annotated[ServerState, Depends(_state)]
ClientSide = Annotated[ServerState, Depends(_state_for_client)]


def reply(value: Wire, status: int = 200) -> Response:
    """A value as JSON, unset defaults left out."""
    body = value.model_dump_json(by_alias=True, exclude_defaults=True)
    return Response(body, status_code=status, media_type="application/json")


def reply_list(name: str, values: Iterable[Wire], **more: Any) -> Response:
    """Values as {"name": [...]}, with further plain fields. Long lists are made in a worker thread: see `call`."""
    listed = ",".join(value.model_dump_json(by_alias=True, exclude_defaults=True) for value in values)
    rest = "".join(f",{json.dumps(key)}:{json.dumps(plain)}" for key, plain in more.items())
    return Response(f"{{{json.dumps(name)}:[{listed}]{rest}}}", media_type="application/json")


def reply_plain(value: dict[str, Any], status: int = 200) -> Response:
    return Response(json.dumps(value), status_code=status, media_type="application/json")
