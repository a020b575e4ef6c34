"""The ledger as text. Pure functions over rows."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from gangline.cli.output import Lines, table
from gangline.model.gang import UsageRow
from gangline.model.units import MS_PER_HOUR, format_money


def usage_table(rows: Sequence[UsageRow], by: Sequence[str]) -> Lines:
    """One group a line, and the sum of each currency, which is exactly that of its lines."""
    if not rows:
        return [Text("nothing was used")]
    body = [[*(row.by.get(key, "") for key in by),
             *_numbers(row.gpu_ms, row.node_ms, row.cost_nano, row.currency)] for row in rows]
    for currency in sorted({row.currency for row in rows}):
        same = [row for row in rows if row.currency == currency]
        numbers = _numbers(sum(r.gpu_ms for r in same), sum(r.node_ms for r in same),
                           sum(r.cost_nano for r in same), currency)
        body.append([*("total" if i == 0 else "" for i in range(len(by))), *numbers])
    return table([*(key.upper() for key in by), "GPU HOURS", "NODE HOURS", "COST"], body)


def _numbers(gpu_ms: int, node_ms: int, cost_nano: int, currency: str) -> list[str]:
    return [f"{gpu_ms / MS_PER_HOUR:.4f}", f"{node_ms / MS_PER_HOUR:.4f}",
            f"{format_money(cost_nano)} {currency}"]
