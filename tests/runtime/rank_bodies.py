"""What the ranks of the tests do; each takes (rank, world) and returns JSON."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from gangline.model.errors import GanglineError
from gangline.runtime.checkpoint import load_checkpoint, save_checkpoint, write_dcp
from gangline.runtime.info import cluster_info
from gangline.runtime.versions import new_version
from gangline.volumes.hashing import HashingWriter

ROWS = 16


def json_state(rank: int, world: int) -> dict[str, Any]:
    ref = save_checkpoint({"seen": rank * 10}, step=1, metrics={"loss": 2.5})
    return ref.full()


def json_resume(rank: int, world: int) -> dict[str, Any]:
    state = {"seen": -1}
    return {"step": load_checkpoint(state), "seen": state["seen"]}


def plain_files(rank: int, world: int) -> dict[str, Any]:
    with new_version(step=4) as path:
        if rank % 2 == 0:
            (path / "part.txt").write_text(f"rank {rank}")
    assert path.version is not None
    return path.version.full() | {"path": str(path)}


def one_rank_does_not_save(rank: int, world: int) -> dict[str, Any]:
    if rank == 1:
        return {}
    try:
        save_checkpoint({"i": rank}, step=1, timeout_s=0.3)
    except GanglineError as exc:
        return exc.to_wire()
    return {}


def _join(rank: int, world: int, store: str) -> None:
    import torch.distributed as dist

    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world)


def _state(world: int, *, filled: bool) -> dict[str, Any]:
    """A replicated weight, a sharded one and plain values; zeros to load into."""
    import torch
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    whole = torch.arange(ROWS * 5, dtype=torch.float32).reshape(ROWS, 5)
    replicated = torch.linspace(0, 1, 999)
    mesh = init_device_mesh("cpu", (world,))
    sharded = distribute_tensor(whole if filled else torch.zeros(ROWS, 5), mesh, [Shard(0)])
    return {"model": {"replicated": replicated if filled else torch.zeros(999), "sharded": sharded},
            "epoch": 3 if filled else 0, "note": "x" if filled else ""}


def dcp_save(rank: int, world: int, store: str, step: int = 7) -> dict[str, Any]:
    _join(rank, world, store)
    ref = save_checkpoint(_state(world, filled=True), step=step, metrics={"loss": 0.5}, extra={"at": [1, 2]})
    return ref.full()


def dcp_load(rank: int, world: int, store: str) -> dict[str, Any]:
    import torch

    _join(rank, world, store)
    state, want = _state(world, filled=False), _state(world, filled=True)
    step = load_checkpoint(state)
    equal = (torch.equal(state["model"]["replicated"], want["model"]["replicated"])
             and torch.equal(state["model"]["sharded"].to_local(), want["model"]["sharded"].to_local()))
    return {"step": step, "equal": equal, "epoch": state["epoch"], "note": state["note"],
            "local_rows": state["model"]["sharded"].to_local().shape[0], "world": cluster_info().world_size}


def dcp_killed(rank: int, world: int, store: str, victim: int) -> dict[str, Any]:
    """A second save in which one rank is killed as soon as it has written some bytes of its part."""
    _join(rank, world, store)
    if rank == victim:
        write = HashingWriter.write

        def die(self: HashingWriter, data: Any, /) -> int:
            write(self, data)
            self._file.flush()
            os.kill(os.getpid(), signal.SIGKILL)
            return 0

        HashingWriter.write = die  # type: ignore[method-assign]
    save_checkpoint(_state(world, filled=True), step=8)
    return {}


def dcp_disk_full(rank: int, world: int, store: str, victim: int) -> dict[str, Any]:
    _join(rank, world, store)
    if rank == victim:
        def fail(self: HashingWriter, data: Any, /) -> int:
            raise OSError(28, "No space left on device")

        HashingWriter.write = fail  # type: ignore[method-assign]
    return _refusal(lambda: save_checkpoint(_state(world, filled=True), step=8))


def dcp_steps_differ(rank: int, world: int, store: str) -> dict[str, Any]:
    _join(rank, world, store)
    return _refusal(lambda: save_checkpoint(_state(world, filled=True), step=rank))


def dcp_one_cannot_open(rank: int, world: int, store: str) -> dict[str, Any]:
    _join(rank, world, store)
    if rank == 1:
        os.environ["GANGLINE_SUPERVISOR"] += ".gone"
    return _refusal(lambda: save_checkpoint(_state(world, filled=True), step=1))


def dcp_twice_into_one_directory(rank: int, world: int, store: str, directory: str) -> dict[str, Any]:
    _join(rank, world, store)
    write_dcp(_state(world, filled=True), Path(directory), rank, world)
    return _refusal(lambda: write_dcp(_state(world, filled=False), Path(directory), rank, world))


def tensors_without_group(rank: int, world: int) -> dict[str, Any]:
    import torch

    return _refusal(lambda: save_checkpoint({"x": torch.ones(3)}, step=1))


def _refusal(work: Any) -> dict[str, Any]:
    try:
        work()
    except GanglineError as exc:
        return exc.to_wire()
    return {"kind": "nothing was refused"}
