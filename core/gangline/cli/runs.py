"""`run` and `submit`: from a spec file or a function to a gang."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import click

from gangline.cli.app import Reach, as_json, cli, reaches_server
from gangline.cli.follow import Follower
from gangline.cli.output import news, show, show_json
from gangline.cli.render_gang import summary
from gangline.cli.screen import Screen
from gangline.cli.yamlfile import read_mapping
from gangline.client.http import Client
from gangline.client.submission import Origin, Prepared, default_name, prepare, submit
from gangline.model.errors import GanglineError, Rejected
from gangline.model.gang import Ensured, GangView, UsageRow
from gangline.model.states import GangState

_SPEC_SUFFIXES = (".yaml", ".yml", ".json")


def gang_options(command: Any) -> Any:
    """The options that override fields of a spec; shared by `run` and `submit`."""
    for option in reversed((
        click.option("--name", help="Name of the gang."),
        click.option("--size", help="Number of nodes."),
        click.option("--gpu", multiple=True, metavar="TYPE:COUNT",
                     help="GPUs of each node, such as H100:8, or cpu. Again for alternatives, best first."),
        click.option("--ranks-per-node", type=int, metavar="N",
                     help="Processes on each node [default: its GPUs; 1 for cpu]."),
        click.option("--rdma/--no-rdma", default=None, help="Require one RDMA fabric for all nodes."),
        click.option("--arg", "args", multiple=True, metavar="K=V",
                     help="An argument of the function; V is JSON, or else text. May be repeated."),
        click.option("--env", multiple=True, metavar="K=V", help="A variable of the ranks' environment."),
        click.option("--volume", "volumes", multiple=True, metavar="/PATH=NAME[@FROM]",
                     help="Mount a volume, for checkpoints. May be repeated."),
        click.option("--timeout", metavar="TIME", help="Stop the gang after 90s, 10m, 6h …"),
        click.option("--priority", help="low, normal, high or a number."),
        click.option("--tenant", help="Whose work it is."),
        click.option("--pool", help="Run in this pool only."),
        click.option("--zone", help="Run in this zone only."),
        click.option("--slot", help="Name of the step this is: the same work in the same slot is found "
                     "again, and resumes from its own checkpoints [default: a new one]."),
        click.option("--epoch", type=click.IntRange(min=0), default=0, metavar="N",
                     help="Which deliberate new start of the slot this is [default: 0]."),
    )):
        command = option(command)
    return command


@cli.command()
@click.argument("target", metavar="SPEC.yaml|MODULE:FUNCTION")
@gang_options
@click.option("--rank", "ranks", multiple=True, type=click.IntRange(min=0),
              help="Show the log of this rank only. May be repeated [default: all, up to 16].")
@click.option("--detach", is_flag=True, help="Submit and leave.")
@as_json
@reaches_server
def run(reach: Reach, target: str, ranks: tuple[int, ...], detach: bool, as_json: bool, **given: Any) -> int:
    """Submit a gang, follow it, and exit with its status.

    Logs go to stdout, progress to stderr. Ctrl-C cancels the gang; a second Ctrl-C leaves at once.
    SIGTERM leaves the gang to itself. With --json the last view is printed on stdout, logs on stderr.

    \b
    Examples:
      gangline run train.yaml
      gangline run train:main --size 4 --gpu H100:8 --rdma --arg lr=0.001 --volume /ckpt=sft
    """
    client, ensured = _ensure(reach, target, given)
    if detach:
        _show_ensured(ensured, as_json)
        return 0
    screen = Screen(logs_to_stderr=as_json)
    screen.say(f"{ensured.gang} {'submitted' if ensured.created else 'is there already: following it'}")
    ending = Follower(client, ensured, screen, ranks).run()
    if ending.left_with:
        return ending.left_with
    view = ending.view if ending.view is not None else client.observe(ensured.gang)
    if as_json:
        show_json(view.full())
    else:
        show(summary(view, usage_of(client, view)))
    if ending.interrupted:
        return 130
    return 0 if view.state is GangState.SUCCEEDED else 1


@cli.command("submit")
@click.argument("target", metavar="SPEC.yaml|MODULE:FUNCTION")
@gang_options
@as_json
@reaches_server
def submit_command(reach: Reach, target: str, as_json: bool, **given: Any) -> None:
    """Submit a gang and leave; it goes on by itself.

    \b
    Examples:
      gangline submit train.yaml
      gangline logs -f $(gangline submit train.yaml --json | jq -r .gang)
    """
    _show_ensured(_ensure(reach, target, given)[1], as_json)


def usage_of(client: Client, view: GangView) -> list[UsageRow]:
    """What a gang used, by cause; empty when the server cannot say."""
    try:
        rows = client.usage(("cause", "gang"), from_ms=view.submitted_ms)
    except GanglineError:
        return []
    return [row for row in rows if row.by.get("gang") == view.gang]


def prepare_target(target: str, given: dict[str, Any], home: str | None) -> Prepared:
    """The submission a command line asks for."""
    slot, epoch = given.pop("slot"), given.pop("epoch")
    args = _pairs(given.pop("args"), "--arg", parse=True)
    here = Path.cwd()
    places: tuple[Path, ...] = (here,)
    base, written = here, {}
    if target.endswith(_SPEC_SUFFIXES):
        path = Path(target)
        written = {"name": default_name(path.stem), **read_mapping(path, "gang")}
        base = path.resolve().parent
        places = (base, here)
    elif ":" not in target:
        raise Rejected(f"{target!r} is neither a spec file nor a function",
                       fix="write FILE.yaml or package.module:function")
    origin = Origin(slot=slot, epoch=epoch, watched=False, base=base, search=places,
                    home=Path(home) if home else None)
    try:
        return prepare(written or target, args, options=_overrides(written, given), origin=origin)
    except Rejected as error:
        if written:
            error.field = f"{target}: {error.field}" if error.field else target
        raise


def _ensure(reach: Reach, target: str, given: dict[str, Any]) -> tuple[Client, Ensured]:
    prepared = prepare_target(target, given, reach.home)  # what is wrong with it needs no server to tell
    client = reach.client()
    return client, submit(client, [prepared])[0]


def _show_ensured(ensured: Ensured, as_json: bool) -> None:
    if as_json:
        show_json(ensured.full())
        return
    news(f"{'submitted' if ensured.created else 'is there already'}; follow it with: "
         f"gangline logs -f {ensured.gang}")
    click.echo(ensured.gang)


def _overrides(written: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """Fields of the spec that options set; mappings add to those of the file."""
    changed: dict[str, Any] = {
        name: value for name in ("name", "size", "ranks_per_node", "rdma", "timeout", "priority", "tenant")
        if (value := given[name]) is not None}
    if given["gpu"]:
        changed["gpu"] = list(given["gpu"])
    if str(changed.get("priority", "")).lstrip("-").isdigit():
        changed["priority"] = int(changed["priority"])
    _add(changed, written, "env", _pairs(given["env"], "--env", parse=False))
    _add(changed, written, "volumes", _mounts(given["volumes"]))
    _add(changed, written, "placement", {k: given[k] for k in ("pool", "zone") if given[k] is not None})
    return changed


def _add(changed: dict[str, Any], written: dict[str, Any], field: str, more: dict[str, Any]) -> None:
    if more:
        own = written.get(field, {})
        changed[field] = {**own, **more} if isinstance(own, dict) else own


def _mounts(texts: tuple[str, ...]) -> dict[str, Any]:
    mounts: dict[str, Any] = {}
    for path, text in _pairs(texts, "--volume", parse=False).items():
        name, at, version = text.partition("@")
        mounts[path] = {"volume": name, "from": text} if at else name
        if at and not version:
            raise Rejected(f"{text!r} names no version after @", field="--volume", fix="write /ckpt=sft@12")
    return mounts


def _pairs(texts: tuple[str, ...], option: str, *, parse: bool) -> dict[str, Any]:
    pairs: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise Rejected(f"{text!r} has no name and value", field=option, fix="write NAME=VALUE")
        if name in pairs:
            raise Rejected(f"{name!r} is given twice", field=option, fix="give it once")
        pairs[name] = _value(value) if parse else value
    return pairs


def _value(text: str) -> Any:
    try:
        value = json.loads(text)
    except ValueError:
        return text
    # Python reads NaN and Infinity, which are not JSON and would not survive the way to the ranks.
    return text if isinstance(value, float) and not math.isfinite(value) else value
