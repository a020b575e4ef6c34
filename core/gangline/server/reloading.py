"""Following the fleet file while the server runs."""

from __future__ import annotations

import asyncio
import logging
import signal
from pathlib import Path

from gangline.model.errors import GanglineError, Rejected
from gangline.model.fleet import Fleet
from gangline.model.inventory import FleetChanges
from gangline.server.fleet import find_fleet, parse_fleet
from gangline.server.state import ServerState

_log = logging.getLogger("gangline.server")


async def reload_fleet(state: ServerState, *, text: str | None = None, dry_run: bool = False) -> FleetChanges:
    """Reads and checks the fleet file, then follows it; with `text` in its place only for a `dry_run`.

    Raises:
        Rejected: the file is of no use. Nothing has changed then.
    """
    if text is not None and not dry_run:
        raise Rejected("the text of a fleet file is only looked at", field="text", fix="write the file, then reload")
    async with state.reloading:
        where, fleet = await state.call(_read, state.home, state.fleet_path, text)
        if fleet.volumes != state.fleet.volumes:
            raise Rejected("volumes cannot move while the server runs", field="volumes",
                           fix="stop the server, move them, then start it with the new file")
        changes = await state.call(state.loop.adopt, fleet, dry_run=dry_run)
        if not dry_run:
            state.fleet, state.fleet_path = fleet, where
            _log.info("following %s: %s", where or "this machine", changes.model_dump_json(exclude_defaults=True))
    return changes.model_copy(update={"file": where})


def reload_on_hangup(clock: asyncio.AbstractEventLoop, state: ServerState) -> None:
    """SIGHUP means: read the fleet file again. A file of no use is logged and changes nothing."""
    tasks: set[asyncio.Task[None]] = set()

    async def reload() -> None:
        try:
            await reload_fleet(state)
        except GanglineError as exc:
            _log.error("the fleet file was not followed: %s", exc)

    def begin() -> None:
        task = clock.create_task(reload())
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    clock.add_signal_handler(signal.SIGHUP, begin)


def _read(home: Path, followed: str | None, text: str | None) -> tuple[str | None, Fleet]:
    """The fleet to follow. A server without a file takes the home's once there is one; one that had a
    file needs it still, for without it the fleet would be this machine.
    """
    given = None if followed is None else Path(followed)
    if text is not None:
        where: str | None = str(given or home / "fleet.yaml")
        fleet = parse_fleet(text, str(where))
    else:
        where, fleet = find_fleet(home, given)
    return where, fleet
