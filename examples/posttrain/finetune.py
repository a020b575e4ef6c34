"""Step 2: an adapter for one domain, trained by a gang that may lose any of its ranks."""
# ruff: noqa: TID253 (this module is imported on ranks only)

import dataclasses
import time
from typing import Any

import torch

import gangline
from posttrain import corpus
from posttrain.batches import Batches
from posttrain.lora import adapter_state, add_adapter
from posttrain.model import ByteTransformer
from posttrain.recipe import ADAPTER_RANK, FINETUNE, MODEL
from posttrain.training import curve, new_optimizer, process_group, train


def run(*, seed: int, steps: int, save_every: int) -> dict[str, Any]:
    """Train an adapter for the base model at /base; every `save_every` steps, commit it to /adapter.

    When the gang is interrupted, its next attempt goes on from the last commit: the adapter, the
    optimizer and the losses are in it, and the step is the position in the data.

    Returns:
        The last version committed, the loss curve in nats per byte, the step this attempt began at,
        and the seconds it took.
    """
    started = time.monotonic()
    with process_group(seed):
        model = ByteTransformer(MODEL)
        gangline.load_checkpoint({"model": model}, mount="/base")
        add_adapter(model, rank=ADAPTER_RANK)
        optimizer = new_optimizer(model)
        losses = torch.full((steps,), float("nan"))
        state = {"adapter": adapter_state(model), "optimizer": optimizer, "losses": losses}
        start = gangline.load_checkpoint(state, mount="/adapter") or 0

        def save(done: int) -> Any:
            return gangline.save_checkpoint(state, step=done, mount="/adapter",
                                            metrics={"loss": losses[done - 1].item()},
                                            extra={"curve": curve(losses), "seed": seed})

        def after_step(done: int) -> None:
            gangline.report_progress(done, steps, loss=losses[done - 1].item())
            if done % save_every == 0 and done < steps:
                save(done)

        batches = Batches(corpus.text(corpus.FINETUNE_PARTS), context=MODEL.context,
                          sequences=FINETUNE.sequences, seed=seed)
        train(model, batches, dataclasses.replace(FINETUNE, steps=steps), optimizer=optimizer,
              losses=losses, start=start, after_step=after_step)
        version = save(steps)
    return {"version": version.version, "curve": curve(losses), "resumed_at": start,
            "seconds": time.monotonic() - started}
