"""The whole pipeline as a plain Python program: `python -m posttrain.pipeline`."""

import argparse
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markdown import Markdown

import gangline
from posttrain import corpus, plot, recipe, steps
from posttrain.promote import promote, publish_base, published_base


def run(client: gangline.Client, *, seed: int = 0, name: str | None = None, out: Path | None = None,
        console: Console | None = None) -> dict[str, Any]:
    """Pretrain if need be, fine-tune, evaluate on every package at once, promote.

    Args:
        name: of this run. A run of the same name goes on where an earlier one of the same code stopped.
        out: where to draw the loss curve.

    Returns:
        The versions of base and adapter, the loss curve, the scores, and the decision.
    """
    console = console or Console()
    base = base_model(client, seed, console, name)

    console.print("fine-tuning on 4 nodes ...")
    finetune = steps.finetune.options(slot=slot(name, "finetune"), volumes=steps.mounts(base=base))
    tuned = finetune.remote(seed=seed)
    console.print(f"adapter@{tuned['version']} after {tuned['seconds']:.0f} s")

    packages = (*corpus.HELDOUT_PARTS, *corpus.OTHER_PARTS)
    console.print(f"evaluating on {len(packages)} packages ...")
    evaluate = steps.evaluate.options(slot=slot(name, "evaluate"),
                                      volumes=steps.mounts(base=base, adapter=tuned["version"]))
    scores = evaluate.map(packages, seed=seed)
    decision = promote(client, tuned["version"], scores)

    console.print(Markdown(plot.score_table(scores)))
    console.print(f"adapter@best {'is now' if decision['promoted'] else 'does not move to'} "
                  f"adapter@{tuned['version']}")
    if out is not None:
        plot.loss_curve(tuned["curve"], out)
    return {"base": base, "curve": tuned["curve"], "scores": scores, "decision": decision}


def base_model(client: gangline.Client, seed: int, console: Console, name: str | None = None) -> int:
    """The version of the base model for this recipe: an earlier run's, or a new one."""
    recipe_name = recipe.base_name(seed, recipe.PRETRAIN.steps)
    version = published_base(client, recipe_name)
    if version is not None:
        console.print(f"base@{version} is there already ({recipe_name})")
        return version
    console.print("pretraining the base model ...")
    trained = steps.pretrain.options(slot=slot(name, "pretrain")).remote(seed=seed)
    publish_base(client, recipe_name, trained["version"])
    console.print(f"base@{trained['version']} after {trained['seconds']:.0f} s ({recipe_name})")
    return trained["version"]


def slot(name: str | None, step: str) -> str | None:
    """The place of one step of a named run; a run without a name has none, and is new every time."""
    return f"posttrain/{name}/{step}" if name else None


def main() -> None:
    """Run the pipeline on the server that `GANGLINE_URL` or `GANGLINE_HOME` names."""
    parser = argparse.ArgumentParser(prog="posttrain.pipeline", description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--run", help="name of the run: give it again to go on where it stopped")
    parser.add_argument("--plot", type=Path, help="where to draw the loss curve (PNG)")
    options = parser.parse_args()
    with gangline.connect() as client:
        run(client, seed=options.seed, name=options.run, out=options.plot)


if __name__ == "__main__":
    main()
