"""A picture of a comparison: utilisation and queue over time, and waits by gang size."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gangline.model.errors import Rejected
from gangline.simulation.compare import Case
from gangline.simulation.metrics import SIZE_CLASSES, Numbers, class_name, waits
from gangline.simulation.tally import Series

BINS = 240  # points of a line: what a page can show
Floats = NDArray[np.float64]
# Okabe and Ito's colours, told apart by the colour-blind too.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")


def plot(cases: Sequence[Case], title: str, path: Path) -> None:
    """Draw the cases into a picture; the name's ending says of which kind (.png, .svg, .pdf).

    Raises:
        Rejected: matplotlib is not installed, or the file cannot be written.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise Rejected("drawing needs matplotlib", field="--plot", fix="pip install 'gangline[plot]'") from None
    figure = Figure(figsize=(11, 10), layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(title, fontsize=13, fontweight="bold")
    used, queue, bars = figure.subplots(3, 1, height_ratios=(1, 1, 1.1))
    _lines(used, queue, cases)
    _bars(bars, cases)
    handles, labels = used.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(len(cases), 5), frameon=False)
    try:
        figure.savefig(path, dpi=120)
    except (OSError, ValueError) as exc:
        raise Rejected(f"cannot write {path}: {getattr(exc, 'strerror', None) or exc}", field="--plot",
                       fix="give a file that ends in .png, .svg or .pdf in a folder that is there") from None


def label(case: Case, cases: Sequence[Case]) -> str:
    """The policy, and the fleet when there are several."""
    return case.policy if len({other.world for other in cases}) == 1 else f"{case.policy}, {case.world}"


def _lines(used: Any, queue: Any, cases: Sequence[Case]) -> None:
    end_ms = max(case.replay.end_ms for case in cases)
    unit, per_ms = ("days", 86_400_000) if end_ms > 4 * 86_400_000 else ("hours", 3_600_000)
    edges = np.linspace(0, max(1, end_ms), BINS + 1)
    middles = (edges[:-1] + edges[1:]) / 2 / per_ms
    for index, case in enumerate(cases):
        series = case.replay.tally.series
        share, waiting = (averaged(series, column, edges) for column in ("share", "waiting"))
        # Those drawn first are wider: where policies agree, each still shows.
        style = {"color": _COLOURS[index % len(_COLOURS)], "linewidth": 1.3 + 0.7 * (len(cases) - 1 - index),
                 "linestyle": "-" if index < len(_COLOURS) else "--", "solid_joinstyle": "round"}
        used.plot(middles, 100 * share, label=label(case, cases), **style)
        queue.plot(middles, waiting, **style)
    used.set(title="GPUs in use (dotted: the last submission)", ylabel="% of the fleet", ylim=(0, 103))
    queue.set(title="Gangs waiting", ylabel="gangs", xlabel=f"{unit} since the first submission", ylim=(0, None))
    last_ms = max(run.job.submit_ms for run in cases[0].replay.runs)
    for axes in (used, queue):
        axes.axvline(last_ms / per_ms, color="#888888", linewidth=1, linestyle=":")
        axes.set_xlim(0, max(1, end_ms) / per_ms)
        _plain(axes)


def averaged(series: Series, column: str, edges: Floats) -> Floats:
    """The mean of a step function between edges, each value weighted by how long it lasted.

    `column` is "waiting", or "share" for the part of the GPUs that is leased.
    """
    at = np.asarray(series.at_ms, np.float64)
    values = np.asarray(series.waiting, np.float64)
    if column == "share":
        values = np.asarray(series.used, np.float64) / np.maximum(1, np.asarray(series.gpus, np.float64))
    lasts = np.diff(np.append(at, max(edges[-1], at[-1])))
    sums = np.concatenate(([0.0], np.cumsum(values * lasts)))
    found: Floats = np.diff(np.interp(edges, np.append(at, max(edges[-1], at[-1])), sums)) / np.diff(edges)
    return found


def _bars(axes: Any, cases: Sequence[Case]) -> None:
    """Mean waits as bars and the 99th percentile as a mark, by gang size; sizes that do not occur are left out."""
    found = [{(low, high): waits(run for run in case.replay.runs if run.first_ms is not None
                                 and low <= run.job.nodes <= (high or run.job.nodes))
              for low, high in SIZE_CLASSES} for case in cases]
    sizes = [size for size in SIZE_CLASSES if any(by_size[size] for by_size in found)]
    width = 0.8 / len(cases)
    for index, by_size in enumerate(found):
        at = np.arange(len(sizes)) + (index - (len(cases) - 1) / 2) * width
        colour = _COLOURS[index % len(_COLOURS)]
        mean, high = ([_hours(by_size[size], stat) for size in sizes] for stat in ("mean", "p99"))
        axes.bar(at, mean, width * 0.92, color=colour)
        axes.hlines(high, at - width * 0.4, at + width * 0.4, colors=colour, linewidths=2.2)
    axes.set_xticks(range(len(sizes)), [f"{class_name(*size)} node{'s' * (size != (1, 1))}" for size in sizes])
    axes.set(title="Wait by gang size: mean (bar) and 99th percentile (mark)", ylabel="hours", ylim=(0, None))
    _plain(axes)


def _hours(numbers: Numbers, stat: str) -> float:
    return 0.0 if numbers is None else (numbers[stat] or 0.0) / 3600


def _plain(axes: Any) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#dddddd", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.title.set_fontsize(11)
