"""Every number of this example, in one place. Needs no torch, so that pipeline definitions may import it."""

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path

from posttrain import corpus


@dataclass(frozen=True)
class ModelConfig:
    """The shape of the transformer: about 0.66 million parameters."""

    width: int = 128
    layers: int = 3
    heads: int = 4
    context: int = 128  # bytes


@dataclass(frozen=True)
class TrainConfig:
    """One training run. `sequences` is the batch of all ranks together, whatever their number."""

    steps: int
    sequences: int
    learning_rate: float
    warmup_steps: int = 20


MODEL = ModelConfig()
PRETRAIN = TrainConfig(steps=600, sequences=8, learning_rate=4e-3)
FINETUNE = TrainConfig(steps=120, sequences=16, learning_rate=1e-2)
ADAPTER_RANK = 8
SAVE_EVERY_STEPS = 30
EVALUATE_WINDOWS = 128  # of MODEL.context bytes each: 16 KiB of every package

_CODE_OF_BASE = ("batches.py", "corpus.py", "model.py", "pretrain.py", "training.py")


def base_name(seed: int, steps: int) -> str:
    """The name under which a base model is published: the same code, corpus and seed give the same name."""
    here = Path(__file__).parent
    parts = {
        "code": [hashlib.sha256((here / name).read_bytes()).hexdigest() for name in _CODE_OF_BASE],
        "corpus": corpus.digest(corpus.PRETRAIN_PARTS),
        "model": asdict(MODEL),
        "train": asdict(PRETRAIN),
        "seed": seed,
        "steps": steps,
    }
    return "recipe-" + hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:12]
