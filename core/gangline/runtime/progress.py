"""Telling whoever follows the gang how far it is."""

from __future__ import annotations

import contextlib
import math
import time
from typing import SupportsFloat

from gangline.model.errors import Unavailable
from gangline.runtime.info import cluster_info
from gangline.runtime.link import supervisor

TIMEOUT_S = 5.0


def report_progress(step: int | None = None, total: int | None = None, **metrics: SupportsFloat) -> None:
    """Show `step` of `total` and the metrics beside the gang; rank 0's newest report is what is seen.

    Other ranks may call it too, to no effect. It is news and not a record: when the supervisor does
    not answer, training goes on. Metrics that are not finite numbers are left out.
    """
    if cluster_info().rank != 0 or (link := supervisor()) is None:
        return
    finite, _ = split_metrics(metrics)
    progress = {"step": step, "total": total, "metrics": finite, "at_ms": time.time_ns() // 1_000_000}
    with contextlib.suppress(Unavailable):
        link.request("progress", progress=progress, timeout_s=TIMEOUT_S)


def split_metrics(metrics: dict[str, SupportsFloat]) -> tuple[dict[str, float], dict[str, str]]:
    """Metrics as plain floats, and apart from them the ones that are nan or infinite, as text."""
    values = {name: float(value) for name, value in metrics.items()}
    finite = {name: value for name, value in values.items() if math.isfinite(value)}
    return finite, {name: str(value) for name, value in values.items() if name not in finite}
