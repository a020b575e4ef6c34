"""`simulate`: a trace through the production planner, under a virtual clock."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from gangline.cli.app import as_json, cli
from gangline.cli.output import news, show, show_json
from gangline.cli.render_simulation import Watch, as_table, plain
from gangline.cli.yamlfile import read_fleet
from gangline.model.errors import Rejected
from gangline.model.gpu import CPU, GpuAsk, parse_gpu
from gangline.model.units import parse_duration_s
from gangline.plan.declared import policy_of
from gangline.plan.policy import POLICIES, Policy
from gangline.simulation.compare import compare
from gangline.simulation.demand import Limits
from gangline.simulation.engine import Conditions
from gangline.simulation.formats import FORMATS, Shape, load
from gangline.simulation.generator import Recipe, generate
from gangline.simulation.plot import plot
from gangline.simulation.trace import Trace
from gangline.simulation.world import World, read_topology, resized, single_pool, world_of

_BASELINE = "easy"


class _Value(click.ParamType[Any]):
    """A value parsed by a function whose ValueError says what is wrong."""

    def __init__(self, name: str, parse: Any) -> None:
        self.name, self._parse = name, parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return self._parse(value)
        except ValueError as exc:
            self.fail(str(exc), param, ctx)


def _span_ms(text: str) -> int:
    ms = round(parse_duration_s(text) * 1000)
    if ms < 1:
        raise ValueError("give at least 1ms")
    return ms


def _count_of(text: str) -> tuple[str, int]:
    pool, _, count = text.rpartition("=")
    if not pool or not count.isdigit():
        raise ValueError(f"{text!r} is not POOL=NODES")
    return pool, int(count)


_DURATION, _GPU = _Value("duration", _span_ms), _Value("type:count", parse_gpu)
_WHAT_IF = _Value("pool=n", _count_of)
_FILE = click.Path(path_type=Path)


@cli.command()
@click.option("--fleet", "fleet_path", type=_FILE, metavar="FLEET.yaml", help="The fleet to replay on.")
@click.option("--topology", type=_FILE, metavar="HOSTS.csv",
              help="Instead of a fleet: hosts and their switches, in columns DSW, PSW, ASW.")
@click.option("--nodes", type=click.IntRange(min=1), metavar="N",
              help="The size of the fleet's only pool; without a fleet, of one pool on one leaf.")
@click.option("--gpu", type=_GPU, default="GPU:8", show_default=True, metavar="TYPE:COUNT",
              help="What a node is, without a fleet file.")
@click.option("--trace", "trace_path", type=_FILE, metavar="TRACE", help="The jobs to replay; .gz is unpacked.")
@click.option("--format", "format_name", type=click.Choice(list(FORMATS)),
              help="Of the trace [default: told by its first line].")
@click.option("--generate", "recipe", metavar="jobs=N,load=X,…",
              help="Make the jobs up instead: also least, most, median, sigma, longest, rdma, sizes=FILE.csv.")
@click.option("--compress", type=click.FloatRange(min=0, min_open=True), default=1.0, show_default=True,
              metavar="FACTOR", help="Scale the times between submissions; below 1 the load grows.")
@click.option("--procs-per-node", type=click.IntRange(min=1), metavar="N",
              help="For swf: processors that make a node [default: GPUs of the fleet's largest node].")
@click.option("--rdma", is_flag=True, help="Every gang of several nodes asks for one fabric.")
@click.option("--policy", "names", type=click.Choice(list(POLICIES)), multiple=True,
              help="Policies to compare; repeat it [default: the fleet's, and easy].")
@click.option("--limits", "limits_text", metavar="exact|trace|none|xF",
              help="What the planner is told of how long a job may run: how long it does, what its user said, nothing, "
              "or F times how long it does. A job over its limit is killed [default: trace if it has any, else exact].")
@click.option("--what-if", "what_ifs", type=_WHAT_IF, multiple=True, metavar="POOL=N",
              help="Compare with the same fleet when this pool has exactly N nodes; repeat it for more fleets.")
@click.option("--failures", type=click.FloatRange(min=0, max=1000), default=0.0, metavar="RATE",
              help="Failures per node and day; 0.0065 was seen on 16,000 A100. A failed gang is requeued.")
@click.option("--repair", "repair_ms", type=_DURATION, default="4h", show_default=True, metavar="TIME",
              help="How long a failed node is away.")
@click.option("--checkpoint-every", "checkpoint_ms", type=_DURATION, default="30m", show_default=True, metavar="TIME",
              help="What a gang did since is lost when it fails or is preempted.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of generated jobs and failures.")
@click.option("--plot", "plot_path", type=_FILE, metavar="OUT.png", help="Draw utilisation, queue and waits.")
@as_json
def simulate(trace_path: Path | None, recipe: str | None, names: tuple[str, ...], limits_text: str | None,
             plot_path: Path | None, as_json: bool, **given: Any) -> None:
    """Replay a trace through the planner: how long would gangs wait, on this fleet, by this policy?

    The planner is the one the server runs; time is virtual, so months take seconds. Formats: Kalos and
    Philly (CSV), SWF, Alibaba's spot trace, and gang-csv with the columns
    submit_s,nodes,gpus_per_node,gpu,duration_s,limit_s,tenant,rdma,priority (empty: unknown or default).

    \b
    Examples:
      gangline simulate --fleet fleet.yaml --trace jobs.csv
      gangline simulate --fleet fleet.yaml --trace jobs.csv --policy submit-order --policy easy --plot waits.png
      gangline simulate --fleet fleet.yaml --trace jobs.csv --what-if h100=64      would more nodes help?
      gangline simulate --nodes 302 --gpu A100:8 --trace kalos.csv --compress 0.1
      gangline simulate --nodes 120 --gpu cpu --trace hpc2n.swf.gz --procs-per-node 2 --compress 0.5
      gangline simulate --topology hosts.csv --generate jobs=20000,load=0.7 --json
    """
    worlds, own = _worlds(given)
    trace = _trace(trace_path, recipe, worlds[0], given)
    # What the fleet's file wants otherwise of its policy holds wherever that one is compared.
    policies = [own if name == own.name else POLICIES[name] for name in dict.fromkeys(names)]
    policies = policies or _default_policies(own)
    limits = Limits.parse(limits_text, trace)
    conditions = Conditions(seed=given["seed"], failures_per_node_day=given["failures"],
                            repair_ms=given["repair_ms"], checkpoint_ms=given["checkpoint_ms"])
    with Watch(len(worlds) > 1) as watch:
        cases = list(compare(trace, worlds, policies, limits, conditions, begin=watch.begin))
    if plot_path is not None:
        plot(cases, f"{trace.name}: {len(trace.jobs):,} jobs on {worlds[0].node_count:,} nodes", plot_path)
        news(f"drawn: {plot_path}")
    if as_json:
        show_json(plain(trace, worlds, limits, cases))
    else:
        show(as_table(trace, worlds, limits, cases))


def _default_policies(own: Policy) -> list[Policy]:
    return [own] if own.name == _BASELINE else [own, POLICIES[_BASELINE]]


def _worlds(given: dict[str, Any]) -> tuple[list[World], Policy]:
    """The fleet and those thought up beside it, and the policy that the fleet's file names."""
    path, topology, nodes, what_ifs = (given[key] for key in ("fleet_path", "topology", "nodes", "what_ifs"))
    if path is None:
        return [_without_file(topology, nodes, given["gpu"], what_ifs)], Policy()
    if topology is not None:
        raise Rejected("say either --fleet or --topology", field="--topology", fix="leave one of them out")
    fleet = read_fleet(path)
    if nodes is not None:
        if len(fleet.pools) > 1:
            raise Rejected("the fleet has several pools", field="--nodes", fix="say --what-if POOL=N")
        fleet = resized(fleet, {fleet.pools[0].name: nodes})
    worlds = [world_of(fleet, "the fleet")]
    for pool, count in what_ifs:
        worlds.append(world_of(resized(fleet, {pool: count}), f"{pool}={count}"))
    return worlds, policy_of(fleet.scheduling)


