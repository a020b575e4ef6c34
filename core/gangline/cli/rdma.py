"""`rdma detect | env | profiles | estimate`."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click
import yaml

from gangline.cli.app import as_json, cli
from gangline.cli.output import news, show, show_json
from gangline.cli.rdma_diagnose import diagnose
from gangline.cli.render_rdma import (
    detection_lines,
    environment_lines,
    estimate_lines,
    export_lines,
    profile_lines,
    profile_list,
)
from gangline.cli.yamlfile import read_mapping
from gangline.fabric.asking import ask_of, pod_parts, ray_options, sbatch_lines
from gangline.fabric.detection import Detection, detect
from gangline.fabric.environment import Gang, environment, parse_version
from gangline.fabric.estimate import estimate, kv_cache_bytes, ways
from gangline.fabric.finding import Verdict
from gangline.fabric.profiles import Catalogue, Profile, load_catalogue
from gangline.model.errors import NotFound, Rejected
from gangline.model.units import parse_duration_s

F = TypeVar("F", bound=Callable[..., Any])

_SHOWN = ("NCCL_", "UCX_", "GLOO_", "TP_", "TORCH_NCCL_", "FI_", "OFI_", "RDMAV_", "CUDA_", "LD_LIBRARY_PATH")


@cli.group()
def rdma() -> None:
    """RDMA of a machine: what is there, what it needs, and what logs say of it."""


rdma.add_command(diagnose)


def _own_profiles(command: F) -> F:
    return click.option("--profiles", "own", type=click.Path(path_type=Path), envvar="GANGLINE_RDMA_PROFILES",
                        metavar="FILE", help="Own profiles, before the shipped ones [default: "
                        "GANGLINE_RDMA_PROFILES].")(command)


def _on_host(command: F) -> F:
    command = click.option("--profile", envvar="GANGLINE_RDMA_PROFILE", metavar="NAME", help="The kind of machine, "
                           "instead of finding out [default: GANGLINE_RDMA_PROFILE].")(command)
    command = click.option("--root", type=click.Path(path_type=Path, file_okay=False, exists=True), default=Path("/"),
                           metavar="DIR", help="Stands for /: a copy of another host's files.")(command)
    return _own_profiles(command)


@rdma.command("detect")
@_on_host
@as_json
def detect_command(root: Path, profile: str | None, own: Path | None, as_json: bool) -> int:
    """Show what RDMA this machine has and what is missing.

    Also which kind of machine it is and why, and what each NIC is for. Only files are read: nothing is
    sent, opened or changed. Inside a container the answer is the container's. Exit 0 when
    everything is there, 1 when something is missing, broken or cannot be seen.

    \b
    Examples:
      gangline rdma detect
      gangline rdma detect --root ./sysfs-of-node-7 --json
    """
    found = _detected(root, profile, own)
    if as_json:
        show_json(found.full())
    else:
        show(detection_lines(found))
    return 0 if found.verdict is Verdict.READY else 1


@rdma.command("env")
@_on_host
@click.option("--nodes", type=click.IntRange(min=1), default=2, show_default=True, help="How many nodes the gang has.")
@click.option("--node", default="", metavar="NAME", help="This node's name in the gang (for NCCL_HOSTID).")
@click.option("--nccl", metavar="VERSION", help="The NCCL that ranks load, such as 2.27.3 [default: not known].")
@click.option("--export", "as_export", is_flag=True, help='For a shell: eval "$(gangline rdma env --export)".')
@as_json
def env_command(root: Path, profile: str | None, own: Path | None, nodes: int, node: str, nccl: str | None,
                as_export: bool, as_json: bool) -> int:
    """Show the environment that makes NCCL use RDMA or fail.

    Each line has its reason. Variables that are set here already stay as they are, and it is told when
    that undoes what rdma promises. Run it where the ranks run: inside the container. Exit 1 when it
    is undone, or when the machine cannot do RDMA.
    """
    version = parse_version(nccl) if nccl is not None else None
    if version == ():
        raise Rejected(f"{nccl!r} is not a version", field="--nccl", fix="write it like 2.27.3")
    found = _detected(root, profile, own)
    user = _own_variables(os.environ) if root == Path("/") else {}
    env = environment(found, Gang(node=node, nodes=nodes, nccl=version, user=user))
    if as_json:
        show_json({**env.full(), "assured": env.assured, "verdict": found.verdict, "variables": env.variables()})
    elif as_export:
        show(export_lines(env))
    else:
        show(environment_lines(env, found))
    good = env.assured and found.verdict is not Verdict.UNUSABLE
    if as_export and not good:
        news("rdma is not assured; see: gangline rdma env")
    return 0 if good else 1


@rdma.command("profiles")
@click.argument("name", required=False)
@_own_profiles
@click.option("--for", "engine", type=click.Choice(["kubernetes", "slurm", "ray"]), help="What to ask that engine for.")
@click.option("--nodes", type=click.IntRange(min=1), default=2, show_default=True, help="Nodes of the gang, for --for.")
@as_json
def profiles_command(name: str | None, own: Path | None, engine: str | None, nodes: int, as_json: bool) -> None:
    """List the kinds of machines that are known, or show one.

    \b
    Examples:
      gangline rdma profiles
      gangline rdma profiles aws.p5
      gangline rdma profiles gcp.a3-ultra --for kubernetes
    """
    catalogue = _catalogue(own)
    if name is None:
        if engine is not None:
            raise Rejected("of which kind of machine?", field="--for", fix="name a profile, such as aws.p5")
        rows = catalogue.profiles
        show_json({"profiles": [row.full() for row in rows]}) if as_json else show(profile_list(rows))
        return
    row = catalogue.profile(name)
    if row is None:
        raise NotFound(f"no profile {name!r}", fix="see: gangline rdma profiles")
    if engine is not None:
        _show_ask(row, engine, nodes, as_json)
    elif as_json:
        show_json(row.full())
    else:
        show(profile_lines(row))


@rdma.command("estimate")
@click.option("--bytes", "size", metavar="N", help="How much, such as 717e9.")
@click.option("--kv", metavar="LAYERS,HEADS,DIM,TOKENS[,BYTES]", help="The KV cache of a transformer instead.")
@click.option("--fabric", metavar="PROFILE", help="Over the network of that kind of machine.")
@click.option("--gbps", type=float, metavar="GBPS", help="Over a network of that rate.")
@click.option("--nodes", type=click.IntRange(1, 1_000_000), default=1, show_default=True, help="Nodes that need it.")
@click.option("--efficiency", type=click.FloatRange(0, 1, min_open=True), metavar="SHARE",
              help="The share of the line rate that is reached [default: 0.9 of a network, 1 of a disk].")
@click.option("--within", metavar="TIME", help="Say which share would be needed to be that fast, such as 2s.")
@_own_profiles
@as_json
def estimate_command(size: str | None, kv: str | None, fabric: str | None, gbps: float | None, own: Path | None,
                     as_json: bool, **assumed: Any) -> None:
    """Work out how long bytes take to move.

    Over TCP, RDMA and from local disks. Nothing is measured.

    \b
    Examples:
      gangline rdma estimate --bytes 717e9                       weights of a large model
      gangline rdma estimate --bytes 717e9 --gbps 3200 --within 2s
      gangline rdma estimate --bytes 717e9 --fabric aws.p5 --nodes 16
      gangline rdma estimate --kv 80,8,128,32768                 10.74 GB, Llama 3.1 70B
    """
    total = _size_bytes(size, kv)
    if fabric is not None and gbps is not None:
        raise Rejected("both --fabric and --gbps are given", fix="give one of them")
    if gbps is not None and not 0 < gbps < 1e9:
        raise Rejected(f"{gbps:g} is no rate", field="--gbps", fix="write Gbps, such as 3200")
    chosen = ways(_fabric_gbps(_catalogue(own), fabric), fabric, assumed["efficiency"]) if fabric is not None \
        else ways(gbps, efficiency=assumed["efficiency"])
    nodes, within_s = assumed["nodes"], _within_s(assumed["within"])
    made = [estimate(total, way, nodes, within_s) for way in chosen]
    if as_json:
        show_json({"bytes": total, "nodes": nodes, "estimates": [one.full() for one in made]})
    else:
        show(estimate_lines(total, nodes, made))


def _detected(root: Path, profile: str | None, own: Path | None) -> Detection:
    folders = os.environ.get("LD_LIBRARY_PATH", "").split(":") if root == Path("/") else []
    return detect(root, catalogue=_catalogue(own), profile=profile, library_directories=folders)


def _catalogue(own: Path | None) -> Catalogue:
    return load_catalogue() if own is None else load_catalogue(read_mapping(own, "profiles"), where=str(own))


def _own_variables(environ: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environ.items() if name.startswith(_SHOWN)}


def _show_ask(row: Profile, engine: str, nodes: int, as_json: bool) -> None:
    """The engine's own words; whoever writes pods or scripts by hand can copy them."""
    ask, gpus = ask_of(row), row.gpus or 8
    match engine:
        case "slurm":
            lines = sbatch_lines(ask, nodes, gpus)
            show_json({"lines": list(lines)}) if as_json else click.echo("\n".join(lines))
            return
        case "ray":
            parts = ray_options(ask, nodes, gpus, {})
        case _:
            parts = pod_parts(ask, "GANG", nodes, gpus)
    if as_json:
        show_json(parts)
        return
    click.echo(yaml.safe_dump(parts, sort_keys=False).rstrip())
    for note in (*ask.daemons, *ask.notes):
        news(f"note: {note}")


