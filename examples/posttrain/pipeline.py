"""The whole pipeline as a plain Python program: `python -m posttrain.pipeline`."""

import argparse
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markdown import Markdown

import gangline
from posttrain import corpus, plot, recipe, steps
from posttrain.promote import promote, publish_base, published_base


def run(client: gangline.Client, *, seed: int = 0, out: Path | None = None,
        console: Console | None = None) -> dict[str, Any]:
    """Pretrain if need be, fine-tune, evaluate on every package at once, promote.

    Returns:
        The versions of base and adapter, the loss curve, the scores, and the decision.
    """
    console = console or Console()
    base = base_model(client, seed, console)

    console.print("fine-tuning on 4 nodes ...")
    tuned = steps.finetune.options(volumes=steps.mounts(base=base)).remote(seed=seed)
    console.print(f"adapter@{tuned['version']} after {tuned['seconds']:.0f} s")

    packages = (*corpus.HELDOUT_PARTS, *corpus.OTHER_PARTS)
    console.print(f"evaluating on {len(packages)} packages ...")
    judge = steps.evaluate.options(volumes=steps.mounts(base=base, adapter=tuned["version"]))
    scores = judge.map(packages, seed=seed)
    decision = promote(client, tuned["version"], scores)

    console.print(Markdown(plot.score_table(scores)))
    console.print(f"adapter@best {'is now' if decision['promoted'] else 'does not move to'} "
                  f"adapter@{tuned['version']}")
    if out is not None:
        plot.loss_curve(tuned["curve"], out)
    return {"base": base, "adapter": tuned["version"], "curve": tuned["curve"], "scores": scores, **decision}


def base_model(client: gangline.Client, seed: int, console: Console) -> int:
    """The version of the base model for this recipe: an earlier run's, or a new one."""
    name = recipe.base_name(seed, recipe.PRETRAIN.steps)
    version = published_base(client, name)
    if version is not None:
        console.print(f"base@{version} is there already ({name})")
        return version
    console.print("pretraining the base model ...")
    trained = steps.pretrain.remote(seed=seed)
    publish_base(client, name, trained["version"])
    console.print(f"base@{trained['version']} after {trained['seconds']:.0f} s ({name})")
    return trained["version"]


def main() -> None:
    """Run the pipeline on the server that `GANGLINE_URL` or `GANGLINE_HOME` names."""
    parser = argparse.ArgumentParser(prog="posttrain.pipeline", description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--plot", type=Path, default=Path("loss.png"), help="where to draw the loss curve")
    options = parser.parse_args()
    with gangline.connect() as client:
        run(client, seed=options.seed, out=options.plot)


if __name__ == "__main__":
    main()
