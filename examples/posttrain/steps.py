"""The steps of the pipeline, as gangs. Importing this module does not import torch.

Each function runs once per rank; the value of rank 0 is the result. A step that reads a model is told
which version by its mounts: `finetune.options(volumes=mounts(base=3))`.
"""

from typing import Any

import gangline
from posttrain.recipe import FINETUNE, PRETRAIN, SAVE_EVERY_STEPS

BASE, ADAPTER = "base", "adapter"  # the volumes


def mounts(*, base: int, adapter: int | None = None) -> dict[str, dict[str, str]]:
    """Volumes for a step that starts from version `base` and, if given, from version `adapter`."""
    seed = {"from": f"{ADAPTER}@{adapter}"} if adapter is not None else {}
    return {"/base": {"volume": BASE, "from": f"{BASE}@{base}"}, "/adapter": {"volume": ADAPTER, **seed}}


@gangline.clustered(name="pretrain", gpu="H100:2", volumes={"/base": BASE}, timeout="20m")
def pretrain(seed: int = 0, steps: int = PRETRAIN.steps) -> dict[str, Any]:
    """Train the base model on 2 GPUs of one node."""
    from posttrain.pretrain import run

    return run(seed=seed, steps=steps)


@gangline.clustered(name="finetune", size=4, gpu="H100:8", ranks_per_node=2, rdma=True, timeout="20m",
                    volumes={"/base": BASE, "/adapter": ADAPTER})
def finetune(seed: int = 0, steps: int = FINETUNE.steps,
             save_every: int = SAVE_EVERY_STEPS) -> dict[str, Any]:
    """Train the adapter on 4 nodes."""
    from posttrain.finetune import run

    return run(seed=seed, steps=steps, save_every=save_every)


@gangline.clustered(name="evaluate", gpu="L40S:1", timeout="10m",
                    volumes={"/base": BASE, "/adapter": ADAPTER})
def evaluate(package: str, seed: int = 0) -> dict[str, Any]:
    """Score base and adapter on one package, on one GPU."""
    from posttrain.evaluate import run

    return run(package, seed=seed)
