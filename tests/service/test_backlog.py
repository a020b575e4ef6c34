"""A big fleet under a big backlog: what waits costs a pass no writes, and whoever asks is answered meanwhile."""

from __future__ import annotations

import time
from collections import Counter

import pytest
from backlog_world import Backlog, backlog, resident_mib
from pictures import assert_same
from sqlalchemy import Connection, event

from gangline.service import loop as loop_service

NODES, SINGLES, GANGS = 2_000, 10_000, 100
WINDOW_S = 5.0


def written(world: Backlog) -> Counter[str]:
    """How many rows each kind of statement writes from now on."""
    found: Counter[str] = Counter()

    @event.listens_for(world.store.engine, "before_cursor_execute")
    def count(conn: Connection, cursor: object, text: str, values: object, context: object, many: bool) -> None:
        words = text.split()
        if words[0] in ("INSERT", "UPDATE", "DELETE"):
            found[f"{words[0]} {words[2] if words[0] != 'UPDATE' else words[1]}"] += len(values) if many else 1  # type: ignore[arg-type]

    return found


@pytest.mark.slow
def test_a_backlog_costs_little_and_everybody_is_answered() -> None:
    with backlog(NODES) as world:
        world.loop.picture.refresh()
        world.fill(SINGLES, GANGS)
        while world.loop.pass_once() is not None and world.loop.planning.last.placements:
            pass
        queue = len(world.loop.picture.snapshot(0).queue)
        assert queue > SINGLES - NODES
        rows = written(world)
        world.submit([{"name": "late", "gpu": "H100:8"}])
        world.loop.pass_once()
        assert "UPDATE gangs" not in rows
        assert sum(rows.values()) < 300, rows
        world.loop.picture.promise(())  # what the last pass expected is in memory alone
        assert_same(world.loop.picture.snapshot(0), loop_service.snapshot(world.store, world.fleet, now_ms=0))

        world.times.taken_ms.clear()
        world.loop.start()
        with world.asking(0.02):
            until_s = time.monotonic() + WINDOW_S
            while time.monotonic() < until_s:
                world.submit([{"name": "eval-1", "gpu": "H100:8"}] * 20)
        for what in sorted(world.times.taken_ms):
            print(f"{what:8} p50 {world.times.percentile(what, 0.5):6.1f} ms  "
                  f"p99 {world.times.percentile(what, 0.99):6.1f} ms")
        print(f"{resident_mib():.0f} MiB")
