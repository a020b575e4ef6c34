"""`connect` and `aconnect`: from what a caller gives to a client of the right server."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from pathlib import Path

import gangline
from gangline.client.address import Address, home_dir, parse_address, token_of
from gangline.client.aio import AsyncClient
from gangline.client.embedded import find, find_or_start
from gangline.client.http import START_FIX, Client
from gangline.client.record import ServerRecord
from gangline.model.errors import Conflict, Unavailable

_Target = tuple[Address, Callable[[], Address] | None, Conflict | None]


def connect(url: str | None = None, *, home: str | os.PathLike[str] | None = None, start: bool = True,
            tenant: str | None = None, token: str | None = None) -> Client:
    """A client of the server at `url`, else of `home`, else of GANGLINE_URL, else of GANGLINE_HOME.

    The server of a home is started when none runs, unless `start` is False. It may block for the
    seconds that takes: inside an event loop use `aconnect`. Raises `Unavailable` when no server
    answers and `Rejected` when the address or the home is of no use. A server of another version
    refuses every call but `status` and `stop` with `Conflict`. `token` is for a server at a `url`;
    without one, GANGLINE_TOKEN or GANGLINE_TOKEN_FILE gives it.
    """
    address, recover, refusal = _target(url, home, start, os.environ, token)
    return Client(address, tenant=tenant, recover=recover, refusal=refusal)


async def aconnect(url: str | None = None, *, home: str | os.PathLike[str] | None = None,
                   start: bool = True, token: str | None = None) -> AsyncClient:
    """`connect` for coroutines: finding and starting happen in a thread, the loop goes on."""
    address, recover, refusal = await asyncio.to_thread(_target, url, home, start, os.environ, token)
    return AsyncClient(address, recover=recover, refusal=refusal)


def _target(url: str | None, home: str | os.PathLike[str] | None, start: bool,
            environ: Mapping[str, str], token: str | None) -> _Target:
    if url is None and home is None:
        url = environ.get("GANGLINE_URL") or None
    if url is not None:
        return parse_address(url, token=token or token_of(environ)), None, None
    place = home_dir(home, environ)
    record = _record(place, start, environ)

    def recover() -> Address:
        return parse_address(_record(place, start, environ).url)

    return parse_address(record.url), recover, _refusal(record)


def _record(home: Path, start: bool, environ: Mapping[str, str]) -> ServerRecord:
    if start:
        return find_or_start(home, environ)
    record = find(home)
    if record is None:
        raise Unavailable(f"no server runs for {home}", fix=f"{START_FIX} --home {home}")
    return record


def _refusal(record: ServerRecord) -> Conflict | None:
    ours = gangline.__version__
    if record.version == ours:
        return None
    return Conflict(f"the server is version {record.version} and this client {ours}",
                    fix="run: gangline stop, then try again")
