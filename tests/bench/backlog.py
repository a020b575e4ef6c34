"""How long requests take while passes run over a big fleet and a big backlog."""

from __future__ import annotations

import time

from backlog_world import Backlog, backlog, resident_mib
from lab import Lab
from table import Row

ABOUT = "requests while passes run: 10,000 nodes, 100,000 waiting singles and 1,000 gangs (takes minutes)"
NODES, SINGLES, GANGS = 10_000, 100_000, 1_000
WINDOW_S = 60.0
FEW = 20  # gangs a pipeline submits at once while the backlog stands
MOST_MS = 100.0


def run(lab: Lab) -> list[Row]:
    with backlog(NODES) as world:
        lab.say(f"backlog: submitting {SINGLES + GANGS:,} gangs")
        began_s = time.monotonic()
        world.loop.picture.begin()
        world.fill(SINGLES, GANGS)
        filled_s = time.monotonic() - began_s
        began_s = time.monotonic()
        world.loop.picture.refresh()
        read_s = time.monotonic() - began_s
        world.times.taken_ms.clear()
        world.loop.start()
        lab.say("backlog: asking while passes run")
        with world.asking(0.02):
            until_s = time.monotonic() + WINDOW_S
            while time.monotonic() < until_s:
                world.submit([{"name": "eval-1", "gpu": "H100:8"}] * FEW)
                time.sleep(0.2)
        return [*_rows(world),
                Row(what=f"{SINGLES + GANGS:,} gangs submitted in batches", ours=(filled_s,)),
                Row(what=f"{SINGLES + GANGS:,} gangs read by the loop, nobody asking", ours=(read_s,)),
                Row(what="memory of the server's side", ours=(resident_mib(),), unit="MiB")]


def _rows(world: Backlog) -> list[Row]:
    names = {"submit": f"submit {FEW} gangs", "observe": "observe a gang", "explain": "explain a gang",
             "cancel": "cancel a gang"}
    rows = []
    for what, name in names.items():
        if what in world.times.taken_ms:
            rows.append(Row(what=f"{name}, p99", ours=(world.times.percentile(what, 0.99),), unit="ms", most=MOST_MS))
            rows.append(Row(what=f"{name}, p50", ours=(world.times.percentile(what, 0.5),), unit="ms"))
    return rows
