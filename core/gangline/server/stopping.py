"""Leaving: refuse while gangs are active, or end them first; then the nodes, then the server."""

from __future__ import annotations

import asyncio
import logging
import time

from gangline.model.errors import Conflict, GanglineError, Unavailable
from gangline.model.states import FINAL, GangState
from gangline.server.notify import ANY_GANG
from gangline.server.state import ServerState
from gangline.service import submit, views

FORCED_WAIT_S = 300.0
AT_ONCE = 100  # gangs cancelled in one transaction: others must not wait long for their turn
_ACTIVE = [state for state in GangState if state not in FINAL]

_log = logging.getLogger("gangline.server")


async def stop(state: ServerState, *, force: bool) -> None:
    """End the nodes and let the server exit. `Conflict` while gangs are active, unless forced.

    Forced, every active gang is cancelled and waited for; `Unavailable` when one does not end.
    """
    async with state.entry:  # nothing new comes in between the look and the decision
        state.refuse_when_stopping()
        if not force and await _is_active(state):
            raise Conflict(await _still(state),
                           fix="wait for them, or cancel them with: gangline stop --force")
        state.stopping = True
        state.loop.planning.holding = True
    try:
        await _end_all(state)
    except BaseException:
        state.stopping = state.loop.planning.holding = False
        raise
    try:
        await state.end_loop(nodes=True)
    finally:
        state.leave.set()


async def leave_when_idle(state: ServerState, idle_s: float) -> None:
    """Stop the server once no gang was active and no client asked anything for `idle_s` seconds."""
    while not state.leave.is_set():
        rest_s = state.used_s + idle_s - time.monotonic()
        if rest_s <= 0:
            try:
                if not state.watchers:
                    await stop(state, force=False)
                    _log.info("nothing to do for %.0f s: leaving", idle_s)
            except Conflict:
                pass  # gangs are active
            except GanglineError as exc:
                _log.warning("idle, but cannot leave: %s", exc)
            state.used_s = time.monotonic()
            rest_s = idle_s
        await asyncio.sleep(rest_s)


async def _is_active(state: ServerState) -> bool:
    return (await state.call(views.status_counts, state.store)).active > 0


async def _active(state: ServerState) -> list[str]:
    return [view.gang for view in await state.call(views.list_gangs, state.store, _ACTIVE, "", 100_000)]


async def _end_all(state: ServerState) -> None:
    gangs = await _active(state)
    for first in range(0, len(gangs), AT_ONCE):
        await state.call(submit.cancel_some, state.store, gangs[first:first + AT_ONCE], "the server is being stopped",
                         now_ms=state.now_ms())
    with state.notifier.listen(ANY_GANG) as bell:
        until_s = time.monotonic() + FORCED_WAIT_S
        while await _is_active(state):
            if not await bell.wait(until_s - time.monotonic()):
                raise Unavailable(f"{await _still(state)} after {FORCED_WAIT_S:.0f}s",
                                  fix="look at their nodes")
            bell.clear()


async def _still(state: ServerState) -> str:
    gangs = await _active(state)
    shown = ", ".join(gangs[:5]) + (", …" if len(gangs) > 5 else "")
    return f"{len(gangs)} gang{'s are' if len(gangs) > 1 else ' is'} active: {shown}"
