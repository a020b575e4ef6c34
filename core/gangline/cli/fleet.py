"""`fleet init | show | drain | undrain`; `import`, `reload` and `scale` are added to the group here."""

from __future__ import annotations

import getpass
import os
from pathlib import Path
from typing import Any

import click
import yaml

from gangline.cli.app import Reach, as_json, cli, reaches_server
from gangline.cli.fleet_import import import_command
from gangline.cli.fleet_size import reload_command, scale
from gangline.cli.output import news, show, show_json
from gangline.cli.render_fleet import node_list
from gangline.client.address import home_dir
from gangline.client.record import read_record
from gangline.model.errors import Conflict, Rejected
from gangline.model.fleet import Fleet


@cli.group()
def fleet() -> None:
    """Nodes: make a fleet file, see them, take them out of service."""


fleet.add_command(import_command)
fleet.add_command(reload_command)
fleet.add_command(scale)


@fleet.command()
@click.option("--emulated", "gpu", metavar="TYPE:COUNT", required=True,
              help="What every node pretends to have, such as H100:8.")
@click.option("--nodes", type=click.IntRange(min=1), default=4, show_default=True, help="How many nodes.")
@click.option("--pool", default="emulated", show_default=True, help="Name of the pool.")
@click.option("--zone", default="local", show_default=True, help="Zone of the nodes.")
@click.option("--fabric", default="fabric-1", show_default=True, help="Network of the nodes.")
@click.option("--rdma/--no-rdma", default=True, show_default=True, help="Pretend that network does RDMA.")
@click.option("--price", metavar="AMOUNT", help='Price of one GPU for one hour, such as "7.10", in USD.')
@click.option("--force", is_flag=True, help="Replace the fleet file that is there.")
@click.option("--home", metavar="DIR", help="Home of the server [default: GANGLINE_HOME, else ~/.gangline].")
def init(force: bool, home: str | None, **given: Any) -> None:
    """Write a fleet of emulated nodes on this machine, for the embedded server.

    Emulated nodes run ranks on this machine's processors and are marked as such wherever they show, so
    that a pipeline written for H100:8 runs unchanged on a laptop or in CI.

    \b
    Example:
      gangline fleet init --emulated H100:8 --nodes 4
    """
    path = home_dir(home, os.environ) / "fleet.yaml"
    declared = emulated_pool(**given)
    Fleet.parse({"pools": [declared]})
    record = read_record(path.parent)
    if record is not None and record.alive:
        raise Conflict(f"a server (process {record.pid}) runs with the fleet of {path.parent}",
                       fix="run: gangline stop, then try again")
    if path.exists() and not force:
        raise Conflict(f"{path} is there already", fix="give --force to replace it")
    _write(path, "# The fleet of this home's embedded server; read when it starts.\n"
           + yaml.safe_dump({"pools": [declared]}, sort_keys=False))
    news(f"wrote {path}: {given['nodes']} emulated nodes with {given['gpu']} each; "
         "the next command that needs a server starts it")


def emulated_pool(*, gpu: str, nodes: int, pool: str, zone: str, fabric: str, rdma: bool,
                  price: str | None) -> dict[str, Any]:
    """The pool as a fleet file declares it."""
    declared: dict[str, Any] = {"name": pool, "engine": "local", "gpu": gpu, "zone": zone, "fabric": fabric,
                                "min": nodes, "max": nodes, "emulated": True}
    if rdma:
        declared["rdma"] = {"kind": "infiniband", "gbps": 3200}
    if price is not None:
        declared["price_per_gpu_hour"] = price
    return declared


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        part = path.with_suffix(f".{os.getpid()}.part")
        part.write_text(text)
        part.replace(path)
    except OSError as exc:
        raise Rejected(f"cannot write {path}: {exc.strerror}", field="--home",
                       fix="set GANGLINE_HOME to a directory you can write") from None


@fleet.command("show")
@as_json
@reaches_server
def show_command(reach: Reach, as_json: bool) -> None:
    """Show every node: what it has, what is free, which gangs hold it, and whether it takes work."""
    nodes = reach.client().nodes()
    if as_json:
        show_json({"nodes": [node.full() for node in nodes]})
    else:
        show(node_list(nodes))


@fleet.command()
@click.argument("node")
@click.option("--reason", default="", help="Why, for those who will ask.")
@click.option("--owner", help="Who takes it out of service; only the owner lifts it [default: you].")
@as_json
@reaches_server
def drain(reach: Reach, node: str, reason: str, owner: str | None, as_json: bool) -> None:
    """Give a node no new work; what runs on it goes on.

    \b
    Example:
      gangline fleet drain n3 --reason "replace NIC"
    """
    view = reach.client().drain(node, owner or getpass.getuser(), reason)
    if as_json:
        show_json(view.full())
    else:
        held = f"; still runs {', '.join(view.gangs)}" if view.gangs else ""
        news(f"{view.node} takes no new work{held}")


@fleet.command()
@click.argument("node")
@click.option("--owner", help="Who took it out of service [default: you].")
@as_json
@reaches_server
def undrain(reach: Reach, node: str, owner: str | None, as_json: bool) -> None:
    """Put a node back into service."""
    view = reach.client().undrain(node, owner or getpass.getuser())
    if as_json:
        show_json(view.full())
    else:
        news(f"{view.node} takes work again")
