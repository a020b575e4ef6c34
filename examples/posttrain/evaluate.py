"""Step 3: how well a model predicts a package it has never seen."""
# ruff: noqa: TID253 (this module is imported on ranks only)

import math
import time
from typing import Any

import torch
from torch import nn

import gangline
from posttrain import corpus
from posttrain.batches import Batches
from posttrain.lora import adapter_state, add_adapter
from posttrain.model import ByteTransformer, next_byte_loss
from posttrain.recipe import ADAPTER_RANK, EVALUATE_WINDOWS, MODEL
from posttrain.training import process_group

BATCH = 32


def run(package: str, *, seed: int) -> dict[str, Any]:
    """Bits per byte of `package` under the base at /base, without and with the adapter at /adapter.

    The sample is the same for the same seed: at most `EVALUATE_WINDOWS` windows of the package.
    """
    started = time.monotonic()
    with process_group(seed):
        inputs, targets = sample(package, seed=seed)
        model = ByteTransformer(MODEL)
        gangline.load_checkpoint({"model": model}, mount="/base")
        base = bits_per_byte(model, inputs, targets)
        add_adapter(model, rank=ADAPTER_RANK)
        gangline.load_checkpoint({"adapter": adapter_state(model)}, mount="/adapter")
        adapter = bits_per_byte(model, inputs, targets)
    return {"package": package, "bytes": targets.numel(), "base": base, "adapter": adapter,
            "seconds": time.monotonic() - started}


def sample(package: str, *, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs and targets drawn from a package without repetition: each [windows, context]."""
    text = corpus.text((package,))
    windows = min(EVALUATE_WINDOWS, (len(text) - 1) // MODEL.context)
    return Batches(text, context=MODEL.context, sequences=windows, seed=seed).at(0)


@torch.no_grad()
def bits_per_byte(model: nn.Module, inputs: torch.Tensor, targets: torch.Tensor) -> float:
    """Mean over all bytes of [windows, context]; each is predicted from those before it in its window."""
    nats = sum(next_byte_loss(model(x), y).item() * y.numel()
               for x, y in zip(inputs.split(BATCH), targets.split(BATCH), strict=True))
    return nats / targets.numel() / math.log(2)
