"""What the benchmarks' gangs run on every rank."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gangline

# As a model's are: torch plans a sharded tensor in time and memory that grow with its first dimension.
LAYERS, COLUMNS = 16, 4096


def first_line(folder: str) -> None:
    """The same as first_line.py, as a function."""
    began_ns = time.time_ns()
    mark(folder, began_ns)


def hold(folder: str) -> None:
    """Leave this rank's pid and stay until killed."""
    mark(folder, os.getpid())
    while True:
        time.sleep(3600)


def mark(folder: str, value: int) -> None:
    path = Path(folder, os.environ["RANK"])
    fresh = path.with_suffix(".tmp")
    fresh.write_text(str(value))
    fresh.rename(path)


def save_in_turn(folder: str, part_bytes: int, rounds: int) -> dict[str, list[float]]:
    """Seconds until all ranks have kept `part_bytes` each, raw, as plain files and as DCP, in turn.

    The first turn warms up and is left out.
    """
    import torch
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Shard

    dist.init_process_group("gloo")
    layers = torch.rand(LAYERS, part_bytes // LAYERS // 4 // COLUMNS, COLUMNS)
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    state = {f"layer-{i}": DTensor.from_local(layer.clone(), mesh, [Shard(0)], run_check=False)
             for i, layer in enumerate(layers)}
    data = memoryview(layers.numpy()).cast("B")
    seconds: dict[str, list[float]] = {"raw": [], "plain": [], "dcp": []}
    for turn in range(rounds + 1):
        ways: dict[str, Callable[[], Any]] = {
            "raw": lambda: write_raw(Path(folder), data),
            "plain": lambda: write_plain(data),
            "dcp": lambda turn=turn: gangline.save_checkpoint(state, step=turn),
        }
        for name, way in ways.items():
            took_s = together_s(way)
            clear(Path(folder))
            if turn:
                seconds[name].append(took_s)
    dist.destroy_process_group()
    return seconds


def write_raw(folder: Path, data: memoryview) -> None:
    with open(folder / f"raw-{os.environ['RANK']}", "wb", buffering=0) as file:
        left = data
        while left:
            left = left[file.write(left):]
        os.fsync(file.fileno())


def write_plain(data: memoryview) -> None:
    with gangline.new_version() as path:
        (path / "part").write_bytes(data)


def together_s(way: Callable[[], Any]) -> float:
    """How long the slowest rank takes, from a common start."""
    import torch
    import torch.distributed as dist

    dist.barrier()
    began_s = time.perf_counter()
    way()
    took = torch.tensor(time.perf_counter() - began_s, dtype=torch.float64)
    dist.all_reduce(took, dist.ReduceOp.MAX)
    return float(took)


def clear(folder: Path) -> None:
    """Remove this rank's bytes again, so that a bench needs the disk of one save, not of all."""
    import torch.distributed as dist

    dist.barrier()
    if dist.get_rank() == 0:
        root = Path(gangline.cluster_info().volumes["/ckpt"].root)
        for top in (folder, root):
            for path in top.rglob("*"):
                if path.is_file() and path.name != "manifest.json":
                    path.unlink()
    dist.barrier()
