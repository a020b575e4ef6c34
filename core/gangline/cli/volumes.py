"""`volume list | show | verify | resume | name`."""

from __future__ import annotations

import re
import time
from pathlib import Path

import click
from rich.text import Text

from gangline.cli.app import Reach, as_json, cli, reaches_server
from gangline.cli.output import news, show, show_json
from gangline.cli.render_volume import volume_details, volume_list
from gangline.client.http import Client
from gangline.model.errors import NotFound, Rejected
from gangline.model.gang import GangView
from gangline.model.states import GangState
from gangline.model.volume import VersionView, VolumeView
from gangline.volumes.verify import verify as verify_version


@cli.group()
def volume() -> None:
    """Volumes: named, versioned storage for checkpoints."""


@volume.command("list")
@as_json
@reaches_server
def list_command(reach: Reach, as_json: bool) -> None:
    """List volumes."""
    volumes = reach.client().volumes()
    if as_json:
        show_json({"volumes": [v.full() for v in volumes]})
    else:
        show(volume_list(volumes, int(time.time() * 1000)))


@volume.command("show")
@click.argument("name", metavar="VOLUME")
@as_json
@reaches_server
def show_command(reach: Reach, name: str, as_json: bool) -> None:
    """Show a volume's versions: step, metrics, who committed them, which names point at them."""
    view = reach.client().volume(name)
    if as_json:
        show_json(view.full())
    else:
        show(volume_details(view, int(time.time() * 1000)))


@volume.command()
@click.argument("reference", metavar="VOLUME@VERSION")
@as_json
@reaches_server
def verify(reach: Reach, reference: str, as_json: bool) -> int:
    """Read every byte of a version and compare it with its manifest; exit 1 when something differs.

    The volume's directory must be reachable from this machine.

    \b
    Examples:
      gangline volume verify sft@12
      gangline volume verify sft@best
    """
    view, version = _version(reach.client(), reference)
    root = Path(view.root)
    if not root.is_dir():
        raise NotFound(f"{root} is not on this machine", fix="run this where the volume is mounted")
    problems = verify_version(root, version.directory, version.manifest_sha256)
    if as_json:
        show_json({"volume": view.volume, "version": version.version, "verified": not problems,
                   "problems": problems})
    elif problems:
        show([Text(f"{view.volume}@{version.version} is damaged:"), *(Text(f"  {p}") for p in problems)])
    else:
        show([Text(f"{view.volume}@{version.version} is verified: {version.files} files, "
                   f"{version.bytes} bytes")])
    return 1 if problems else 0


@volume.command()
@click.argument("name", metavar="VOLUME")
@click.option("--slot", required=True, help="The slot that would run again.")
@as_json
@reaches_server
def resume(reach: Reach, name: str, slot: str, as_json: bool) -> int:
    """Say which version the next gang of a slot would resume from; exit 1 when it would start fresh.

    That is the newest undamaged version the slot has committed since its last success.
    """
    client = reach.client()
    view = client.volume(name)
    chosen = resume_version(view, slot, client.list(slot_prefix=slot, limit=1000))
    if as_json:
        show_json({"volume": name, "slot": slot, "version": chosen.full() if chosen else None,
                   "path": str(Path(view.root) / chosen.directory) if chosen else None})
    elif chosen is None:
        show([Text(f"{slot} has committed nothing to {name} since its last success: it starts fresh")])
    else:
        step = "" if chosen.step is None else f", step {chosen.step}"
        show([Text(f"{name}@{chosen.version}{step}  {Path(view.root) / chosen.directory}")])
    return 0 if chosen else 1


@volume.command("name")
@click.argument("pointer", metavar="NAME")
@click.argument("reference", metavar="VOLUME@VERSION")
@click.option("--expect", type=click.IntRange(min=0),
              help="Revision the name must have now; 0: it must be new [default: whatever it has].")
@as_json
@reaches_server
def name_command(reach: Reach, pointer: str, reference: str, expect: int | None, as_json: bool) -> None:
    """Point a name at a version.

    \b
    Example:
      gangline volume name best sft@12
    """
    client = reach.client()
    view, version = _version(client, reference)
    set_to = client.set_name(view.volume, pointer, version.version, expect)
    if as_json:
        show_json(set_to.full())
    else:
        news(f"{view.volume}@{pointer} is {view.volume}@{set_to.version} (revision {set_to.revision})")


def resume_version(volume: VolumeView, slot: str, gangs: list[GangView]) -> VersionView | None:
    """The newest undamaged version `slot` has committed since its last success; None if there is none."""
    ends = [g.ended_ms or 0 for g in gangs if g.slot == slot and g.state is GangState.SUCCEEDED]
    since = max(ends, default=0)
    fit = [v for v in volume.versions if v.slot == slot and v.damaged is None and v.created_ms > since]
    return max(fit, key=lambda v: v.version, default=None)


def _version(client: Client, reference: str) -> tuple[VolumeView, VersionView]:
    match = re.fullmatch(r"([\w.-]+)@([\w.-]+)", reference)
    if match is None:
        raise Rejected(f"{reference!r} is not a version", fix="write VOLUME@NUMBER or VOLUME@NAME")
    view = client.volume(match[1])
    number = next((p.version for p in view.names if p.name == match[2]), None)
    if number is None and match[2].isdecimal():
        number = int(match[2])
    found = next((v for v in view.versions if v.version == number), None)
    if found is None:
        has = ", ".join(str(v.version) for v in view.versions[:5]) or "none"
        raise NotFound(f"{view.volume} has no version {match[2]}", fix=f"its newest are: {has}")
    return view, found
