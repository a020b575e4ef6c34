"""From rows to what an engine sees; pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from gangline.engines.base import JobStatus, NodeStatus, SeenJob, SeenNode
from gangline.engines.slurm.request import printable
from gangline.engines.slurm.states import job_status, node_status
from gangline.engines.slurm.table import JobRow, NodeRow
from gangline.fabric.topology import Place
from gangline.model.fleet import Pool
from gangline.model.gpu import CPU

_ACTIVE = (JobStatus.RUNNING, JobStatus.UNKNOWN)
_MOST_FOREIGN = 8  # names of jobs told of one node


@dataclass(frozen=True, slots=True)
class Load:
    """What active jobs hold of a node: GPUs of ours, and the jobs of others."""

    ours_gpus: int = 0
    foreign: tuple[JobRow, ...] = ()


def loads(jobs: Iterable[JobRow], ours: Iterable[JobRow]) -> dict[str, Load]:
    """The load of every node that has one."""
    mine = {row.id for row in ours}
    found: dict[str, Load] = {}
    for row in jobs:
        if job_status(row.state) not in _ACTIVE:
            continue
        for node in row.nodes:
            load = found.get(node, Load())
            if row.id in mine:
                found[node] = Load(load.ours_gpus + row.gpus_per_node, load.foreign)
            else:
                found[node] = Load(load.ours_gpus, (*load.foreign, row))
    return found


def seen_nodes(pools: Iterable[Pool], rows: Iterable[NodeRow], load: Mapping[str, Load],
               places: Mapping[str, Place]) -> tuple[SeenNode, ...]:
    """The nodes of the pools' partitions; one that is in two belongs to the pool that the fleet names first."""
    ordered = tuple(pools)
    found = []
    for row in rows:
        for pool in ordered:
            if pool.slurm is not None and pool.slurm.partition in row.partitions:
                found.append(_seen_node(pool, row, load.get(row.name, Load()), places.get(row.name)))
                break
    return tuple(found)


def _seen_node(pool: Pool, row: NodeRow, load: Load, place: Place | None) -> SeenNode:
    assert pool.slurm is not None
    cpu_only = pool.ask.type == CPU
    count = row.cpus if cpu_only else row.gpus.count
    status = node_status(row.words, reserved_for_us=pool.slurm.reservation is not None)
    return SeenNode(
        name=row.name, pool=pool.name, status=status, address=row.address,
        gpu_type=CPU if cpu_only else row.gpus.type, gpu_count=count,
        path=() if place is None else place.path, domain=None if place is None else place.domain,
        foreign_gpus=_foreign(row, load, count, cpu_only=cpu_only),
        foreign=tuple(f"{printable(job.name, 60)} (job {job.id})" for job in load.foreign[:_MOST_FOREIGN]),
        text=row.state if not row.reason else f"{row.state}: {printable(row.reason, 300)}",
        empty=status is NodeStatus.DOWN and "powered_down" in row.words)


def _foreign(row: NodeRow, load: Load, count: int, *, cpu_only: bool) -> int:
    """What others hold, in the pool's unit. Who has all processors left has the rest of the node with them."""
    if not load.foreign:
        return 0
    used = row.cpus_used if cpu_only else row.gpus_used
    if not cpu_only and row.cpus_used >= row.cpus:
        used = count
    return min(max(1, used - load.ours_gpus), max(1, count))


def seen_jobs(ours: Iterable[JobRow]) -> dict[str, SeenJob]:
    """Our jobs by name. Of several with one name it is the first that has not ended, else the last one."""
    chosen: dict[str, JobRow] = {}
    for row in sorted(ours, key=lambda row: row.id):
        other = chosen.get(row.name)
        if other is None or job_status(other.state) is JobStatus.ENDED:
            chosen[row.name] = row
    return {name: _seen_job(row) for name, row in chosen.items()}


def _seen_job(row: JobRow) -> SeenJob:
    status = job_status(row.state)
    reason = printable(row.reason, 200)
    return SeenJob(name=row.name, id=str(row.id), status=status, nodes=row.nodes,
                   text=reason if status is JobStatus.WAITING and reason else f"{row.state} {reason}".strip())
