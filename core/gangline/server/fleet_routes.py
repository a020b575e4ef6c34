"""Routes that change the fleet: its file taken over, a pool's size."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import Response

from gangline.model.inventory import FleetChanges, Scaled
from gangline.server.bodies import ReloadBody, ScaleBody
from gangline.server.common import ClientSide, reply
from gangline.server.reloading import reload_fleet
from gangline.service import fleet as fleet_service

router = APIRouter()


@router.post("/fleet/reload", response_model=FleetChanges)
async def reload(body: ReloadBody, state: ClientSide) -> Response:
    state.refuse_when_stopping()
    return reply(await reload_fleet(state, text=body.text, dry_run=body.dry_run))


@router.post("/pools/{pool}/scale", response_model=Scaled)
async def scale(pool: str, body: ScaleBody, state: ClientSide) -> Response:
    state.refuse_when_stopping()
    async with state.reloading:  # a pool that a reload drops meanwhile is not to grow
        return reply(await state.call(fleet_service.scale, state.store, state.fleet, pool, body.nodes,
                                      now_ms=state.now_ms(), dry_run=body.dry_run))
