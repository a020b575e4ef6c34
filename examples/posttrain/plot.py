"""What a run looks like: the loss curve as a picture, the scores as a table."""

import io
from pathlib import Path
from typing import Any

from posttrain import corpus
from posttrain.promote import compare


def loss_curve(curve: list[list[float]], path: Path | None = None) -> bytes:
    """A PNG of pairs (step, loss in nats per byte); written to `path` as well, if there is one."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 3.5), layout="constrained")
    axes = figure.subplots()
    axes.plot([step for step, _ in curve], [loss for _, loss in curve])
    axes.set(xlabel="step", ylabel="loss (nats per byte)", title="fine-tuning")
    axes.grid(alpha=0.3)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=120)
    if path is not None:
        path.write_bytes(buffer.getvalue())
    return buffer.getvalue()


def score_table(scores: list[dict[str, Any]]) -> str:
    """The scores in bits per byte as a Markdown table: held-out packages, their mean, then the others."""
    heldout = [score for score in scores if score["package"] in corpus.HELDOUT_PARTS]
    others = [score for score in scores if score not in heldout]
    lines = ["| package | base | adapter | change |", "|---|---:|---:|---:|"]
    lines += [_row(score["package"], score) for score in heldout]
    lines.append(_row("**mean**", compare(scores)))
    lines += [_row(f"{score['package']} (another domain)", score) for score in others]
    return "\n".join(lines)


def _row(label: str, score: dict[str, Any]) -> str:
    change = score["adapter"] / score["base"] - 1
    return f"| {label} | {score['base']:.3f} | {score['adapter']:.3f} | {change:+.1%} |"
