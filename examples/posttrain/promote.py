"""Step 4: the names in the volumes. A name moves by compare-and-swap: of two pipelines one wins."""

from statistics import fmean
from typing import Any

import gangline
from posttrain import corpus
from posttrain.steps import ADAPTER, BASE

BEST = "best"


def promote(client: gangline.Client, version: int, scores: list[dict[str, Any]]) -> dict[str, Any]:
    """Point `adapter@best` at `version` if it is better than the base.

    Returns:
        The version, whether it was promoted, and what `compare` says.

    Raises:
        Conflict: somebody else moved the name meanwhile.
    """
    means = compare(scores)
    promoted = means["adapter"] < means["base"]
    if promoted:
        pointer = find_name(client, ADAPTER, BEST)
        client.set_name(ADAPTER, BEST, version, expected_revision=pointer.revision if pointer else 0)
    return {"version": version, "promoted": promoted, **means}


def compare(scores: list[dict[str, Any]]) -> dict[str, float]:
    """Bits per byte of base and adapter: the means over the held-out packages, each counting alike."""
    heldout = [score for score in scores if score["package"] in corpus.HELDOUT_PARTS]
    return {model: fmean(score[model] for score in heldout) for model in ("base", "adapter")}


def published_base(client: gangline.Client, name: str) -> int | None:
    """The version of the base model that was published under `name` before, if it still can be used."""
    pointer = find_name(client, BASE, name)
    if pointer is None:
        return None
    record = next((v for v in client.volume(BASE).versions if v.version == pointer.version), None)
    return record.version if record and not record.damaged else None


def publish_base(client: gangline.Client, name: str, version: int) -> None:
    """Publish a base model under `name`, for other runs of the same recipe to find."""
    client.set_name(BASE, name, version)


def find_name(client: gangline.Client, volume: str, name: str) -> Any:
    """Where a name of a volume points now; None if there is no such volume or name."""
    try:
        return next((p for p in client.volume(volume).names if p.name == name), None)
    except gangline.NotFound:
        return None
