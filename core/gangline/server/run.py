"""The composition root of a server: home, store, fleet, loop and listeners, from start to exit."""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import signal
import socket
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

from fastapi import FastAPI

import gangline
from gangline.client.address import is_loopback
from gangline.client.record import ServerRecord, process_start, remove_record, write_record
from gangline.model.errors import Bug, Rejected
from gangline.model.fleet import Fleet
from gangline.server.app import create_app
from gangline.server.engines import Reach
from gangline.server.fleet import find_fleet
from gangline.server.guard import Guard
from gangline.server.home import held_home
from gangline.server.interpreter import share_fairly
from gangline.server.listener import Listener
from gangline.server.nodekeys import NodeKeys, node_keys
from gangline.server.notify import Notifier
from gangline.server.reloading import reload_on_hangup
from gangline.server.sockets import bind_tcp, bind_unix
from gangline.server.state import SchedulerLoop, ServerState, now_ms
from gangline.server.stopping import leave_when_idle
from gangline.service import fleet as fleet_service
from gangline.store import Store

IDLE_S = 1800.0
MAX_OPEN_FILES = 65_536  # a thousand waiting clients need more than the usual 1,024

LoopFactory = Callable[[Store, Fleet, Path, Reach, NodeKeys], SchedulerLoop]

_log = logging.getLogger("gangline.server")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What a server is started with. `on_ready` is called once, when it can be found and answers."""

    home: Path
    fleet: Path | None = None
    listen: str | None = None
    token: str | None = None
    hosts: tuple[str, ...] = ()
    idle_s: float = IDLE_S
    on_ready: Callable[[], None] = lambda: None


def serve(settings: Settings, make_loop: LoopFactory) -> None:
    """Serve a home until told to stop. Signals end the server alone; nodes and gangs go on.

    Raises `Rejected` for a home, fleet file or listener of no use and `Conflict` when another server
    holds the home.
    """
    os.umask(0o077)
    share_fairly()
    _raise_open_files()
    settings = replace(settings, home=Path(os.path.abspath(settings.home)))
    with ExitStack() as stack:
        stack.enter_context(held_home(settings.home))
        where, fleet = find_fleet(settings.home, settings.fleet)
        store = Store.open(f"sqlite:///{settings.home / 'gangline.db'}")
        stack.callback(store.close)
        fleet_service.sync_fleet(store, fleet, now_ms=now_ms())
        sock, path = bind_unix(settings.home)
        stack.callback(sock.close)
        stack.callback(path.unlink, missing_ok=True)
        tcp = None if settings.listen is None else _bind_tcp(settings, settings.listen)
        keys = node_keys(settings.home)
        loop = make_loop(store, fleet, settings.home, Reach(url=f"unix:{path}", node_url=_node_url(tcp)), keys)
        asyncio.run(_serve(settings, _Parts(store=store, fleet=fleet, fleet_path=where, loop=loop, sock=sock,
                                            path=path, tcp=tcp, keys=keys)))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parts:
    store: Store
    fleet: Fleet
    fleet_path: str | None
    loop: SchedulerLoop
    sock: socket.socket
    path: Path
    tcp: tuple[socket.socket, str] | None
    keys: NodeKeys


async def _serve(settings: Settings, parts: _Parts) -> None:
    clock = asyncio.get_running_loop()
    state = ServerState(store=parts.store, home=settings.home, url=f"unix:{parts.path}",
                        version=gangline.__version__, loop=parts.loop, notifier=Notifier(clock),
                        fleet=parts.fleet, fleet_path=parts.fleet_path)
    state.blobs.clean()
    parts.store.on_commit.append(state.committed)
    for number in (signal.SIGTERM, signal.SIGINT):
        clock.add_signal_handler(number, state.leave.set)
    reload_on_hangup(clock, state)
    app = create_app(state)
    listeners = [Listener(Guard(app, node_keys=parts.keys), parts.sock, state.leave)]
    if parts.tcp is not None:
        listeners.append(_tcp_listener(settings, app, state, parts))
    parts.loop.start()
    try:
        async with asyncio.TaskGroup() as tasks:
            for listener in listeners:
                tasks.create_task(listener.run_until_left())
            for listener in listeners:
                await listener.ready.wait()
            idle = tasks.create_task(leave_when_idle(state, settings.idle_s))
            _announce(settings, state)
            await state.leave.wait()
            remove_record(state.home, state.pid)
            state.notifier.close()
            idle.cancel()
    finally:
        remove_record(state.home, state.pid)
        await state.end_loop(nodes=False)
        state.loop.close()
        state.pool.shutdown()
        _log.info("left %s", settings.home)


def _announce(settings: Settings, state: ServerState) -> None:
    started = process_start(state.pid)
    if started is None:
        raise Bug("this process is not in /proc")
    write_record(state.home, ServerRecord(pid=state.pid, start_time=started, url=state.url,
                                          version=state.version))
    _log.info("serving %s at %s (process %d)", state.home, state.url, state.pid)
    settings.on_ready()


def _bind_tcp(settings: Settings, listen: str) -> tuple[socket.socket, str]:
    sock, host = bind_tcp(listen)
    if not is_loopback(sock.getsockname()[0]) and settings.token is None:
        sock.close()
        raise Rejected(f"{listen} can be reached from other machines, so it needs a token",
                       field="listen", fix="set GANGLINE_TOKEN or give --token-file, or listen on 127.0.0.1")
    return sock, host


def _node_url(tcp: tuple[socket.socket, str] | None) -> str | None:
    """Where other machines reach us if the fleet file does not say it; None when that cannot be told."""
    if tcp is None or tcp[1] in ("0.0.0.0", "::"):  # noqa: S104 - compared with, not bound to
        return None
    host = f"[{tcp[1]}]" if ":" in tcp[1] else tcp[1]
    return f"http://{host}:{tcp[0].getsockname()[1]}"


def _tcp_listener(settings: Settings, app: FastAPI, state: ServerState, parts: _Parts) -> Listener:
    assert parts.tcp is not None
    sock, host = parts.tcp
    _log.info("listening on http://%s:%d", host, sock.getsockname()[1])
    named = urlsplit(parts.fleet.node_url or "").hostname
    hosts = frozenset(name.lower() for name in (host, named, *settings.hosts) if name)
    return Listener(Guard(app, hosts=hosts, token=settings.token, node_keys=parts.keys), sock, state.leave)


def _raise_open_files() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, MAX_OPEN_FILES)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
