"""`fleet reload` and `fleet scale`: what a running server is told about its fleet."""

from __future__ import annotations

from collections.abc import Iterable

import click
from rich.text import Text

from gangline.cli.app import Reach, as_json, reaches_server
from gangline.cli.output import Lines, news, show, show_json
from gangline.model.errors import Rejected
from gangline.model.inventory import FleetChanges, Scaled

MOST_NAMED = 8


@click.command("reload")
@click.option("--dry-run", is_flag=True, help="Check the file and show what would change.")
@as_json
@reaches_server
def reload_command(reach: Reach, dry_run: bool, as_json: bool) -> None:
    """Have the running server follow its fleet file as it is now; SIGHUP to the server does the same.

    Pools, nodes, tenants and scheduling are taken over together. A file with a fault changes nothing.
    What runs goes on: a busy node that the file names no longer takes no new work and leaves when it is
    idle. What persons drained stays drained, and sizes asked for with `fleet scale` hold.
    """
    changes = reach.client(start=False).reload_fleet(dry_run=dry_run)
    if as_json:
        show_json(changes.full())
        return
    show(change_lines(changes))
    news(f"{changes.file or 'this machine'} {'would be' if dry_run else 'is'} followed"
         + ("" if changes.any else "; no node changes"))


@click.command()
@click.argument("pool")
@click.argument("size", metavar="N|auto")
@click.option("--dry-run", is_flag=True, help="Show what would happen to which nodes.")
@as_json
@reaches_server
def scale(reach: Reach, pool: str, size: str, dry_run: bool, as_json: bool) -> None:
    """Ask a pool to have N nodes, within its min and max, whatever its work needs; `auto` ends that.

    Up: nodes that were about to leave return, others boot. Down: idle nodes leave, the last first; busy
    ones take no new work and leave when their gangs have ended, nothing is killed. Nodes that a person
    drained are left alone. The size holds until it is changed, through reloads and restarts.

    \b
    Examples:
      gangline fleet scale h100 12 --dry-run
      gangline fleet scale h100 auto
    """
    if size != "auto" and not (size.isascii() and size.isdecimal()):
        raise Rejected(f"{size!r} is not a number of nodes", field="N", fix="write a number, or auto")
    scaled = reach.client().scale(pool, None if size == "auto" else int(size), dry_run=dry_run)
    if as_json:
        show_json(scaled.full())
        return
    show(scaled_lines(scaled))
    what = "follows its work" if scaled.wanted is None else f"is to have {scaled.wanted} nodes"
    news(f"pool {scaled.pool} {what}{' (not done: --dry-run)' if dry_run else ''}")


def change_lines(changes: FleetChanges) -> Lines:
    """Nodes by what becomes of them, and what is different about tenants."""
    nodes = _kinds((("+", "added", changes.added), ("~", "changed", changes.changed),
                    ("-", "leaving when idle", changes.leaving), ("-", "gone", changes.gone)))
    return [*nodes, *(Text(f"~ tenant {line}") for line in changes.tenants)]


def scaled_lines(scaled: Scaled) -> Lines:
    """Nodes by what becomes of them, and what cannot be done now."""
    lines = _kinds((("+", "booting", scaled.added), ("+", "back in service", scaled.back),
                    ("-", "leaving when their gangs end", scaled.leaving), ("-", "gone", scaled.gone)))
    if scaled.missing:
        lines.append(Text(f"! {scaled.missing} missing: the pool's max counts nodes that have yet to leave"))
    if scaled.kept:
        lines.append(Text(f"! {scaled.kept} more than asked for: drained by persons or by the fleet file"))
    return lines


def _kinds(kinds: Iterable[tuple[str, str, tuple[str, ...]]]) -> Lines:
    return [Text(f"{sign} {len(names)} {what}: {', '.join(names[:MOST_NAMED])}"
                 + (" …" if len(names) > MOST_NAMED else "")) for sign, what, names in kinds if names]
