"""`plan`: one pass on files, without a server."""

from __future__ import annotations

from pathlib import Path

import click

from gangline.cli.app import as_json, cli
from gangline.cli.offline import plan_files, render_plan
from gangline.cli.output import show_json
from gangline.cli.yamlfile import read_fleet, read_yaml
from gangline.model.errors import Rejected


@cli.command()
@click.option("--fleet", "fleet_path", required=True, type=click.Path(path_type=Path), metavar="FLEET.yaml")
@click.option("--gangs", "gangs_path", required=True, type=click.Path(path_type=Path), metavar="GANGS.yaml")
@as_json
def plan(fleet_path: Path, gangs_path: Path, as_json: bool) -> None:
    """Plan once, offline: what would start where, what waits and why.

    GANGS.yaml is a list of gangs, each with optional `submitted_s: 120` and
    `running: {nodes: [n1, n2], since_s: 60}`.

    \b
    Example:
      gangline plan --fleet fleet.yaml --gangs gangs.yaml --json
    """
    gangs = read_yaml(gangs_path)
    if not isinstance(gangs, list):
        raise Rejected(f"{gangs_path} holds no list of gangs", field="--gangs",
                       fix="begin each gang with a dash")
    outcome = plan_files(read_fleet(fleet_path), gangs)
    if as_json:
        show_json(outcome)
    else:
        click.echo(render_plan(outcome))
