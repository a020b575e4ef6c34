"""A fleet of 4 emulated nodes with its own embedded server, in real processes, and nothing left after."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import gang_work
import psutil
import pytest

import gangline
from gangline.client.submission import Origin, prepare, submit
from gangline.model.gang import Ensured, GangView
from gangline.model.states import GangState

FLEET = """
pools:
  - {name: a, gpu: "H100:8", fabric: ib-1, zone: z1, min: 4, max: 4, price_per_gpu_hour: "2.50", emulated: true}
"""
PATIENCE_S = 90.0
SUPPORT = Path(__file__).parent


@dataclass
class World:
    """The fleet under test, and how to look at it."""

    home: Path
    marks: Path
    client: gangline.Client

    def start(self, name: str, slot: str, *, size: int | str = 2, spec: Mapping[str, Any] = MappingProxyType({}),
              **args: Any) -> Ensured:
        """Submit a function of `gang_work`; `spec` are further fields of its spec, the rest its arguments."""
        fields = {"name": name, "gpu": "H100:8", "ranks_per_node": 2, "grace": "2s", "volumes": {"/ckpt": "ckpt"},
                  **spec}
        target = gangline.clustered(size=size, **fields)(getattr(gang_work, name))
        prepared = prepare(target, {"marks": str(self.marks), **args}, origin=Origin(slot=slot, home=self.home))
        return submit(self.client, [prepared])[0]

    def until(self, gang: str, done: Callable[[GangView], bool], what: str) -> GangView:
        """The gang as soon as `done` holds for it, by long polls."""
        deadline, cursor = time.monotonic() + PATIENCE_S, 0
        while time.monotonic() < deadline:
            view = self.client.observe(gang)
            if done(view):
                return view
            cursor = self.client.events(gang, cursor, 0.2).cursor
        raise AssertionError(f"not {what} in {PATIENCE_S:.0f}s: {self.client.observe(gang).model_dump_json(indent=1)}")

    def until_final(self, gang: str) -> GangView:
        return self.until(gang, lambda view: view.state.final, "final")

    def until_step(self, gang: str, step: int) -> GangView:
        return self.until(gang, lambda view: view.state is GangState.RUNNING and (view.progress.step or 0) >= step,
                          f"at step {step}")

    def first_gang(self) -> str:
        """The id of the only gang, once there is one."""
        deadline = time.monotonic() + PATIENCE_S
        while not (gangs := self.client.list()):
            assert time.monotonic() < deadline, "no gang was submitted"
            time.sleep(0.05)
        return gangs[0].gang

    def pids(self, attempt: int) -> dict[int, int]:
        """The pid of each rank of an attempt; 1000 + rank is its orphaned grandchild's."""
        return {int(path.name.split(".")[1]): int(path.read_text()) for path in self.marks.glob(f"{attempt}.*.pid")}

    def supervisors(self) -> dict[str, int]:
        found = {}
        for process in psutil.process_iter(["cmdline"]):
            argv = process.info["cmdline"] or []
            if str(self.home) in argv and "gangline.node" in argv:
                found[argv[argv.index("--node") + 1]] = process.pid
        return found

    def server(self) -> int:
        return self.client.status().pid

    def events(self, gang: str) -> list[str]:
        return [event.kind for event in self.client.events(gang).events]


@contextmanager
def fleet_world(monkeypatch: pytest.MonkeyPatch, fleet: str = FLEET, *, preload: str = "") -> Iterator[World]:
    """A running fleet for one test; fails when anything of it is left afterwards.

    Its template imports the modules of `preload`; ranks that need torch are forked from it then.
    """
    folder = Path(tempfile.mkdtemp(prefix="gl-", dir="/tmp"))
    home, marks = folder / "home", folder / "marks"
    home.mkdir(mode=0o700)
    marks.mkdir()
    (home / "fleet.yaml").write_text(fleet)
    monkeypatch.setenv("GANGLINE_HOME", str(home))
    monkeypatch.setenv("GANGLINE_PRELOAD", preload)
    monkeypatch.delenv("GANGLINE_URL", raising=False)
    with gangline.connect() as client:
        yield World(home, marks, client)
        client.stop(force=True)
    left = wait_gone(home)
    assert not left, f"left behind: {left}"
    shutil.rmtree(folder)


def wait_gone(home: Path) -> list[str]:
    """Processes that name this home, once they had time to leave."""
    deadline = time.monotonic() + 20
    while (left := processes_of(home)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return left


def processes_of(home: Path) -> list[str]:
    found = []
    for process in psutil.process_iter(["cmdline", "pid", "status"]):
        argv = process.info["cmdline"] or []
        if process.pid != os.getpid() and any(str(home) in word for word in argv) \
                and process.info["status"] != psutil.STATUS_ZOMBIE:
            found.append(f"{process.pid} {' '.join(argv)[:200]}")
    return found


def dead(pid: int) -> bool:
    """Whether a process is gone; a corpse nobody has collected is gone too."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
