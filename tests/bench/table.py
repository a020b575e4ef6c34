"""Rows of measurements, and the table they make."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One thing measured, in `unit`, beside what it is compared with in the same run.

    `most` bounds the median and `most_ratio` its ratio to the other's; None is no target.
    """

    what: str
    ours: tuple[float, ...]
    unit: str = "s"
    against: str = ""
    other: tuple[float, ...] = ()
    most: float | None = None
    most_ratio: float | None = None

    @property
    def ratio(self) -> float | None:
        return median(self.ours) / median(self.other) if self.other and median(self.other) else None

    @property
    def met(self) -> bool | None:
        """Whether every target is met; None when there is none."""
        verdicts = []
        if self.most is not None:
            verdicts.append(median(self.ours) <= self.most)
        if self.most_ratio is not None and self.ratio is not None:
            verdicts.append(self.ratio <= self.most_ratio)
        return all(verdicts) if verdicts else None

    @property
    def target(self) -> str:
        most = f"<= {self.most:g} {self.unit}" if self.most is not None else ""
        ratio = f"<= {self.most_ratio:g}x" if self.most_ratio is not None else ""
        return ", ".join(part for part in (most, ratio) if part)

    def plain(self) -> dict[str, Any]:
        """The row as JSON."""
        return {"what": self.what, "unit": self.unit, "ours": _summary(self.ours), "against": self.against,
                "other": _summary(self.other), "ratio": self.ratio, "target": self.target, "met": self.met}


def print_table(rows: Sequence[Row]) -> None:
    table = Table(title="Gangline: medians of interleaved runs (min .. max)", title_justify="left")
    table.add_column("what")
    table.add_column("ours", justify="right")
    table.add_column("compared with")
    table.add_column("", justify="right")
    table.add_column("ratio", justify="right")
    table.add_column("target")
    table.add_column("met?")
    for row in rows:
        ratio = "" if row.ratio is None else f"{row.ratio:.2f}x"
        met = {None: "", True: "[green]yes[/]", False: "[red]no[/]"}[row.met]
        table.add_row(row.what, _spread(row.ours, row.unit), row.against, _spread(row.other, row.unit), ratio,
                      row.target, met)
    # Where no terminal bounds the width, take what the table needs.
    Console(width=None if sys.stdout.isatty() else 160).print(table)


def _summary(values: Sequence[float]) -> dict[str, float] | None:
    if not values:
        return None
    return {"median": median(values), "min": min(values), "max": max(values), "runs": len(values)}


def _spread(values: Sequence[float], unit: str) -> str:
    if not values:
        return ""
    text = f"{_number(median(values))} {unit}"
    if len(values) > 1:
        text += f"\n({_number(min(values))} .. {_number(max(values))})"
    return text


def _number(value: float) -> str:
    if value == int(value) and value < 1e6:
        return f"{value:.0f}"
    return f"{value:.3g}" if value < 100 else f"{value:.0f}"
