"""The FastAPI app: routes of clients and of nodes, and every error as one JSON form."""

from __future__ import annotations

import errno
import logging
from typing import Any

from fastapi import FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response

from gangline.model.errors import Bug, GanglineError, NotFound, Rejected, Unavailable
from gangline.model.wording import worded
from gangline.server import client_routes, file_routes, fleet_routes, gang_routes, node_routes, plan_routes
from gangline.server.state import ServerState

_log = logging.getLogger("gangline.server")

_DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


def create_app(state: ServerState) -> FastAPI:
    """The whole HTTP interface over one server's state."""
    app = FastAPI(title="Gangline", version=state.version, docs_url=None, redoc_url=None)
    app.state.gangline = state
    for routes in (client_routes, fleet_routes, gang_routes, file_routes, node_routes, plan_routes):
        app.include_router(routes.router, prefix="/v1")
    app.add_exception_handler(GanglineError, _named)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(404, _no_page)
    app.add_exception_handler(405, _no_method)
    app.add_exception_handler(HTTPException, _refused)
    app.add_exception_handler(Exception, _unexpected)
    return app


def _reply(error: GanglineError, status: int | None = None) -> Response:
    return JSONResponse(error.to_wire(), status_code=status or error.http_status)


def _named(request: Request, exc: Exception) -> Response:
    assert isinstance(exc, GanglineError)
    return _reply(exc)


def _invalid(request: Request, exc: Exception) -> Response:
    assert isinstance(exc, RequestValidationError)
    return _reply(_first_problem(exc.errors()[0]))


def _first_problem(problem: Any) -> Rejected:
    """What pydantic found wrong in a body or a query, in the words of every other refusal of ours."""
    place, *path = problem["loc"]
    name = ".".join(str(part) for part in path) or str(place)
    if problem["type"] == "json_invalid":
        return Rejected("the body is not JSON", field=str(place))
    message, fix = worded(problem)
    return Rejected(message, field=name, fix=fix)


def _no_page(request: Request, exc: Exception) -> Response:
    return _reply(NotFound(f"there is no {request.url.path} here"))


def _no_method(request: Request, exc: Exception) -> Response:
    return _reply(Rejected(f"{request.url.path} does not take {request.method}"), 405)


def _refused(request: Request, exc: Exception) -> Response:
    assert isinstance(exc, HTTPException)
    return _reply(Rejected(str(exc.detail)), exc.status_code)


def _unexpected(request: Request, exc: Exception) -> Response:
    _log.error("%s %s failed", request.method, request.url.path, exc_info=exc)
    if isinstance(exc, OSError) and exc.errno in _DISK_FULL:
        return _reply(Unavailable("the disk of the server's home is full", fix="free space there"))
    return _reply(Bug(f"{type(exc).__name__} in {request.method} {request.url.path}",
                      fix="see the server's log and report it"))