def _size_bytes(size: str | None, kv: str | None) -> float:
    if (size is None) == (kv is None):
        raise Rejected("how much?", fix="give either --bytes, such as 717e9, or --kv")
    try:
        if kv is not None:
            numbers = [int(part) for part in kv.split(",")]
            if len(numbers) not in (4, 5):
                raise ValueError
            total: float = kv_cache_bytes(*numbers)
        else:
            total = float(str(size).replace("_", ""))
    except ValueError:
        raise Rejected(f"{kv or size!r} is not understood", field="--kv" if kv else "--bytes",
                       fix="write 80,8,128,32768" if kv else "write a number of bytes, such as 717e9") from None
    if not 1 <= total < 1e21:
        raise Rejected(f"{total:g} bytes are out of range", field="--kv" if kv else "--bytes", fix="write 1 to 1e21")
    return total


def _fabric_gbps(catalogue: Catalogue, name: str) -> float:
    row = catalogue.profile(name)
    if row is None:
        raise NotFound(f"no profile {name!r}", field="--fabric", fix="see: gangline rdma profiles")
    if row.node_gbps is None:
        raise Rejected(f"the rate of {name} is not published", field="--fabric", fix="give --gbps")
    return row.node_gbps


def _within_s(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        seconds = parse_duration_s(text)
    except ValueError as exc:
        raise Rejected(str(exc), field="--within") from None
    if seconds <= 0:
        raise Rejected("nothing takes no time", field="--within", fix="write a time such as 2s")
    return seconds
