"""Saving a checkpoint with hash and commit, against writing and syncing the same bytes."""

from __future__ import annotations

from lab import Lab
from table import Row

ABOUT = "256 MB by 4 gloo ranks as a committed version, against raw write + fsync"
NODES = 4
PART_BYTES = 64 << 20
AGAINST = "raw write + fsync"


def run(lab: Lab) -> list[Row]:
    fleet = lab.fleet
    lab.say(f"checkpoint: {lab.rounds} rounds on 4 ranks")
    args = {"folder": str(lab.marks()), "part_bytes": PART_BYTES, "rounds": lab.rounds}
    seconds = fleet.run("rank_work:save_in_turn", args, ranks_per_node=1, volumes={"/ckpt": "bench"})
    raw = tuple(seconds["raw"])
    return [
        Row(what="256 MB checkpoint, plain files", ours=tuple(seconds["plain"]), against=AGAINST, other=raw,
            most_ratio=1.8),
        Row(what="256 MB checkpoint, DCP", ours=tuple(seconds["dcp"]), against=AGAINST, other=raw,
            most_ratio=2.2),
    ]
