"""Views for rendering, made of as little as each test needs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.text import Text

import gangline.model
from gangline.model.gang import (
    AttemptView,
    End,
    GangView,
    Holder,
    NodeShare,
    RankView,
    Resume,
    UsageRow,
    Wait,
)
from gangline.model.spec import GangSpec
from gangline.model.states import Cause, GangState

SOURCE_ROOT = str(Path(gangline.model.__file__).parents[2])  # absolute, for programs that run elsewhere
T0 = 1_700_000_000_000
HOUR_MS = 3_600_000


def plain(lines: list[Text]) -> str:
    return "\n".join(line.plain for line in lines)


def gang(state: GangState = GangState.RUNNING, **fields: Any) -> GangView:
    spec = GangSpec.parse({"name": "sft", "size": 2, "gpu": "H100:8", "rdma": True, "function": "train:main",
                           "args": {"lr": 0.001}, "volumes": {"/ckpt": "sft"}})
    values = {"gang": "g-aaaaaaaaaaaa", "name": "sft", "slot": "daily/sft", "epoch": 0, "tenant": "default",
              "state": state, "spec": spec, "digest": "d", "submitted_ms": T0, "changed_ms": T0 + 60_000}
    return GangView(**{**values, **fields})


def attempt(number: int = 1, **fields: Any) -> AttemptView:
    nodes = tuple(NodeShare(node=f"n{i}", address=f"127.0.0.{i}", gpus=tuple(range(8)), gpu_type="H100")
                  for i in (1, 2))
    values = {"number": number, "nodes": nodes, "zone": "z1", "fabric": "ib-1", "started_ms": T0 + 30_000}
    return AttemptView(**{**values, **fields})


def ranks(count: int = 2, **fields: Any) -> tuple[RankView, ...]:
    values = {"local_rank": 0, "state": "running", **fields}
    return tuple(RankView(rank=i, node=f"n{i + 1}", **values) for i in range(count))


def waiting() -> Wait:
    holder = Holder(gang="g-bbbbbbbbbbbb", name="eval", slot="daily/eval", tenant="research")
    return Wait(code="busy", text="needs 2 x H100:8; 1 of 2 is free", short=1, earliest_ms=T0 + 150_000,
                blocked_by=(holder,))


BOOM = End(cause=Cause.USER, text="rank 1 ended with exit code 1: RuntimeError: boom", rank=1, node="n2",
           exit_code=1, last_lines=("Traceback:", "RuntimeError: boom"))
GONE = End(cause=Cause.LOST, text="node n2 was lost: its supervisor died", node="n2")
RESUME = (Resume(mount="/ckpt", volume="sft", version=3),)


def used(cause: str, gpu_ms: int, cost_nano: int) -> UsageRow:
    return UsageRow(by={"cause": cause, "gang": "g-aaaaaaaaaaaa"}, gpu_ms=gpu_ms, node_ms=gpu_ms // 8,
                    cost_nano=cost_nano, currency="USD")
