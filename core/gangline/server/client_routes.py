"""Routes about the server, its nodes, its volumes and its ledger."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import Response

from gangline.model.node import NodeView, ServerStatus
from gangline.model.volume import PointerView, VolumeView
from gangline.server import stopping
from gangline.server.bodies import DrainBody, NameBody, StopBody, UndrainBody
from gangline.server.common import ClientSide, reply, reply_list, reply_plain
from gangline.service import nodes as node_service
from gangline.service import usage as ledger
from gangline.service import versions, views

router = APIRouter()


@router.get("/status", response_model=ServerStatus)
async def status(state: ClientSide) -> Response:
    counts = await state.call(views.status_counts, state.store)
    nodes = await state.call(views.nodes, state.store)
    return await state.call(reply, ServerStatus(
        version=state.version, pid=state.pid, home=str(state.home), url=state.url,
        started_ms=state.started_ms, fleet=state.fleet_path, active_gangs=counts.active,
        queued_gangs=counts.queued, watchers=state.watchers, nodes=tuple(nodes),
        refused_plan=state.loop.planning.refused))


@router.post("/stop")
async def stop(body: StopBody, state: ClientSide) -> Response:
    await stopping.stop(state, force=body.force)
    return reply_plain({"stopped": True, "pid": state.pid})


@router.get("/nodes")
async def nodes(state: ClientSide) -> Response:
    return await state.call(reply_list, "nodes", await state.call(views.nodes, state.store))


@router.post("/nodes/{node}/drain", response_model=NodeView)
async def drain(node: str, body: DrainBody, state: ClientSide) -> Response:
    return reply(await state.call(node_service.drain, state.store, node, body.owner, body.reason,
                                  now_ms=state.now_ms()))


@router.post("/nodes/{node}/undrain", response_model=NodeView)
async def undrain(node: str, body: UndrainBody, state: ClientSide) -> Response:
    return reply(await state.call(node_service.undrain, state.store, node, body.owner, now_ms=state.now_ms()))


@router.get("/volumes")
async def volumes(state: ClientSide) -> Response:
    return reply_list("volumes", await state.call(versions.volumes, state.store, state.volumes_root))


@router.get("/volumes/{volume}", response_model=VolumeView)
async def volume(volume: str, state: ClientSide) -> Response:
    return reply(await state.call(versions.volume, state.store, volume, state.volumes_root))


@router.put("/volumes/{volume}/names/{name}", response_model=PointerView)
async def set_name(volume: str, name: str, body: NameBody, state: ClientSide) -> Response:
    return reply(await state.call(versions.set_name, state.store, volume, name, body.version,
                                  body.expected_revision, now_ms=state.now_ms()))


@router.get("/usage")
async def usage(state: ClientSide, by: str = "gang", from_ms: int | None = None,
                to_ms: int | None = None) -> Response:
    rows = await state.call(ledger.usage, state.store, tuple(by.split(",")), from_ms, to_ms,
                            now_ms=state.now_ms())
    return reply_list("rows", rows)
