"""`serve`, `stop`, `status`: the server itself."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import click

from gangline.cli.app import Reach, as_json, cli, reaches_server
from gangline.cli.output import news, show, show_json
from gangline.cli.render_fleet import server_status
from gangline.cli.yamlfile import read_fleet
from gangline.client.address import home_dir
from gangline.client.record import ServerRecord, read_record
from gangline.model.errors import Unavailable

_LEAVES_S = 10.0


@cli.command()
@click.option("--fleet", type=click.Path(path_type=Path), metavar="FLEET.yaml",
              help="The fleet [default: fleet.yaml in the home, else this machine as one node].")
@click.option("--home", metavar="DIR", help="Home to serve [default: GANGLINE_HOME, else ~/.gangline].")
@click.option("--listen", metavar="HOST:PORT", help="Serve HTTP there too; not only on the home's socket.")
@click.option("--allow-host", multiple=True, metavar="NAME", help="A name by which clients reach --listen.")
@click.option("--token-file", type=click.Path(path_type=Path), metavar="FILE",
              help="The bearer token that --listen asks for.")
@click.option("--idle-s", type=click.FloatRange(min=0), metavar="SECONDS",
              help="Stop after so long without work [default: 1800].")
def serve(fleet: Path | None, home: str | None, listen: str | None, allow_host: tuple[str, ...],
          token_file: Path | None, idle_s: float | None) -> None:
    """Serve a home in the foreground: schedule its gangs on its fleet.

    Seldom needed: the first command that needs a server starts it in the background.

    \b
    Examples:
      gangline serve --fleet fleet.yaml
      gangline serve --listen 0.0.0.0:7070 --token-file /etc/gangline/token
    """
    place = home_dir(home, os.environ)
    chosen = fleet if fleet is not None else place / "fleet.yaml"
    if fleet is not None or chosen.exists():
        read_fleet(chosen)  # so that a mistake in it is told here, in one line
    given = {"--home": place, "--fleet": fleet and fleet.resolve(), "--listen": listen,
             "--token-file": token_file and token_file.resolve(), "--idle-s": idle_s}
    argv = [word for name, value in given.items() if value is not None for word in (name, str(value))]
    argv += [word for name in allow_host for word in ("--allow-host", name)]
    # -P: a file called gangline.py where this was typed must not be taken for the program.
    os.execv(sys.executable, [sys.executable, "-P", "-m", "gangline.server", *argv])  # noqa: S606


@cli.command()
@click.option("--force", is_flag=True, help="Cancel every active gang first.")
@reaches_server
def stop(reach: Reach, force: bool) -> None:
    """Stop the server and its nodes. Refused while gangs are active, unless forced."""
    record = None if reach.url else read_record(home_dir(reach.home, os.environ))
    if reach.url is None and not os.environ.get("GANGLINE_URL") and (record is None or not record.alive):
        news(f"no server runs for {home_dir(reach.home, os.environ)}")
        return
    pid = reach.client(start=False).stop(force)
    if record is not None:
        _wait_gone(record)
    news(f"stopped (process {pid})")


@cli.command()
@as_json
@reaches_server
def status(reach: Reach, as_json: bool) -> None:
    """Show the server: its address, fleet and load. Starts none; exit 3 when none answers."""
    now = reach.client(start=False).status()
    if as_json:
        show_json(now.full())
    else:
        show(server_status(now, int(time.time() * 1000)))


def _wait_gone(record: ServerRecord) -> None:
    deadline = time.monotonic() + _LEAVES_S
    while record.alive:
        if time.monotonic() > deadline:
            raise Unavailable(f"the server (process {record.pid}) said it stops, and is still there",
                              fix=f"end it with: kill {record.pid}")
        time.sleep(0.02)
