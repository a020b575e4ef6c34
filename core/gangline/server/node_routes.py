"""Routes of supervisors: hello, orders, reports, logs and saves."""

from __future__ import annotations

from dataclasses import asdict

from fastapi import APIRouter, Request
from fastapi.responses import Response

from gangline.model.errors import Rejected
from gangline.model.orders import (
    Hello,
    OpenSave,
    Orders,
    Poll,
    RankSaved,
    Reports,
    SaveDir,
    SaveState,
    Welcome,
)
from gangline.server.bodies import LogsBody
from gangline.server.common import Claimed, NodeSide, reply, reply_plain
from gangline.server.notify import log_key, node_key
from gangline.server.waits import hold
from gangline.service import claims, saves
from gangline.service import nodes as node_service
from gangline.service.claims import Claim

router = APIRouter()


@router.post("/nodes/{node}/hello", response_model=Welcome)
async def hello(node: str, body: Hello, state: NodeSide, claim: Claimed) -> Response:
    if body.node != node:
        raise Rejected(f"names {body.node!r} at the address of {node!r}", field="node")
    if claim is not None:
        return reply(await state.call(claims.hello, state.store, body, claim, state.fleet,
                                      now_ms=state.now_ms()))
    return reply(await state.call(node_service.hello, state.store, body, now_ms=state.now_ms()))


@router.post("/nodes/{node}/poll", response_model=Orders)
async def poll(node: str, body: Poll, request: Request, state: NodeSide, claim: Claimed) -> Response:
    last: Orders | None = None

    async def news() -> Orders | None:
        nonlocal last
        if claim is not None:
            last = await state.call(claims.orders, state.store, node, body.incarnation, claim,
                                    now_ms=state.now_ms(), volumes_root=state.volumes_root)
        else:
            last = await state.call(node_service.orders, state.store, node, body.incarnation,
                                    now_ms=state.now_ms(), volumes_root=state.volumes_root)
        return last if last.digest != body.seen else None

    await hold(request, state.notifier, (node_key(node),), body.wait_s, news)
    assert last is not None
    return reply(last)


@router.post("/nodes/{node}/reports")
async def reports(node: str, body: Reports, state: NodeSide, claim: Claimed) -> Response:
    if claim is not None:
        applied = await state.call(claims.reports, state.store, node, body, claim, now_ms=state.now_ms())
    else:
        applied = await state.call(node_service.reports, state.store, node, body, now_ms=state.now_ms())
    return reply_plain({"applied": applied})


@router.post("/nodes/{node}/logs")
async def logs(node: str, body: LogsBody, state: NodeSide, claim: Claimed) -> Response:
    for piece in body.pieces:
        _own(claim, piece.gang, piece.attempt)
    gaps = await state.call(state.logs.store, body.pieces)
    state.notifier.ring({log_key(piece.gang, piece.rank) for piece in body.pieces})
    missing = {(gap.gang, gap.attempt, gap.rank) for gap in gaps}
    stored = sum((piece.gang, piece.attempt, piece.rank) not in missing for piece in body.pieces)
    return reply_plain({"stored": stored, "gaps": [asdict(gap) for gap in gaps]})


@router.post("/saves/open", response_model=SaveDir)
async def open_save(body: OpenSave, state: NodeSide, claim: Claimed) -> Response:
    _own(claim, body.gang, body.attempt)
    return reply(await state.call(saves.open_save, state.store, body, now_ms=state.now_ms(),
                                  volumes_root=state.volumes_root))


@router.post("/saves/report", response_model=SaveState)
async def report_save(body: RankSaved, state: NodeSide, claim: Claimed) -> Response:
    _own(claim, body.gang, body.attempt)
    return reply(await state.call(saves.report_save, state.store, body, now_ms=state.now_ms(),
                                  volumes_root=state.volumes_root))


@router.get("/saves/{save}", response_model=SaveState)
async def save_state(save: int, state: NodeSide, claim: Claimed) -> Response:
    may_see = None if claim is None else claim.covers
    return reply(await state.call(saves.save_state, state.store, save, may_see))


def _own(claim: Claim | None, gang: str, attempt: int) -> None:
    if claim is not None:
        claim.covers(gang, attempt)
