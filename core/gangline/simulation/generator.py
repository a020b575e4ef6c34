"""Traces made up from a seed: sizes from a marginal, log-normal durations, Poisson arrivals."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from random import Random
from typing import Any

from gangline.model.errors import Rejected
from gangline.model.units import parse_duration_s
from gangline.simulation.rows import csv_rows
from gangline.simulation.trace import Job, Trace

Marginal = tuple[tuple[int, int, int], ...]  # (fewest nodes, most nodes, jobs): any size between is as likely

# Gang sizes of the 466,867 jobs of Alibaba's v2026-spot-gpu trace (github.com/alibaba/clusterdata), counted
# by sultanul-ovi/GPU-Cluster-Spot-Resource-Dataset-Analysis (MIT).
SPOT_SIZES: Marginal = (
    (1, 1, 427_584), (2, 2, 13_142), (3, 3, 4_600), (4, 4, 5_267), (5, 8, 7_526), (9, 16, 4_203),
    (17, 32, 2_966), (33, 64, 966), (65, 128, 466), (129, 332, 147))


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """What is made: `jobs` gangs that offer `load` of the fleet, from `least` to `most` nodes each.

    Durations are log-normal with that median and sigma (of the logarithm), and at most `longest_ms`: a
    heavy tail would make the load of one seed differ much from another's.
    """

    jobs: int = 20_000
    load: float = 0.7
    least: int = 1
    most: int | None = None
    median_ms: int = 30 * 60_000
    sigma: float = 1.5
    longest_ms: int = 7 * 86_400_000
    rdma: bool = False
    sizes: Path | None = None

    @staticmethod
    def parse(text: str) -> Recipe:
        """The recipe written as jobs=20000,load=0.7,least=2,most=64,median=30m,sigma=1.5,longest=7d,
        rdma=true,sizes=FILE.csv; what is left out has its default.

        Raises:
            Rejected: a word is not known or its value is none.
        """
        recipe = Recipe()
        for part in filter(None, (part.strip() for part in text.split(","))):
            key, _, value = part.partition("=")
            try:
                recipe = replace(recipe, **_field(key.strip(), value.strip()))
            except ValueError as exc:
                raise Rejected(f"{part!r}: {exc}", field="--generate", fix="write jobs=20000,load=0.7") from None
        return recipe


def _field(key: str, value: str) -> dict[str, Any]:
    match key:
        case "jobs" | "least" | "most":
            count = int(value)
            if not 1 <= count <= 10_000_000:
                raise ValueError("expected a whole number from 1 to 10,000,000")
            return {key: count}
        case "load" | "sigma":
            number = float(value)
            if not 0 < number <= 100:
                raise ValueError("expected a number above 0, at most 100")
            return {key: number}
        case "median" | "longest":
            return {f"{key}_ms": max(1, round(parse_duration_s(value) * 1000))}
        case "rdma":
            if value not in ("true", "false"):
                raise ValueError("expected true or false")
            return {"rdma": value == "true"}
        case "sizes":
            return {"sizes": Path(value)}
        case _:
            raise ValueError("the words are jobs, load, least, most, median, sigma, longest, rdma and sizes")


def generate(recipe: Recipe, nodes: int, seed: int) -> Trace:
    """A trace for a fleet of so many nodes; the same seed makes the same one.

    Gaps between submissions are exponential and then scaled, so that the work is exactly `load` of what
    the fleet could do between the first and the last submission.

    Raises:
        Rejected: no size is in the range asked for, or the file of sizes is wrong.
    """
    rng = Random(f"{seed}/trace")  # noqa: S311 - it has to repeat itself
    marginal = _within(SPOT_SIZES if recipe.sizes is None else read_sizes(recipe.sizes),
                       recipe.least, min(nodes, recipe.most or nodes))
    sums = list(accumulate(jobs for _, _, jobs in marginal))
    sizes = [rng.randint(*marginal[_pick(sums, rng)][:2]) for _ in range(recipe.jobs)]
    mu = math.log(recipe.median_ms)
    durations_ms = [min(recipe.longest_ms, max(1000, round(rng.lognormvariate(mu, recipe.sigma))))
                    for _ in range(recipe.jobs)]
    gaps = [0.0, *(rng.expovariate(1.0) for _ in range(recipe.jobs - 1))]
    work = sum(size * duration for size, duration in zip(sizes, durations_ms, strict=True))
    scale = work / (recipe.load * nodes * (sum(gaps) or 1.0))
    jobs = (Job(submit_ms=round(at * scale), duration_ms=duration, nodes=size, rdma=recipe.rdma and size > 1)
            for at, size, duration in zip(accumulate(gaps), sizes, durations_ms, strict=True))
    return Trace.of(f"generated, seed {seed}", jobs)


def _pick(sums: list[int], rng: Random) -> int:
    at = rng.randrange(sums[-1])
    return next(index for index, upto in enumerate(sums) if at < upto)


def _within(marginal: Marginal, least: int, most: int) -> Marginal:
    """The part of a marginal that lies in a range; what lies across its border counts in proportion."""
    kept = []
    for low, high, jobs in marginal:
        first, last = max(low, least), min(high, most)
        share = jobs * max(0, last - first + 1) // (high - low + 1)
        if share:
            kept.append((first, last, share))
    if not kept:
        raise Rejected(f"no size from {least} to {most} nodes occurs", field="--generate",
                       fix="widen least and most, or give a bigger fleet")
    return tuple(kept)


def read_sizes(path: Path) -> Marginal:
    """The sizes in a CSV file with the columns worker_num (nodes) and jobs."""
    rows = csv_rows(path, ("worker_num", "jobs"))
    marginal = tuple((size, size, row.count("jobs")) for row in rows for size in (row.count("worker_num"),))
    if not marginal:
        raise Rejected(f"{path} holds no sizes", fix="give rows of worker_num,jobs")
    return marginal
