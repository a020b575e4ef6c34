"""Ranks forked from a template that has imported torch train together."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from node_lab import Lab, end_template, open_lab

from gangline.model.orders import OrderPhase
from gangline.model.states import Cause

TRAIN = """
import os, sys
loaded = "torch" in sys.modules
import torch
import torch.distributed as dist

def train():
    dist.init_process_group("gloo")
    value = torch.tensor([float(dist.get_rank() + 1)])
    dist.all_reduce(value)
    dist.destroy_process_group()
    return {"sum": value.item(), "forked": loaded, "threads": torch.get_num_threads(),
            "random": torch.rand(1).item()}
"""


@pytest.mark.torch
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
def test_warm_ranks_on_two_nodes_reduce(tmp_path: Path) -> None:
    template = tmp_path / "t.sock"
    for lab in open_lab(tmp_path, template, "warm"):
        lab.env["GANGLINE_PRELOAD"] = "torch"
        _train(lab)
    end_template(template)


def _train(lab: Lab) -> None:
    nodes = ("n1", "n2")
    code = lab.snapshot(work=TRAIN)
    tasks = {node: lab.task(nodes, node, ranks=1, function="work:train", snapshot=code) for node in nodes}
    for phase, answer in ((OrderPhase.ASSEMBLE, "ready"), (OrderPhase.START, "started")):
        for node in nodes:
            if phase is OrderPhase.ASSEMBLE:
                lab.supervisor(node)
            lab.order("g-1", phase, tasks[node], node)
        lab.script.wait_report(answer, "g-1", 2, within_s=90)
    exits = lab.script.wait_report("rank_exit", "g-1", 2, within_s=60)
    assert [one.cause for one in exits] == [Cause.SUCCESS] * 2, lab.script.logs
    assert [one.result["sum"] for one in exits] == [3.0, 3.0]
    assert all(one.result["forked"] and one.result["threads"] == 1 for one in exits)
    assert exits[0].result["random"] == exits[1].result["random"]  # torch starts from a fixed seed, always
