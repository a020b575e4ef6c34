"""How soon a gang is down, and said to be, after one of its ranks was killed."""

from __future__ import annotations

import os
import signal
import threading
import time

from lab import PATIENCE_S, Fleet, Lab, read_marks
from table import Row

import gangline
from gangline.model.states import GangState

ABOUT = "kill -9 of one rank of 8, until all ranks are dead and until a watcher knows"
WORLD = 8
VICTIM = 5


def run(lab: Lab) -> list[Row]:
    dead_s, told_s = [], []
    for turn in range(lab.rounds):
        dead, told = _kill_one(lab, lab.fleet)
        dead_s.append(dead)
        told_s.append(told)
        lab.say(f"rank_death: round {turn + 1} of {lab.rounds}: dead {dead:.3f} s, reported {told:.3f} s")
    return [Row(what="rank killed to all 8 ranks dead", ours=tuple(dead_s), most=1.0),
            Row(what="rank killed to attempt's end seen by a watcher", ours=tuple(told_s), most=1.0)]


class _Watcher(threading.Thread):
    """Notes when news of the attempt's end arrives."""

    def __init__(self, fleet: Fleet, gang: str) -> None:
        super().__init__(daemon=True)
        self.client = gangline.connect(home=fleet.home)
        self.gang, self.cursor = gang, fleet.client.events(gang).cursor
        self.told_s: float | None = None

    def run(self) -> None:
        with self.client:
            while self.told_s is None:
                page = self.client.events(self.gang, self.cursor, 20.0)
                self.cursor = page.cursor
                if any(event.kind == "attempt.ended" for event in page.events):
                    self.told_s = time.monotonic()


def _kill_one(lab: Lab, fleet: Fleet) -> tuple[float, float]:
    folder = lab.marks()
    gang, token = fleet.submit("rank_work:hold", {"folder": str(folder)})
    pids = read_marks(folder, WORLD)
    _until_running(fleet, gang)
    watcher = _Watcher(fleet, gang)
    watcher.start()
    began_s = time.monotonic()
    os.kill(pids[VICTIM], signal.SIGKILL)
    deadline = began_s + PATIENCE_S
    while any(map(_alive, pids.values())):
        if time.monotonic() > deadline:
            raise TimeoutError("ranks are alive long after one of them was killed")
        time.sleep(0.001)
    dead_s = time.monotonic() - began_s
    watcher.join(PATIENCE_S)
    if watcher.told_s is None:
        raise TimeoutError("nobody was told of the attempt's end")
    fleet.until_final(gang, token)
    return dead_s, watcher.told_s - began_s


def _until_running(fleet: Fleet, gang: str) -> None:
    deadline, cursor = time.monotonic() + PATIENCE_S, 0
    while fleet.client.observe(gang).state is not GangState.RUNNING:
        if time.monotonic() > deadline:
            raise TimeoutError(f"gang {gang} does not run")
        cursor = fleet.client.events(gang, cursor, 1.0).cursor


def _alive(pid: int) -> bool:
    """Whether it runs; a corpse nobody has collected yet does not."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
