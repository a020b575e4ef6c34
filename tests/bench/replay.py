"""What the policies are worth: traces replayed against EASY, FIFO and best-effort FIFO, and leaves per gang.

GANGLINE_TRACES names a folder that holds acme_kalos_converted.csv (hyunnnchoi/AcmeTrace), hpc2n_excerpt.swf.gz
(aleasimulator/alea, of the Parallel Workloads Archive) and lingjun_topo.csv.gz (alibaba-lingjun-dataset-2023), each
replayed if it is there; with GANGLINE_PHILLY=1 also philly_jobs.csv.gz (siasosp23/artifacts), which takes many
minutes. Without the variable a generated trace is replayed on a made-up network.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from lab import Lab
from table import Row

from gangline.model.gpu import GpuAsk
from gangline.plan.policy import POLICIES
from gangline.simulation.compare import compare
from gangline.simulation.demand import Limits
from gangline.simulation.engine import Conditions
from gangline.simulation.formats import Shape, load
from gangline.simulation.generator import Recipe, generate
from gangline.simulation.metrics import metrics
from gangline.simulation.trace import Trace
from gangline.simulation.world import World, read_topology, single_pool

ABOUT = "waits of traces replayed by each policy against EASY, and leaves per gang (GANGLINE_TRACES=DIR)"
OURS, OTHERS = ("submit-order", "short-first"), ("fifo", "best-effort-fifo")
STATS = (("mean wait", "wait_s", "mean"), ("longest wait", "wait_s", "max"),
         ("p99 wait of the largest 10 %", "wait_s_largest_decile", "p99"))
# Ratios to EASY by policy, in the order of STATS.
TARGETS = {"submit-order": (1.0, 1.05, 1.05), "short-first": (0.8, 1.5, 1.5)}
LEAVES = 1.1
LOCAL = Recipe(jobs=5000, load=0.7, least=2)
Found = dict[str, Mapping[str, Any]]


def run(lab: Lab) -> list[Row]:
    rows: list[Row] = []
    for name, trace, world in _traces():
        lab.say(f"replay: {name}: {len(trace.jobs):,} gangs on {world.node_count} nodes")
        found = _replayed(trace, world)
        for policy in OURS:
            rows += _against_easy(name, policy, found)
            for line in _losses(policy, found):
                lab.say(f"replay: {name}: {line}")
    return [*rows, _locality(lab)]


def _traces() -> Iterator[tuple[str, Trace, World]]:
    folder = os.environ.get("GANGLINE_TRACES")
    if folder is None:
        yield "generated", generate(Recipe(jobs=1000, load=0.9, most=64), 128, 1), single_pool(128, GpuAsk("H100", 8))
        return
    kalos, hpc2n, philly = (Path(folder, name) for name in (
        "acme_kalos_converted.csv", "hpc2n_excerpt.swf.gz", "philly_jobs.csv.gz"))
    if kalos.exists():
        yield "Kalos", load(kalos, "kalos", Shape()).compressed(0.1), single_pool(302, GpuAsk("A100", 8))
    if hpc2n.exists():
        yield ("HPC2N", load(hpc2n, "swf", Shape(procs_per_node=2)).compressed(0.5),
               single_pool(120, GpuAsk("cpu", 1)))
    if philly.exists() and os.environ.get("GANGLINE_PHILLY") == "1":
        yield "Philly", load(philly, "philly", Shape()), single_pool(60, GpuAsk("V100", 8))


def _replayed(trace: Trace, world: World) -> Found:
    policies = [POLICIES[name] for name in ("easy", *OURS, *OTHERS)]
    return {case.policy: metrics(case.replay)
            for case in compare(trace, [world], policies, Limits.parse(None, trace), Conditions())}


def _against_easy(trace: str, policy: str, found: Found) -> Iterator[Row]:
    for (what, key, stat), most in zip(STATS, TARGETS[policy], strict=True):
        yield Row(what=f"{trace}, {policy}: {what}", ours=(_hours(found[policy], key, stat),), unit="h",
                  against="easy", other=(_hours(found["easy"], key, stat),), most_ratio=most)
    for other in OTHERS:
        yield Row(what=f"{trace}, {policy}: mean wait", ours=(_hours(found[policy], "wait_s", "mean"),), unit="h",
                  against=other, other=(_hours(found[other], "wait_s", "mean"),))


def _losses(policy: str, found: Found) -> Iterator[str]:
    """Every figure in which another policy is better by more than a thousandth."""
    for other in ("easy", *OTHERS):
        for what, key, stat in (*STATS, ("median wait", "wait_s", "p50"), ("p99 wait", "wait_s", "p99")):
            mine, theirs = (_hours(found[name], key, stat) for name in (policy, other))
            if mine > theirs * 1.001:
                ratio = f"{mine / theirs:.2f}x" if theirs else "instead of none"
                yield f"{policy} loses to {other} in {what}: {mine:.2f} h, {ratio}"
        mine, theirs = (found[name]["makespan_s"] for name in (policy, other))
        if mine > theirs * 1.001:
            yield f"{policy} loses to {other} in makespan: {mine / theirs:.3f}x"


def _locality(lab: Lab) -> Row:
    path = Path(os.environ.get("GANGLINE_TRACES", ""), "lingjun_topo.csv.gz")
    if "GANGLINE_TRACES" in os.environ and path.exists():
        name, world = "Lingjun", read_topology(path, GpuAsk("GPU", 8))
    else:
        name, world = "made-up", read_topology(_network(lab.folder / "hosts.csv"), GpuAsk("GPU", 8))
    lab.say(f"replay: locality: {LOCAL.jobs:,} gangs on the {name} network of {world.node_count} nodes")
    (case,) = compare(generate(LOCAL, world.node_count, 0), [world], [POLICIES["submit-order"]], Limits("exact"),
                      Conditions())
    return Row(what=f"leaves used / fewest, {name} network, load {LOCAL.load:g}", unit="", most=LEAVES,
               ours=(metrics(case.replay)["leaves_over_minimum"],))


def _network(path: Path) -> Path:
    """Three pods of 40 leaves with 7 hosts."""
    hosts = [f"core,pod-{pod},leaf-{leaf}\n" for pod in range(3) for leaf in range(40) for _ in range(7)]
    path.write_text("DSW,PSW,ASW\n" + "".join(hosts))
    return path


def _hours(numbers: Mapping[str, Any], key: str, stat: str) -> float:
    return float(numbers[key][stat]) / 3600
