"""Step 1: a small base model, on the part of the corpus that nothing else uses."""
# ruff: noqa: TID253 (this module is imported on ranks only)

import dataclasses
import time
from typing import Any

import torch

import gangline
from posttrain import corpus
from posttrain.batches import Batches
from posttrain.model import ByteTransformer
from posttrain.recipe import MODEL, PRETRAIN
from posttrain.training import curve, new_optimizer, process_group, train


def run(*, seed: int, steps: int) -> dict[str, Any]:
    """Train a base model from scratch and commit it to the volume mounted at /base.

    Returns:
        The version committed, the loss curve in nats per byte, and the seconds that training took.
    """
    started = time.monotonic()
    with process_group(seed):
        model = ByteTransformer(MODEL)
        losses = torch.full((steps,), float("nan"))
        batches = Batches(corpus.text(corpus.PRETRAIN_PARTS), context=MODEL.context,
                          sequences=PRETRAIN.sequences, seed=seed)

        def tell(done: int) -> None:
            gangline.report_progress(done, steps, loss=losses[done - 1].item())

        train(model, batches, dataclasses.replace(PRETRAIN, steps=steps), optimizer=new_optimizer(model),
              losses=losses, after_step=tell)
        version = gangline.save_checkpoint({"model": model}, step=steps, mount="/base",
                                           metrics={"loss": losses[-1].item()},
                                           extra={"curve": curve(losses), "seed": seed})
    return {"version": version.version, "curve": curve(losses), "seconds": time.monotonic() - started}
