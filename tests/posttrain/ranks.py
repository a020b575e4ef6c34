"""Two forked ranks train an adapter: through, in two halves, and alone. Prints what came out as JSON.

A program of its own, so that the ranks are forked from a process whose torch has no threads yet.
"""
# ruff: noqa: TID253

import contextlib
import json
import os
import socket
import sys
import tempfile
from pathlib import Path

import torch
import torch._dynamo  # any optimizer imports it; once here is faster than in every rank

from posttrain import corpus
from posttrain.batches import Batches
from posttrain.lora import adapter_state, add_adapter
from posttrain.model import ByteTransformer
from posttrain.recipe import MODEL, TrainConfig
from posttrain.training import new_optimizer, process_group, train

CONFIG = TrainConfig(steps=12, sequences=4, learning_rate=2e-2, warmup_steps=2)
HALF = 6


class Stopped(Exception):
    """The run was interrupted."""


def main(folder: Path) -> None:
    """Run the three, one after the other, and print their losses and the adapter's sums."""
    half = folder / "half.pt"
    results = {"through": run_ranks(2, folder / "a"),
               "first half": run_ranks(2, folder / "b", stop_at=HALF, save_to=half),
               "second half": run_ranks(2, folder / "c", load_from=half),
               "alone": run_ranks(1, folder / "d")}
    json.dump(results, sys.stdout)


def run_ranks(world_size: int, folder: Path, **options) -> dict:
    """Fork the ranks, wait for them, and return what rank 0 left in `folder`."""
    folder.mkdir()
    pids = []
    port = free_port()
    for rank in range(world_size):
        if (pid := os.fork()) == 0:
            os.environ.update(RANK=str(rank), WORLD_SIZE=str(world_size), MASTER_ADDR="127.0.0.1",
                              MASTER_PORT=str(port), GLOO_SOCKET_IFNAME="lo")
            run_rank(folder, **options)
            os._exit(0)
        pids.append(pid)
    if any(os.waitpid(pid, 0)[1] for pid in pids):
        sys.exit("a rank failed")
    return json.loads((folder / "result.json").read_text())


def run_rank(folder: Path, *, stop_at: int | None = None, save_to: Path | None = None,
             load_from: Path | None = None) -> None:
    with process_group(seed=0) as (rank, _):
        model = ByteTransformer(MODEL)
        add_adapter(model, rank=2)
        optimizer = new_optimizer(model)
        losses = torch.full((CONFIG.steps,), float("nan"))
        start = load(load_from, model, optimizer) if load_from is not None else 0
        batches = Batches(corpus.text(("queue",)), context=MODEL.context, sequences=CONFIG.sequences, seed=0)
        with contextlib.suppress(Stopped):
            train(model, batches, CONFIG, optimizer=optimizer, losses=losses, start=start,
                  after_step=lambda done: stop(done, stop_at))
        if rank == 0:
            if save_to is not None:
                torch.save({"adapter": adapter_state(model), "optimizer": optimizer.state_dict(),
                            "step": stop_at}, save_to)
            sums = {name: tensor.abs().sum().item() for name, tensor in adapter_state(model).items()}
            result = {"losses": losses[~losses.isnan()].tolist(), "sums": sums}
            (folder / "result.json").write_text(json.dumps(result))


def stop(done: int, stop_at: int | None) -> None:
    if done == stop_at:
        raise Stopped


def load(path: Path, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> int:
    saved = torch.load(path)
    adapter = adapter_state(model)
    for name, tensor in saved["adapter"].items():
        adapter[name].copy_(tensor)
    optimizer.load_state_dict(saved["optimizer"])
    return saved["step"]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        main(Path(name))
