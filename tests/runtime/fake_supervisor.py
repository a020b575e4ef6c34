"""A supervisor with its server behind it, small and real: a unix socket, numbered saves, manifests."""

from __future__ import annotations

import json
import secrets
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gangline.model.errors import GanglineError, NotFound, Rejected
from gangline.model.volume import FileEntry, Manifest
from gangline.volumes.publish import manifest_sha256, put_manifest
from gangline.volumes.verify import verify

GANG = "g-abcdefghij23"


@dataclass
class FakeSave:
    number: int
    mount: str
    step: int | None
    directory: str
    reports: dict[int, dict[str, Any]] = field(default_factory=dict)
    published: int | None = None
    sha256: str = ""
    error: str | None = None


class FakeSupervisor:
    """Speaks the ops of a rank's supervisor for one attempt of `world_size` ranks."""

    def __init__(self, home: Path, world_size: int, mounts: dict[str, str], *, hold_s: float = 20.0) -> None:
        self.home, self.world_size, self.mounts, self.hold_s = home, world_size, mounts, hold_s
        self.token = secrets.token_hex(8)
        self.socket = str(home / "s.sock")
        self.saves: list[FakeSave] = []
        self.progress: list[dict[str, Any]] = []
        self.requests: list[str] = []
        self.changed = threading.Condition()
        self.resume: dict[str, FakeSave] = {}

    def root(self, mount: str) -> Path:
        return self.home / "volumes" / self.mounts[mount]

    def info(self, name: str = "info", *, node_rank: int = 0,
             world_size: int | None = None) -> dict[str, str]:
        """The environment of a rank but for RANK: an info file of the attempt as it is now."""
        world = world_size or self.world_size
        mounts = [{"mount": m, "volume": v, "root": str(self.root(m)),
                   "resume": self.resume[m].published if m in self.resume else None,
                   "resume_dir": self.resume[m].directory if m in self.resume else None,
                   "manifest_sha256": None} for m, v in self.mounts.items()]
        size = min(2, world)
        nodes = [{"node": f"n{i}", "address": f"127.0.1.{i + 1}", "gpus": [], "gpu_type": "cpu", "role": ""}
                 for i in range(size)]
        body = {"token": self.token, "gang": GANG, "name": "sft", "slot": "run/sft", "attempt": 1,
                "generation": 1, "tenant": "default", "role": "", "node": f"n{node_rank}",
                "node_rank": node_rank, "size": size, "world_size": world, "nodes": nodes, "zone": "z",
                "fabric": "f", "emulated": True,
                "rdma": {"requested": True, "proved": False, "emulated": True}, "mounts": mounts,
                "ranks_by_node": [list(range(world))[i::size] for i in range(size)]}
        path = self.home / f"{name}.json"
        path.write_text(json.dumps(body))
        return {"GANGLINE_INFO": str(path), "GANGLINE_SUPERVISOR": self.socket, "WORLD_SIZE": str(world)}

    def verify(self, save: FakeSave) -> list[str]:
        return verify(self.root(save.mount), save.directory, save.sha256)

    @contextmanager
    def serving(self) -> Iterator[FakeSupervisor]:
        fake = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                for line in self.rfile:
                    self.wfile.write(json.dumps(fake.answer(json.loads(line))).encode() + b"\n")

        class Server(socketserver.ThreadingUnixStreamServer):
            daemon_threads = True

        with Server(self.socket, Handler) as server:
            thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
            thread.start()
            try:
                yield self
            finally:
                server.shutdown()
                thread.join()

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        try:
            if request["token"] != self.token:
                raise Rejected("wrong token")
            with self.changed:
                self.requests.append(request["op"])
                return {"ok": True} | getattr(self, f"_{request['op']}")(request)
        except GanglineError as exc:
            return {"ok": False, "error": exc.to_wire()}

    def _open_save(self, request: dict[str, Any]) -> dict[str, Any]:
        if request["mount"] not in self.mounts:
            raise NotFound(f"no mount {request['mount']}")
        name = f"versions/{GANG}-1-{request['mount'].strip('/')}-{request['key']}"
        save = next((s for s in self.saves if s.directory == name), None)
        if save is None:
            save = FakeSave(len(self.saves) + 1, request["mount"], request["step"], name)
            self.saves.append(save)
        return {"save": save.number, "directory": save.directory, "root": str(self.root(save.mount))}

    def _report_save(self, request: dict[str, Any]) -> dict[str, Any]:
        save = self.saves[request["save"] - 1]
        save.reports[request["rank"]] = request
        if len(save.reports) == self.world_size and save.published is None:
            self._publish(save, request)
        return self._state(save)

    def _publish(self, save: FakeSave, last: dict[str, Any]) -> None:
        files = [FileEntry.parse(f) for r in sorted(save.reports) for f in save.reports[r]["files"]]
        text = Manifest(
            volume=self.mounts[save.mount], directory=save.directory, format=last["format"], step=save.step,
            metrics=last["metrics"], files=tuple(files), world_size=self.world_size, gang=GANG, attempt=1,
            slot="run/sft", digest="d", created_ms=1, extra=last["extra"]).text()
        put_manifest(self.root(save.mount), save.directory, text)
        save.sha256 = manifest_sha256(text)
        save.published = 1 + sum(s.published is not None for s in self.saves if s.mount == save.mount)
        self.changed.notify_all()

    def _save_state(self, request: dict[str, Any]) -> dict[str, Any]:
        save = self.saves[request["save"] - 1]
        self.changed.wait_for(lambda: save.published is not None or save.error is not None, self.hold_s)
        return self._state(save)

    def _state(self, save: FakeSave) -> dict[str, Any]:
        missing = [] if save.published else [r for r in range(self.world_size) if r not in save.reports]
        return {"save": save.number, "published": save.published, "missing_ranks": missing,
                "error": save.error}

    def _progress(self, request: dict[str, Any]) -> dict[str, Any]:
        self.progress.append(request["progress"])
        return {}
