"""Routes of content-addressed blobs."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import FileResponse, Response

from gangline.model.errors import NotFound
from gangline.server.common import Claimed, NodeSide, reply_plain
from gangline.service import claims

router = APIRouter()


@router.put("/blobs/{sha256}", status_code=201)
async def put_blob(sha256: str, request: Request, state: NodeSide) -> Response:
    new = await state.blobs.receive(sha256, request.stream(), state.call)
    return reply_plain({"sha256": sha256, "created": new}, 201 if new else 200)


@router.head("/blobs/{sha256}")
async def has_blob(sha256: str, state: NodeSide) -> Response:
    return Response(status_code=200 if state.blobs.has(sha256) else 404)


@router.get("/blobs/{sha256}")
async def get_blob(sha256: str, state: NodeSide, claim: Claimed) -> Response:
    if claim is not None and not await state.call(claims.owns_code, state.store, claim, sha256):
        raise NotFound(f"attempt {claim.attempt} of {claim.gang} has no code {sha256}")
    return FileResponse(state.blobs.path(sha256), media_type="application/x-tar")
