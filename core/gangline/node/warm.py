"""Starting keepers: by a fork of the machine's template, or cold."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import socket
import sys
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

from gangline.node import keeper, template
from gangline.node.kill import end_all
from gangline.node.proc import Proc, descendants, living, spawn
from gangline.node.sweep import TREE_ENV, Tree

_LOG = logging.getLogger(__name__)
_IMPORT_S = 60.0  # a template that has not imported its modules by then is given up
_OURS = (keeper.NAME, template.NAME)
_AGAIN_S = 30.0  # before another try after a failed one


class KeeperLink:
    """The supervisor's end of a keeper's control socket."""

    def __init__(self, pid: int, control: socket.socket) -> None:
        self.pid = pid
        self._control = control
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def open(self) -> None:
        self._streams = await asyncio.open_connection(sock=self._control)

    def start(self, ranks: list[dict[str, Any]]) -> None:
        self._say({"op": "start", "ranks": ranks})

    def stop(self, grace_s: float) -> None:
        self._say({"op": "stop", "grace_s": grace_s})

    async def events(self) -> AsyncIterator[dict[str, Any]]:
        """What the keeper tells, until it is gone."""
        assert self._streams is not None
        try:
            async for line in self._streams[0]:
                yield json.loads(line)
        except ConnectionError:
            return

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()

    def _say(self, message: Mapping[str, Any]) -> None:
        assert self._streams is not None
        if self._streams[0].at_eof() or self._streams[1].is_closing():
            return  # it is gone, and with it what it kept
        self._streams[1].write(json.dumps(message).encode() + b"\n")


class Starter:
    """Starts keepers and knows which of this process's children are its own."""

    def __init__(self, template_socket: Path | None) -> None:
        self._path = template_socket
        self._client: socket.socket | None = None
        self._facts: dict[str, Any] | None = None
        self._turn = asyncio.Lock()  # one request at a time on the template's socket
        self._not_before_s = 0.0
        self.children: set[int] = set()

    async def facts(self) -> Mapping[str, Any] | None:
        """What the template says of itself, once it is there; None when ranks must start cold."""
        async with self._turn:
            return await self._connected()

    async def keeper(self, tree: Tree, group: Path | None, log: Path, *, warm: bool) -> KeeperLink:
        """A keeper for the tree, warm if asked for and possible."""
        ours, theirs = socket.socketpair()
        with theirs, log.open("ab", buffering=0) as output:
            pid = await self._fork(tree, group, theirs, output.fileno()) if warm else None
            if pid is None:
                pid = self._spawn(tree, group, theirs, output.fileno())
        ours.setblocking(False)
        link = KeeperLink(pid, ours)
        await link.open()
        return link

    def reap(self) -> None:
        """Collect every child that has ended."""
        with contextlib.suppress(ChildProcessError):
            while (pid := os.waitpid(-1, os.WNOHANG)[0]) != 0:
                self.children.discard(pid)

    def end_strays(self) -> int:
        """End what came to this process when its keeper was killed; how many there were."""
        return end_all(self._strays, patience_s=1.0)

    def close(self) -> None:
        self._drop()

    def _strays(self) -> list[Proc]:
        table = living()
        # Keepers come to us too when a template we started is gone; they have supervisors of their own.
        return [proc for child in table
                if child.ppid == os.getpid() and child.pid not in self.children and child.name not in _OURS
                for proc in (child, *descendants(child.pid, table))]

    def _spawn(self, tree: Tree, group: Path | None, control: socket.socket, output_fd: int) -> int:
        root = str(Path(__file__).parents[2])
        # Isolated and without site: nothing but the standard library, and there in tens of milliseconds.
        code = (f"import sys; sys.path.append({root!r}); "
                "from gangline.node.keeper import main; main()")
        pid = spawn([sys.executable, "-I", "-S", "-c", code, str(control.fileno()), str(tree.marker),
                     str(group or "")],
                    env={TREE_ENV: tree.name, "PATH": os.environ.get("PATH", os.defpath)},
                    output_fd=output_fd, keep=(control.fileno(),))
        self.children.add(pid)
        return pid

    async def _fork(self, tree: Tree, group: Path | None, control: socket.socket,
                    output_fd: int) -> int | None:
        request = {"op": "fork", "marker": str(tree.marker), "group": str(group) if group else None}
        async with self._turn:
            for _ in range(2):  # the template we knew may have ended since
                if await self._connected() is None:
                    return None
                answer = await self._ask(request, (control.fileno(), output_fd))
                if answer is not None:
                    return int(answer["pid"])
                self._drop()
        return None

    async def _connected(self) -> dict[str, Any] | None:
        if self._client is not None and not _has_ended(self._client):
            return self._facts
        self._drop()
        if self._path is None or time.monotonic() < self._not_before_s:
            return None
        try:
            self._client = await asyncio.to_thread(template.connect, self._path, on_start=self.children.add)
            self._client.setblocking(False)
            self._facts = await self._ask({"op": "hello"})
        except OSError as exc:
            _LOG.warning("no template, ranks start cold: %s", exc)
        if self._facts is None:
            self._drop()
            self._not_before_s = time.monotonic() + _AGAIN_S
        return self._facts

    async def _ask(self, request: Mapping[str, Any], fds: tuple[int, ...] = ()) -> dict[str, Any] | None:
        assert self._client is not None
        loop = asyncio.get_running_loop()
        answer = b""
        try:
            socket.send_fds(self._client, [json.dumps(request).encode()], fds)
            async with asyncio.timeout(_IMPORT_S):
                while not answer.endswith(b"\n"):
                    data = await loop.sock_recv(self._client, 1 << 16)
                    if not data:
                        return None
                    answer += data
        except OSError:  # TimeoutError too
            return None
        except asyncio.CancelledError:
            self._drop()  # or the next request would read this one's answer
            raise
        found = json.loads(answer)
        return found if isinstance(found, dict) else None

    def _drop(self) -> None:
        if self._client is not None:
            self._client.close()
        self._client = self._facts = None


def _has_ended(client: socket.socket) -> bool:
    """Whether the other side has closed; nothing is ever waiting to be read between requests."""
    try:
        return client.recv(1, socket.MSG_PEEK) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True
