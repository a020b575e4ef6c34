"""The training loop that pretraining and fine-tuning share, on one rank or many."""
# ruff: noqa: TID253 (this module is imported on ranks only)

import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from posttrain.batches import Batches
from posttrain.model import next_byte_loss
from posttrain.recipe import TrainConfig


@contextmanager
def process_group(seed: int) -> Iterator[tuple[int, int]]:
    """Join the other ranks and yield (rank, world_size); everything random follows from `seed`.

    A process that nobody launched as a rank is a world of one.
    """
    torch.manual_seed(seed)
    torch.set_num_threads(1)  # the ranks of a machine share its cores
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield 0, 1
        return
    dist.init_process_group("gloo")
    try:
        yield dist.get_rank(), dist.get_world_size()
    finally:
        dist.destroy_process_group()


def new_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    """AdamW over the parameters of `model` that learn; `train` sets its learning rate at every step."""
    learning = [parameter for parameter in model.parameters() if parameter.requires_grad]
    return torch.optim.AdamW(learning, betas=(0.9, 0.95), weight_decay=0.0, fused=True)


def train(model: nn.Module, batches: Batches, config: TrainConfig, *, optimizer: torch.optim.Optimizer,
          losses: torch.Tensor, start: int = 0, after_step: Callable[[int], None] = lambda _: None) -> None:
    """Take the steps from `start` to `config.steps`, in place.

    Args:
        losses: [config.steps]; the mean loss over all ranks, in nats per byte, is written at each step.
        after_step: called on every rank after each step with the number of steps done.
    """
    rank, world_size = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    wrapped = DistributedDataParallel(model) if world_size > 1 else model
    for step in range(start, config.steps):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, config)
        inputs, targets = batches.at(step, rank=rank, world_size=world_size)
        loss = next_byte_loss(wrapped(inputs), targets)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses[step] = mean_over_ranks(loss.detach(), world_size)
        after_step(step + 1)


def learning_rate(step: int, config: TrainConfig) -> float:
    """Up in a line over the warm-up, level, and down in a line over the second half."""
    warm = (step + 1) / config.warmup_steps
    left = (config.steps - step) / (config.steps / 2)
    return config.learning_rate * min(1.0, warm, left)


def mean_over_ranks(value: torch.Tensor, world_size: int) -> torch.Tensor:
    """The mean of a scalar over all ranks, the same on each."""
    if world_size > 1:
        dist.all_reduce(value)
    return value / world_size


def curve(losses: torch.Tensor, points: int = 100) -> list[list[float]]:
    """The losses so far as at most `points` pairs (steps done, mean loss since the point before)."""
    known = losses[~losses.isnan()]
    size = max(1, math.ceil(len(known) / points))
    done, pairs = 0, []
    for part in known.split(size):
        done += len(part)
        pairs.append([done, round(part.mean().item(), 6)])
    return pairs
