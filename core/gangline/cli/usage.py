"""`usage`: what was used, and what it cost."""

from __future__ import annotations

import time
from datetime import datetime

import click

from gangline.cli.app import Reach, as_json, cli, reaches_server
from gangline.cli.output import show, show_json
from gangline.cli.render_usage import usage_table
from gangline.metering import BY
from gangline.model.errors import Rejected
from gangline.model.units import parse_duration_s


@cli.command()
@click.option("--by", default="cause", show_default=True, metavar="GROUP,…",
              help=f"One or more of {', '.join(BY)}.")
@click.option("--from", "from_text", metavar="TIME",
              help="From then on: 2026-01-31, 2026-01-31T12:00, or 24h for a day ago.")
@click.option("--to", "to_text", metavar="TIME", help="Until then, in the same forms [default: now].")
@as_json
@reaches_server
def usage(reach: Reach, by: str, from_text: str | None, to_text: str | None, as_json: bool) -> None:
    """Show GPU hours and cost from the ledger. Parts sum to the whole exactly.

    \b
    Causes:
      assembling  nodes are held and get ready: code, checkpoints, the interpreter
      starting    every node is ready, the ranks start
      running     user code runs on every rank
      committing  every rank is done, the last commits and processes end
      draining    the gang was told to stop and is ending
      lost        running time of an attempt that did not succeed

    \b
    Examples:
      gangline usage --by gang,cause --from 24h
      gangline usage --by tenant --from 2026-01-01 --to 2026-02-01 --json
    """
    groups = [part.strip() for part in by.split(",") if part.strip()]
    wrong = [group for group in groups if group not in BY]
    if wrong or not groups:
        raise Rejected(f"{(wrong or [by])[0]!r} is not a group", field="--by",
                       fix=f"choose from {', '.join(BY)}")
    now_ms = int(time.time() * 1000)
    rows = reach.client().usage(groups, from_ms=instant_ms(from_text, "--from", now_ms),
                                to_ms=instant_ms(to_text, "--to", now_ms))
    if as_json:
        show_json({"rows": [row.full() for row in rows]})
    else:
        show(usage_table(rows, groups))


def instant_ms(text: str | None, field: str, now_ms: int) -> int | None:
    """The instant in "2026-01-31T12:00" (local time without an offset) or, as so long ago, in "24h"."""
    if text is None:
        return None
    try:
        return now_ms - int(parse_duration_s(text) * 1000)
    except ValueError:
        pass
    try:
        return int(datetime.fromisoformat(text).astimezone().timestamp() * 1000)
    except (ValueError, OverflowError):
        raise Rejected(f"{text!r} is not a time", field=field,
                       fix="write 2026-01-31, 2026-01-31T12:00 or 24h") from None
