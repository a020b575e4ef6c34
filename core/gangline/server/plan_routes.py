"""Routes about passes and why gangs wait."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import Response

from gangline.model.passes import Explanation, PassDetail
from gangline.model.states import GangState
from gangline.server.common import ClientSide, reply, reply_list
from gangline.service import explaining, passes, views

router = APIRouter()

Natural = Annotated[int, Query(ge=0, le=2**63 - 1)]


@router.get("/passes")
async def list_passes(state: ClientSide, before: Natural | None = None,
                      limit: Annotated[int, Query(ge=1, le=passes.MOST_PASSES)] = 50) -> Response:
    return reply_list("passes", await state.call(passes.list_passes, state.store, before, limit))


@router.get("/passes/{number}", response_model=PassDetail)
async def get_pass(number: int, state: ClientSide, inputs: bool = False) -> Response:
    return await state.call(reply, await state.call(passes.get_pass, state.store, number, inputs=inputs))


@router.get("/gangs/{gang}/explain", response_model=Explanation)
async def explain(gang: str, state: ClientSide) -> Response:
    planning = state.loop.planning
    view = await state.call(views.observe, state.store, gang)
    if view.state is not GangState.QUEUED:  # the picture may not have heard of that yet
        return reply(Explanation(gang=view.gang, at_ms=state.now_ms()))
    return reply(await state.call(explaining.explain, state.loop.picture, planning.policy,
                                  planning.last.reservations, view.gang, view.wait, now_ms=state.now_ms()))
