"""`fleet import`: what Slurm, Topograph or Kubernetes know of a fleet, written into its file."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import yaml

from gangline.cli.app import as_json
from gangline.cli.fleet_text import LOADER, Edited, edited
from gangline.cli.output import news, show, show_json
from gangline.cli.render_import import merge_json, merge_lines
from gangline.client.address import home_dir
from gangline.client.record import read_record
from gangline.fabric.merging import Merge, merge
from gangline.fabric.pooling import PoolChoice
from gangline.fabric.topology import FORMATS, combine, read_topology
from gangline.model.errors import Conflict, Rejected
from gangline.model.fleet import Fleet

if TYPE_CHECKING:
    from gangline.client.http import Client

MAX_BYTES = 512 << 20  # kubectl writes some 20 kB a node


@click.command("import")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path, allow_dash=True), metavar="FILE...")
@click.option("--format", "format_", type=click.Choice(FORMATS), default="auto", show_default=True,
              help="What the files are.")
@click.option("--pool", metavar="NAME", help="The pool of nodes the fleet does not name yet.")
@click.option("--gpu", metavar="TYPE:COUNT", help="What those nodes have, where the files do not say.")
@click.option("--emulated", is_flag=True, help="Pools made for them are emulated, to try the fleet out here.")
@click.option("--fleet", "target", metavar="FLEET.yaml", type=click.Path(path_type=Path),
              help="The fleet file [default: the one of the running server, else the home's].")
@click.option("--home", metavar="DIR", help="Home of the server [default: GANGLINE_HOME, else ~/.gangline].")
@click.option("--dry-run", is_flag=True, help="Show what would change and change nothing.")
@as_json
def import_command(files: tuple[Path, ...], format_: str, target: Path | None, home: str | None, dry_run: bool,
                   as_json: bool, **choice: Any) -> None:
    """Take over where nodes hang, and nodes the fleet does not name yet, from other systems' files.

    Reads Slurm's topology.conf and topology.yaml, what Topograph writes, and Kubernetes nodes with
    topology labels; - stands for standard input. Several files are joined: switches from one, NVLink
    blocks from another. Nodes of the fleet that no file tells of stay as they are. A running server
    takes the new file over; it is asked first whether it can, and when it cannot nothing is written.

    \b
    Examples:
      gangline fleet import /etc/slurm/topology.conf --dry-run
      kubectl get nodes -o json | gangline fleet import -
    """
    folder = home_dir(home, os.environ)
    with _Server.of(folder) as server:
        path = Path(os.path.realpath(target or server.file or folder / "fleet.yaml"))
        text, fleet = _read_fleet(path)
        topology = combine(read_topology(_read(file), _name(file), format_) for file in files)
        merged = merge(fleet, topology, PoolChoice(**choice), ", ".join(map(_name, files)))
        result = edited(text, merged) if merged.changes else Edited(text)
        if merged.changes:
            server.check(path, result.text)
        if merged.changes and not dry_run:
            backup = _write(path, text, result)
            told = server.follow(path)
        else:
            backup, told = None, ""
    if as_json:
        show_json(merge_json(merged, file=str(path), written=merged.changes and not dry_run, backup=backup,
                             server=told))
        return
    show(merge_lines(merged))
    _report(path, merged, result, dry_run=dry_run, backup=backup, told=told)


def _report(path: Path, merged: Merge, result: Edited, *, dry_run: bool, backup: str | None, told: str) -> None:
    for finding in merged.findings:
        news(f"note: {finding}")
    if not merged.changes:
        news(f"{path} says all of it already")
        return
    if result.lost:
        news(f"note: {len(result.lost)} comments {'would not be' if dry_run else 'were not'} kept, such as: "
             f"{result.lost[0]}" + (f" (the file before is {backup})" if backup else ""))
    news(f"{path} would be written" if dry_run else f"wrote {path}" + (f"; {told}" if told else ""))


@dataclass(slots=True)
class _Server:
    """The home's server, if one runs."""

    client: Client | None
    file: Path | None

    @staticmethod
    def of(home: Path) -> _Server:
        record = read_record(home)
        if record is None or not record.alive:
            return _Server(None, None)
        from gangline.client import connect

        client = connect(home=home, start=False)
        file = client.status().fleet
        return _Server(client, home / "fleet.yaml" if file is None else Path(file))

    def __enter__(self) -> _Server:
        return self

    def __exit__(self, *_: object) -> None:
        if self.client is not None:
            self.client.close()

    def reads(self, path: Path) -> bool:
        return self.file is not None and Path(os.path.realpath(self.file)) == path

    def check(self, path: Path, text: str) -> None:
        """Raises what the server has against the new text, before anything is written."""
        if self.client is not None and self.reads(path):
            self.client.reload_fleet(text=text, dry_run=True)

    def follow(self, path: Path) -> str:
        """Has the server take the file over; what came of it, in words."""
        if self.client is None:
            return ""
        if not self.reads(path):
            return f"the running server follows {self.file}, so it was not told"
        self.client.reload_fleet()
        return "the running server follows it"


def _name(file: Path) -> str:
    return "standard input" if str(file) == "-" else str(file)


def _read(file: Path) -> str:
    try:
        with click.open_file(str(file), "rb") as source:
            data: bytes = source.read(MAX_BYTES + 1)
    except OSError as exc:
        raise Rejected(f"cannot read {file}: {exc.strerror}", field="FILE", fix="check the path") from None
    if len(data) > MAX_BYTES:
        raise Rejected(f"{file} is larger than {MAX_BYTES >> 20} MiB", field="FILE", fix="give it in parts")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise Rejected(f"{file} is not text", field="FILE", fix="give a file in UTF-8") from None


def _read_fleet(path: Path) -> tuple[str, Fleet | None]:
    if not path.exists():
        return "", None
    text = _read(path)
    try:
        data = yaml.load(text, Loader=LOADER)  # noqa: S506 - a safe one
    except yaml.YAMLError as exc:
        raise Rejected(f"{path} is not YAML: " + " ".join(str(exc).split()), field="--fleet") from None
    return text, None if data is None else Fleet.parse(data, where=str(path))


def _write(path: Path, before: str, result: Edited) -> str | None:
    """Replaces the file in one step; the name of the copy of the old one, if its comments would be lost."""
    backup = path.with_name(f"{path.name}.bak")
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if (path.read_text("utf-8-sig") if path.exists() else "") != before:
            raise Conflict(f"{path} was changed while it was read", fix="run it again")
        if result.lost:
            shutil.copy2(path, backup)
        with open(part, "w", encoding="utf-8") as file:
            file.write(result.text)
            file.flush()
            os.fsync(file.fileno())
        if path.exists():
            shutil.copymode(path, part)
        os.replace(part, path)
    except OSError as exc:
        raise Rejected(f"cannot write {path}: {exc.strerror}", field="--fleet",
                       fix="name a file you can write") from None
    finally:
        part.unlink(missing_ok=True)
    return str(backup) if result.lost else None


