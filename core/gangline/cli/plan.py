"""`plan`: one pass on files, without a server; or the passes that a server has kept."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from gangline.cli.app import Reach, as_json, cli, reaches_server
from gangline.cli.offline import plan_files, render_plan
from gangline.cli.output import news, show, show_json
from gangline.cli.render_passes import diff_lines, pass_details, pass_list
from gangline.cli.yamlfile import read_fleet, read_yaml
from gangline.client.http import Client
from gangline.model.errors import Rejected
from gangline.plan.differences import differences, lines_of
from gangline.plan.outcome import Plan
from gangline.plan.planner import plan as make_plan
from gangline.plan.policy import POLICIES
from gangline.plan.wire import plan_json, read_inputs, read_plan

MOST_LISTED = 50


@cli.command()
@click.option("--fleet", "fleet_path", type=click.Path(path_type=Path), metavar="FLEET.yaml")
@click.option("--gangs", "gangs_path", type=click.Path(path_type=Path), metavar="GANGS.yaml")
@click.option("--list", "listed", is_flag=True, help="List the passes the server has kept, newest first.")
@click.option("--before", type=click.IntRange(min=1), metavar="ID", help="With --list: only passes before this one.")
@click.option("--show", "shown", type=click.IntRange(min=1), metavar="ID", help="Show what a pass decided.")
@click.option("--diff", "compared", type=click.IntRange(min=1), nargs=2, metavar="A B",
              help="Show in what two passes differ.")
@click.option("--replay", "replayed", type=click.IntRange(min=1), metavar="ID",
              help="Make a pass again from what it was made from; exit 1 if it comes out differently.")
@click.option("--policy", type=click.Choice(list(POLICIES)), help="Offline and with --replay: by this policy.")
@as_json
@reaches_server
def plan(reach: Reach, as_json: bool, **given: Any) -> None:
    """Plan once, offline: what would start where, what waits and why. Or look at passes of the server.

    GANGS.yaml is a list of gangs, each with optional `submitted_s: 120` and
    `running: {nodes: [n1, n2], since_s: 60}`.

    \b
    Examples:
      gangline plan --fleet fleet.yaml --gangs gangs.yaml --json
      gangline plan --list
      gangline plan --diff 41 42
      gangline plan --replay 42 --policy short-first
    """
    modes: dict[str, Callable[[], None]] = {
        "offline": lambda: _offline(given["fleet_path"], given["gangs_path"], given["policy"], as_json),
        "listed": lambda: _list(reach.client(), given["before"], as_json),
        "shown": lambda: _show(reach.client(), given["shown"], as_json),
        "compared": lambda: _diff(reach.client(), given["compared"], as_json),
        "replayed": lambda: _replay(reach.client(), given["replayed"], given["policy"], as_json),
    }
    given["offline"] = given["fleet_path"] or given["gangs_path"]
    wanted = [mode for mode in modes if given[mode]]
    if len(wanted) != 1:
        raise Rejected("say what to look at, one thing", field="plan",
                       fix="give --fleet and --gangs, or one of --list, --show, --diff, --replay")
    if given["policy"] and wanted[0] not in ("offline", "replayed"):
        raise Rejected("changes nothing here", field="--policy",
                       fix="give it with --replay, or with --fleet and --gangs")
    modes[wanted[0]]()


def _offline(fleet_path: Path | None, gangs_path: Path | None, policy: str | None, as_json: bool) -> None:
    if fleet_path is None or gangs_path is None:
        missing = "--fleet" if fleet_path is None else "--gangs"
        raise Rejected("is needed to plan offline", field=missing, fix="give both --fleet and --gangs")
    gangs = read_yaml(gangs_path)
    if not isinstance(gangs, list):
        raise Rejected(f"{gangs_path} holds no list of gangs", field="--gangs",
                       fix="begin each gang with a dash")
    outcome = plan_files(read_fleet(fleet_path), gangs, policy=POLICIES[policy] if policy else None)
    if as_json:
        show_json(outcome)
    else:
        click.echo(render_plan(outcome))


def _list(client: Client, before: int | None, as_json: bool) -> None:
    passes = client.passes(before, MOST_LISTED)
    if as_json:
        show_json({"passes": [each.full() for each in passes]})
    else:
        show(pass_list(passes))


def _show(client: Client, number: int, as_json: bool) -> None:
    detail = client.get_pass(number)
    if as_json:
        show_json(detail.full())
    else:
        show(pass_details(detail, lines_of(read_plan(detail.plan))))


def _diff(client: Client, compared: tuple[int, int], as_json: bool) -> None:
    one, other = compared
    lines = differences(_plan_of(client, one), _plan_of(client, other))
    if as_json:
        show_json({"a": one, "b": other, "differences": lines})
    else:
        show(diff_lines(lines))


def _plan_of(client: Client, number: int) -> Plan:
    return read_plan(client.get_pass(number).plan)


def _replay(client: Client, number: int, policy: str | None, as_json: bool) -> None:
    detail = client.get_pass(number, inputs=True)
    if detail.inputs is None:
        raise Rejected(f"what pass {number} was made from was not kept", field="--replay",
                       fix="gangline plan --list shows which passes can be replayed")
    try:
        inputs = read_inputs(detail.inputs)
    except (ValueError, KeyError, TypeError) as exc:
        raise Rejected(f"pass {number} was kept by another release, or is damaged: {exc!r}", field="--replay") from None
    made = make_plan(inputs.snapshot, POLICIES[policy] if policy else inputs.policy, inputs.now_ms)
    lines = differences(read_plan(detail.plan), made)
    same = read_plan(detail.plan) == made
    _show_replay({"pass": number, "policy": policy or inputs.policy.name, "same": same, "differences": lines,
                  "plan": plan_json(made)}, as_json)
    if not same and policy is None:
        click.get_current_context().exit(1)


def _show_replay(outcome: dict[str, Any], as_json: bool) -> None:
    if as_json:
        show_json(outcome)
        return
    news(f"pass {outcome['pass']} with policy {outcome['policy']}: "
         f"{'the same plan' if outcome['same'] else 'another plan'}")
    show(diff_lines(outcome["differences"]))
