"""What the ranks of the tests do; each takes (rank, world) and returns JSON."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

from gangline.model.errors import GanglineError
from gangline.runtime.checkpoint import load_checkpoint, read_dcp, save_checkpoint, write_dcp
from gangline.runtime.info import cluster_info
from gangline.runtime.stopping import stop_requested
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


def stops_and_saves(rank: int, world: int, store: str, victim: int) -> dict[str, Any]:
    """Steps that rank `victim` is asked to end; each rank steps at its own pace between two questions."""
    _join(rank, world, store)
    step = 0
    while not stop_requested():
        step += 1
        time.sleep(0.001 * rank)
        if rank == victim and step == 5:
            os.kill(os.getpid(), signal.SIGTERM)
    save_checkpoint(_state(world, filled=True), step=step)
    return {"saved": step, "again": stop_requested()}


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


def dcp_alone(rank: int, world: int, directory: str) -> dict[str, Any]:
    import torch

    state = {"big": torch.rand(700_000), "small": torch.rand(3), "n": 5, "none": None}
    entries = write_dcp(state, Path(directory), 0, 1)
    back: dict[str, Any] = {"big": torch.zeros(700_000), "small": torch.zeros(3), "n": 0, "none": 1}
    read_dcp(back, Path(directory))
    return {"entries": [(e.path, e.bytes, e.sha256) for e in entries],
            "back": {"equal": torch.equal(back["big"], state["big"]), "n": back["n"], "none": back["none"]}}


def optimizer_alone(rank: int, world: int, given: str) -> dict[str, Any]:
    import torch

    def fresh() -> tuple[Any, Any]:
        model = torch.nn.Linear(4, 4)
        return model, torch.optim.AdamW(model.parameters(), lr=0.1)

    model, optimizer = fresh()
    model(torch.ones(4)).sum().backward()
    optimizer.step()
    optimizer.param_groups[0]["lr"] = 0.02
    save_checkpoint({"model": model, "optimizer": optimizer, "order": {3: "c", 4: "d"}}, step=5)

    other, momentless = fresh()
    states: dict[str, dict[str, Any]] = {
        "objects": {"model": other, "optimizer": momentless, "order": {3: "", 4: ""}},
        "state_dicts": {"model": other.state_dict(), "optimizer": momentless.state_dict(), "order": {}},
        "nothing": {}}
    state = states[given]
    step = load_checkpoint(state, version=1)
    if given != "objects":
        other.load_state_dict(state["model"])
        momentless.load_state_dict(state["optimizer"])
    got, want = momentless.state_dict(), optimizer.state_dict()
    moments = [torch.equal(got["state"][i][k], want["state"][i][k]) for i in (0, 1) for k in want["state"][i]]
    return {"step": step, "weight": torch.equal(other.weight, model.weight), "keys": list(got["state"]),
            "param_groups": got["param_groups"] == want["param_groups"], "moments": all(moments),
            "order": list(state["order"].items())}


def unfit_alone(rank: int, world: int, directory: str) -> list[dict[str, Any]]:
    import torch

    write_dcp({"w": torch.ones(3)}, Path(directory), 0, 1)
    return [_refusal(lambda: read_dcp({"v": torch.ones(3)}, Path(directory))),
            _refusal(lambda: read_dcp({"w": torch.ones(4)}, Path(directory)))]


def _refusal(work: Any) -> dict[str, Any]:
    try:
        work()
    except GanglineError as exc:
        return exc.to_wire()
    return {"kind": "nothing was refused"}
