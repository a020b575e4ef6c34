"""Where commands write: results to stdout, news and errors to stderr; and how values become text."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from gangline.model.units import format_duration

Lines = list[Text]

_STYLES = {
    "succeeded": "green", "running": "cyan", "committing": "cyan", "starting": "cyan", "placed": "cyan",
    "queued": "yellow", "failed": "red", "cancelled": "magenta", "ready": "green", "booting": "yellow",
    "gone": "red", "drained": "magenta", "unhealthy": "red", "ok": "green", "warn": "yellow", "fail": "red",
}


class _Console(Console):
    def on_broken_pipe(self) -> None:
        raise BrokenPipeError  # Rich would leave with status 1, which means that a gang failed


def stdout() -> Console:
    """A console on the present sys.stdout that neither wraps nor guesses at markup."""
    return _Console(file=sys.stdout, highlight=False, markup=False, soft_wrap=True)


def stderr() -> Console:
    """The same on sys.stderr."""
    return _Console(file=sys.stderr, highlight=False, markup=False, soft_wrap=True)


def show(lines: Iterable[Text]) -> None:
    """Print lines on stdout."""
    console = stdout()
    for line in lines:
        console.print(line)


def show_json(value: Any) -> None:
    """Print one JSON document on stdout."""
    sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def news(text: str) -> None:
    """Print one line on stderr."""
    stderr().print(Text(text))


def state_text(state: str) -> Text:
    """A state in its colour."""
    return Text(state, style=_STYLES.get(state, ""))


def table(headers: Sequence[str], rows: Iterable[Sequence[str | Text]], indent: str = "") -> Lines:
    """Left-aligned columns under headers, two spaces apart."""
    cells = [[cell if isinstance(cell, Text) else Text(cell) for cell in row] for row in rows]
    widths = [max(cell_len(h), *(cell_len(row[i].plain) for row in cells)) if cells else cell_len(h)
              for i, h in enumerate(headers)]
    head = [Text(h, style="bold") for h in headers]
    return [_row(row, widths, indent) for row in (head, *cells)]


def fields(pairs: Iterable[tuple[str, str | Text]], indent: str = "") -> Lines:
    """Names and values, one pair a line, values aligned; pairs without a value are left out."""
    kept = [(name, value) for name, value in pairs if value]
    width = max((len(name) for name, _ in kept), default=0)
    return [Text.assemble(indent, (name.ljust(width), "dim"), "  ", value) for name, value in kept]


def ago(at_ms: int | None, now_ms: int) -> str:
    """How long ago an instant was, or "" when there is none."""
    return "" if at_ms is None else f"{format_duration(max(0, now_ms - at_ms) / 1000)} ago"


def clock(at_ms: int) -> str:
    """An instant as local time, to the second."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def span(from_ms: int, to_ms: int) -> str:
    """The time between two instants."""
    return format_duration(max(0, to_ms - from_ms) / 1000)


def size_text(count: int) -> str:
    """Bytes in the unit that reads best."""
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def _row(cells: Sequence[Text], widths: Sequence[int], indent: str) -> Text:
    line = Text(indent)
    for i, (cell, width) in enumerate(zip(cells, widths, strict=True)):
        line.append_text(cell)
        if i < len(widths) - 1:
            line.append(" " * (width - cell_len(cell.plain) + 2))
    line.rstrip()
    return line
