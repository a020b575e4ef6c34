"""Snapshots compared field by field, whatever order their makers numbered things in."""

from __future__ import annotations

from typing import Any

import numpy as np

from gangline.plan.queue import rank
from gangline.plan.snapshot import Snapshot


def parts(snapshot: Snapshot) -> dict[str, Any]:
    """All that a pass may read of a snapshot, as plain values."""
    fleet, queue = snapshot.fleet, snapshot.queue
    columns = [(queue.kinds[kind], bound, queue.tenants[tenant], *rest)
               for kind, bound, tenant, *rest in queue.columns.T.tolist()]
    return {
        "version": snapshot.version, "pools": snapshot.pools, "tenants": snapshot.tenants,
        "running": snapshot.running, "pending": snapshot.pending, "columns": columns,
        "ranks": [rank(gang) for gang in queue.gangs], "known": [queue.get(gang.gang) for gang in queue.gangs],
        "repairing": {gang.gang for gang in queue.repairing()}, "names": fleet.map.names,
        "values": snapshot.nodes, "virtual": fleet.map.virtual.tolist(), "base": fleet.base.tolist(),
        "idle": np.where(fleet.map.virtual, 0, fleet.idle).tolist(), "until": fleet.until.tolist(),
        "free": fleet.free.tolist(), "busy_until": fleet.busy_until.tolist()}


def assert_same(one: Snapshot, other: Snapshot) -> None:
    """Names the first part in which two snapshots differ."""
    left, right = parts(one), parts(other)
    for name, value in left.items():
        assert value == right[name], f"{name} differs"