def _without_file(topology: Path | None, nodes: int | None, gpu: GpuAsk, what_ifs: Sequence[Any]) -> World:
    if what_ifs:
        raise Rejected("needs a fleet whose pools it can change", field="--what-if", fix="give --fleet FLEET.yaml")
    if topology is not None and nodes is not None:
        raise Rejected("a topology has as many nodes as it has hosts", field="--nodes", fix="leave it out")
    if topology is not None:
        return read_topology(topology, gpu)
    if nodes is not None:
        return single_pool(nodes, gpu)
    raise Rejected("there is no fleet to replay on", field="--fleet",
                   fix="give --fleet FLEET.yaml, --topology HOSTS.csv or --nodes N")


def _trace(path: Path | None, recipe: str | None, world: World, given: dict[str, Any]) -> Trace:
    if (path is None) == (recipe is None):
        raise Rejected("give one of --trace and --generate", field="--trace", fix="say which jobs to replay")
    if recipe is not None:
        gpu_nodes = sum(node.gpu.type != CPU and not node.gone for node in world.nodes)  # jobs ask for these
        trace = generate(Recipe.parse(recipe), gpu_nodes or world.node_count, given["seed"])
    else:
        assert path is not None
        shape = Shape(gpus_per_node=world.gpus_per_node, procs_per_node=given["procs_per_node"] or world.gpus_per_node)
        trace = load(path, given["format_name"], shape)
    trace = trace.compressed(given["compress"])
    return trace.asking_rdma() if given["rdma"] else trace
