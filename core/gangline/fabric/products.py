"""GPU models as drivers and node labels name them, and the short types that specs use."""

from __future__ import annotations

import re

_MODEL_WORDS = re.compile(r"\b(?:NVIDIA|Tesla|GeForce|Quadro|Graphics|Device)\b")


def gpu_type(model: str) -> str:
    """The short type in a model name: "NVIDIA H100 80GB HBM3" and "NVIDIA-H100-80GB-HBM3" are H100."""
    words = re.split(r"[\s-]+", _MODEL_WORDS.sub(" ", model).strip(" -"))
    known = next((word for word in words if re.fullmatch(r"[A-Z]{1,3}\d{1,4}[A-Z]?", word)), None)
    return known or "-".join(words) or "GPU"
