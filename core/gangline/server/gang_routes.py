"""Routes about gangs: ensure, observe, watch, follow, cancel."""

from __future__ import annotations

import re
from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from gangline.model.errors import Rejected
from gangline.model.gang import Event, GangView, LogChunk, Watched
from gangline.model.states import GangState
from gangline.server.bodies import CancelBody, EnsureBody, SlotCancelBody, WatchBody
from gangline.server.common import ClientSide, reply, reply_list, reply_plain
from gangline.server.notify import gang_key, log_key
from gangline.server.state import ServerState
from gangline.server.waits import hold
from gangline.service import submit, views

router = APIRouter()

_GANG_ID = re.compile(r"g-[a-z2-7]{12}")
Wait = Annotated[float, Query(ge=0)]
Natural = Annotated[int, Query(ge=0, le=2**63 - 1)]


@router.post("/gangs/ensure")
async def ensure(body: EnsureBody, state: ClientSide) -> Response:
    async with state.entry:
        state.refuse_when_stopping()
        ensured = await state.call(submit.ensure_many, state.store, list(body.submissions),
                                   now_ms=state.now_ms(), new_id=state.new_id, new_token=state.new_token,
                                   refusal=state.judge())
    return reply_list("ensured", ensured)


@router.get("/gangs")
async def list_gangs(state: ClientSide, slot_prefix: str | None = None,
                     wanted: Annotated[str | None, Query(alias="state")] = None,
                     limit: Annotated[int, Query(ge=1, le=10_000)] = 100) -> Response:
    found = await state.call(views.list_gangs, state.store, _states(wanted), slot_prefix or "", limit,
                             now_ms=state.now_ms())
    return await state.call(reply_list, "gangs", found)


@router.get("/gangs/{gang}", response_model=GangView)
async def observe(gang: str, state: ClientSide) -> Response:
    return reply(await state.call(views.observe, state.store, gang, now_ms=state.now_ms()))


@router.post("/gangs/{gang}/watch", response_model=Watched)
async def watch(gang: str, body: WatchBody, request: Request, state: ClientSide) -> Response:
    gang = await _id_of(state, gang)

    async def renew() -> Watched:
        return await state.call(submit.watch, state.store, gang, body.token, body.cursor,
                                now_ms=state.now_ms())

    async def news() -> Watched | None:
        # Only events and another reason to wait are worth another renewal, which must neither wake its own
        # watcher nor cost every wake.
        if state.loop.planning.reasons.mark(gang) != before:
            return await renew()
        happened = await state.call(views.events_after, state.store, gang, body.cursor, 1)
        return await renew() if happened else None

    before = state.loop.planning.reasons.mark(gang)
    now = await renew()
    if now.events or now.view.state.final:
        return reply(now)
    # A claim must be renewed well before it lapses, so nobody is held for longer than part of that.
    wait_s = min(body.wait_s, now.view.spec.orphan_after / 3)
    with state.watching():
        return reply(await hold(request, state.notifier, (gang_key(gang),), wait_s, news) or now)


@router.get("/gangs/{gang}/events")
async def events(gang: str, request: Request, state: ClientSide, after: Natural = 0,
                 wait_s: Wait = 0.0) -> Response:
    view = await state.call(views.observe, state.store, gang)

    async def news() -> list[Event] | None:
        found = await state.call(views.events_after, state.store, view.gang, after)
        return found or None

    with state.watching():
        # Nothing more happens to a gang that has ended.
        found = await hold(request, state.notifier, (gang_key(view.gang),),
                           0.0 if view.state.final else wait_s, news)
    listed = found or []
    return reply_list("events", listed, cursor=listed[-1].seq if listed else after)


@router.get("/gangs/{gang}/logs", response_model=LogChunk)
async def logs(gang: str, request: Request, state: ClientSide, rank: Natural = 0,
               attempt: Annotated[int | None, Query(ge=1)] = None, offset: Natural = 0,
               wait_s: Wait = 0.0) -> Response:
    first = await state.call(views.observe, state.store, gang)
    began = attempt or _latest(first)
    last = LogChunk(attempt=began, rank=rank, text="", offset=offset, next=offset)

    async def news() -> LogChunk | None:
        nonlocal last
        view = await state.call(views.observe, state.store, first.gang)
        current = attempt or _latest(view)
        start = offset if current == began else 0
        last = await state.call(state.logs.read, first.gang, current, rank, start,
                                ended=view.state.final or current < _latest(view))
        return last if last.text or current != began or view.state.final else None

    with state.watching():
        await hold(request, state.notifier, (gang_key(first.gang), log_key(first.gang, rank)), wait_s, news)
    return reply(last)


@router.post("/gangs/{gang}/cancel", response_model=GangView)
async def cancel(gang: str, body: CancelBody, state: ClientSide) -> Response:
    return reply(await state.call(submit.cancel, state.store, await _id_of(state, gang), body.token,
                                  body.reason, now_ms=state.now_ms()))


@router.post("/slots/cancel")
async def cancel_slot(body: SlotCancelBody, state: ClientSide) -> Response:
    gangs = await state.call(submit.cancel_slot, state.store, body.slot, body.epoch, body.reason,
                             now_ms=state.now_ms())
    return reply_plain({"cancelled": list(gangs)})


async def _id_of(state: ServerState, gang: str) -> str:
    """The id behind what may also be a name or the beginning of an id."""
    if _GANG_ID.fullmatch(gang):
        return gang
    return (await state.call(views.observe, state.store, gang)).gang


def _latest(view: GangView) -> int:
    return view.attempts[-1].number if view.attempts else 0


def _states(wanted: str | None) -> list[GangState]:
    if not wanted:
        return []
    try:
        return [GangState(name) for name in wanted.split(",")]
    except ValueError:
        raise Rejected(f"{wanted!r} names a state that does not exist", field="state",
                       fix="use " + ", ".join(GangState)) from None
