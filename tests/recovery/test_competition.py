"""Two gangs that each need the whole fleet, submitted at once from two processes."""

from __future__ import annotations

import subprocess
import sys

from fleet_world import SUPPORT, World

from gangline.model.states import GangState

SUBMIT = """
import sys
from pathlib import Path
import gangline, gang_work
from gangline.client.submission import Origin, prepare, submit
home, marks, slot = sys.argv[1:]
target = gangline.clustered(name="hold", size=4, gpu="H100:8", ranks_per_node=1)(gang_work.hold)
with gangline.connect(home=home) as client:
    print(submit(client, [prepare(target, {"marks": marks}, origin=Origin(slot=slot, home=Path(home)))])[0].gang)
"""


def test_one_runs_and_the_other_waits_naming_its_holder(world: World) -> None:
    processes = [subprocess.Popen([sys.executable, "-c", SUBMIT, str(world.home), str(world.marks), slot],
                                  stdout=subprocess.PIPE, text=True, cwd=SUPPORT)
                 for slot in ("test:left", "test:right")]
    gangs = [process.communicate(timeout=90)[0].strip() for process in processes]

    def first_runs() -> str | None:
        states = {gang: world.client.observe(gang) for gang in gangs}
        running = [gang for gang, view in states.items() if view.state is GangState.RUNNING]
        waiting = [gang for gang, view in states.items() if view.state is GangState.QUEUED and view.wait is not None]
        return running[0] if len(running) == len(waiting) == 1 else None

    world.until(gangs[0], lambda view: first_runs() is not None, "settled")
    running = first_runs()
    assert running is not None
    waiting = world.client.observe(next(gang for gang in gangs if gang != running))
    assert waiting.wait is not None
    assert [holder.gang for holder in waiting.wait.blocked_by] == [running]
    assert waiting.wait.blocked_by[0].slot == world.client.observe(running).slot
    assert not waiting.attempts, "nothing of it was ever placed"

    (world.marks / "go").touch()
    assert all(world.until_final(gang).state is GangState.SUCCEEDED for gang in gangs)
