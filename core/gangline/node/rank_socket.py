"""The unix socket ranks talk to: one JSON object per line each way, the token says which tree they are of."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import logging
import os
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gangline.model.errors import Bug, GanglineError, NotFound, Rejected
from gangline.model.gang import Progress
from gangline.model.orders import OpenSave, RankSaved, SaveDir, SaveState, Task
from gangline.node.link import Link
from gangline.node.outbox import About, Outbox

_LOG = logging.getLogger(__name__)
_PATH_BYTES = 107  # what a unix socket address can hold
_LINE_BYTES = 64 << 20  # a report may list very many files
_RETRY_S = 90.0  # how long a rank's request outlives a server that is away; ranks wait for 150
_HOLD_S = 20.0  # how long a question about an unpublished save is held
_HOLD_PAUSES_S = (0.05, 1.0)


@dataclass(frozen=True, slots=True)
class Caller:
    """The attempt behind a token."""

    about: About
    task: Task


class RankSocket:
    """Answers ranks, forwarding what concerns the server."""

    def __init__(self, link: Link, outbox: Outbox, path: Path) -> None:
        self._link, self._outbox, self.path = link, outbox, path
        self._callers: dict[str, Caller] = {}
        self._server: asyncio.Server | None = None
        self._serving: set[asyncio.Task[None]] = set()
        self._ops: dict[str, Callable[[Caller, Mapping[str, Any]], Awaitable[dict[str, Any]]]] = {
            "hello": self._hello, "open_save": self._open_save, "report_save": self._report_save,
            "save_state": self._save_state, "progress": self._progress}
        self.advanced: set[About] = set()  # attempts that have reported progress

    async def open(self) -> None:
        self.path.unlink(missing_ok=True)
        self._server = await asyncio.start_unix_server(self._serve, self.path, limit=_LINE_BYTES)
        self.path.chmod(0o600)

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in list(self._serving):
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)
        self.path.unlink(missing_ok=True)

    def admit(self, token: str, caller: Caller) -> None:
        self._callers[token] = caller

    def expel(self, token: str) -> None:
        caller = self._callers.pop(token, None)
        if caller is not None:
            self.advanced.discard(caller.about)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        try:
            async for line in reader:
                reply = await self._answer(line)
                writer.write(json.dumps(reply).encode() + b"\n")
                await writer.drain()
        except (OSError, ValueError, asyncio.CancelledError):
            pass  # the rank is gone, or writes what is no line, or we close
        finally:
            self._serving.discard(task)
            with contextlib.suppress(OSError):
                writer.close()

    async def _answer(self, line: bytes) -> dict[str, Any]:
        try:
            request = json.loads(line)
            if not isinstance(request, dict):
                raise Rejected("a request is a JSON object")
            caller = self._callers.get(str(request.get("token")))
            if caller is None:
                raise NotFound("this attempt is over, or the token is not of this supervisor")
            op = self._ops.get(str(request.get("op")))
            if op is None:
                raise Rejected(f"unknown op {request.get('op')!r}")
            return {"ok": True, **await op(caller, request)}
        except GanglineError as exc:
            return {"ok": False, "error": exc.to_wire()}
        except (KeyError, TypeError, ValueError) as exc:
            return {"ok": False, "error": Rejected(f"malformed request: {exc!r}").to_wire()}
        except Exception as exc:  # noqa: BLE001 - the rank must hear of it
            _LOG.error("a rank's request failed", exc_info=exc)
            return {"ok": False, "error": Bug(f"the supervisor failed: {exc!r}").to_wire()}

    async def _hello(self, caller: Caller, request: Mapping[str, Any]) -> dict[str, Any]:
        return {}

    async def _open_save(self, caller: Caller, request: Mapping[str, Any]) -> dict[str, Any]:
        mount = next((m for m in caller.task.mounts if m.mount == request["mount"]), None)
        if mount is None:
            raise NotFound(f"the gang mounts no volume at {request['mount']!r}", field="mount")
        body = OpenSave.parse({**_about(caller), "mount": request["mount"], "key": request["key"],
                               "step": request.get("step")})
        opened = SaveDir.parse(await self._link.insist("POST", "/v1/saves/open", body, for_s=_RETRY_S))
        return {**opened.full(), "root": mount.root}

    async def _report_save(self, caller: Caller, request: Mapping[str, Any]) -> dict[str, Any]:
        body = RankSaved.parse({**_about(caller), "save": request["save"], "rank": request["rank"],
                                "files": request["files"], "format": request["format"],
                                "metrics": request.get("metrics") or {}, "extra": request.get("extra") or {}})
        state = SaveState.parse(await self._link.insist("POST", "/v1/saves/report", body, for_s=_RETRY_S))
        return state.full()

    async def _save_state(self, caller: Caller, request: Mapping[str, Any]) -> dict[str, Any]:
        path = f"/v1/saves/{int(request['save'])}"
        deadline_s = time.monotonic() + _HOLD_S
        pause_s = _HOLD_PAUSES_S[0]
        while True:
            state = SaveState.parse(await self._link.insist("GET", path, for_s=_RETRY_S))
            settled = state.published is not None or state.error is not None
            if settled or time.monotonic() + pause_s > deadline_s:
                return state.full()
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 1.5, _HOLD_PAUSES_S[1])

    async def _progress(self, caller: Caller, request: Mapping[str, Any]) -> dict[str, Any]:
        progress = Progress.parse(request["progress"])
        self.advanced.add(caller.about)
        if request.get("rank") == 0:
            if not progress.at_ms:
                progress = progress.model_copy(update={"at_ms": time.time_ns() // 1_000_000})
            self._outbox.advance(caller.about, progress)
        return {}


def socket_path(node_dir: Path) -> Path:
    """A path for the node's socket that fits into a unix address."""
    path = node_dir / "s.sock"
    if len(os.fsencode(path)) <= _PATH_BYTES:
        return path
    folder = Path(f"/tmp/gangline-{os.getuid()}")  # noqa: S108 - ours alone, checked below
    folder.mkdir(mode=0o700, exist_ok=True)
    status = folder.lstat()
    if status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise Rejected(f"{folder} is not a private folder of this user",
                       fix="remove it, or use a shorter home")
    return folder / f"{hashlib.sha256(os.fsencode(node_dir)).hexdigest()[:16]}.sock"


def _about(caller: Caller) -> dict[str, Any]:
    gang, attempt, generation = caller.about
    return {"gang": gang, "attempt": attempt, "generation": generation}
