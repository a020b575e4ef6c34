"""Traces as others publish them, read into `Trace`: one reader for each format."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType

from gangline.model.errors import Rejected
from gangline.model.spec import PRIORITIES
from gangline.simulation.rows import Row, csv_rows, reading
from gangline.simulation.trace import Job, Trace

SPOT_PRIORITY = PRIORITIES["low"]  # jobs of high priority may end them
_GANG_NEEDED = ("submit_s", "duration_s")
GANG_COLUMNS = ("submit_s", "nodes", "gpus_per_node", "gpu", "duration_s", "limit_s", "tenant", "rdma", "priority")
_KALOS = ("arrival_time", "num_iteration", "iteration_computing_time", "gpu_workers", "gpu_per_worker")
_PHILLY = ("timestamp", "duration", "num_gpus", "cluster")
_SPOT = ("organization", "gpu_model", "gpu_request", "worker_num", "submit_time", "duration", "job_type")
_SWF_FIELDS = 18
_BOOLS = MappingProxyType({"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False})


@dataclass(frozen=True, slots=True)
class Shape:
    """What a format that counts processors or GPUs alone is cut into nodes by."""

    gpus_per_node: int = 8
    procs_per_node: int = 1


def load(path: Path, name: str | None, shape: Shape) -> Trace:
    """The trace in a file; without the name of a format it is told by the file's first line.

    Raises:
        NotFound, Rejected: in one line, naming file, line, what is wrong and what to do.
    """
    kind = name or detect(path)
    found = list(FORMATS[kind](path, shape))
    jobs = [job for job in found if job is not None]
    if not jobs:
        raise Rejected(f"{path} holds no job that ran", fix="give another file or another --format")
    return Trace.of(path.name, jobs, len(found) - len(jobs))


def detect(path: Path) -> str:
    """The name of the format that the first line of a file has."""
    with reading(path) as file:
        first = file.readline()
    columns = {cell.strip() for cell in first.split(",")}
    for name, needed in (("kalos", _KALOS), ("philly", _PHILLY), ("spot", _SPOT), ("gang-csv", _GANG_NEEDED)):
        if columns.issuperset(needed):
            return name
    if first.startswith(";") or len(first.split()) == _SWF_FIELDS:
        return "swf"
    raise Rejected("is the start of no format known here", field=f"{path} line 1",
                   fix=f"name it with --format {'|'.join(FORMATS)}")


def _gang_csv(path: Path, shape: Shape) -> Iterator[Job | None]:
    """Gangline's own: empty cells are unknown or default."""
    for row in csv_rows(path, _GANG_NEEDED, GANG_COLUMNS):
        yield Job(
            submit_ms=row.span_ms("submit_s"), duration_ms=row.span_ms("duration_s"),
            nodes=row.count("nodes") if row.text("nodes") else 1,
            gpus=row.count("gpus_per_node") if row.text("gpus_per_node") else None,
            gpu=row.text("gpu") or None, limit_ms=row.span_ms("limit_s") if row.text("limit_s") else None,
            tenant=row.text("tenant") or "default", rdma=_yes(row, "rdma"),
            priority=_priority(row))


def _priority(row: Row) -> int:
    """A priority as in a spec: a word or a number."""
    text = row.text("priority")
    if text in PRIORITIES or not text:
        return PRIORITIES.get(text, 0)
    try:
        return int(row.number("priority"))
    except Rejected:
        raise row.wrong(f"priority is {text!r}", f"write {', '.join(PRIORITIES)} or a number") from None


def _yes(row: Row, column: str) -> bool:
    text = row.text(column).lower()
    if text and text not in _BOOLS:
        raise row.wrong(f"{column} is {text!r}", "write true or false")
    return _BOOLS.get(text, False)


def _kalos(path: Path, shape: Shape) -> Iterator[Job | None]:
    """AcmeTrace's Kalos cluster as converted in hyunnnchoi/AcmeTrace: `gpu_workers` are nodes."""
    for row in csv_rows(path, _KALOS):
        nodes = row.count("gpu_workers")
        duration_s = row.number("num_iteration") * row.number("iteration_computing_time")
        if duration_s < 0:
            raise row.wrong("runs for less than no time", "correct or remove the row")
        yield Job(submit_ms=row.span_ms("arrival_time"), duration_ms=round(duration_s * 1000), nodes=nodes,
                  gpus=row.count("gpu_per_worker"))


def _philly(path: Path, shape: Shape) -> Iterator[Job | None]:
    """Microsoft's Philly as in siasosp23/artifacts: GPUs are cut into nodes, a cluster is a tenant."""
    for row in csv_rows(path, _PHILLY):
        gpus = row.count("num_gpus")
        nodes = math.ceil(gpus / shape.gpus_per_node)
        yield Job(submit_ms=_instant_ms(row, "timestamp"), duration_ms=row.span_ms("duration"), nodes=nodes,
                  gpus=gpus if nodes == 1 else shape.gpus_per_node, tenant=row.text("cluster") or "default")


def _spot(path: Path, shape: Shape) -> Iterator[Job | None]:
    """Alibaba's v2026-spot-gpu `job_info_df.csv`; spot jobs have the priority "low". Jobs without a GPU
    are passed over; a part of a GPU counts as one."""
    for row in csv_rows(path, _SPOT):
        gpus = math.ceil(row.number("gpu_request"))
        if gpus < 1:
            yield None
            continue
        yield Job(submit_ms=_instant_ms(row, "submit_time"), duration_ms=row.span_ms("duration"),
                  nodes=row.count("worker_num"), gpus=gpus, gpu=row.text("gpu_model") or None,
                  tenant=row.text("organization") or "default",
                  priority=SPOT_PRIORITY if row.text("job_type").lower() == "spot" else 0)


def _instant_ms(row: Row, column: str) -> int:
    """Seconds, or a date and time (of UTC: only differences matter)."""
    text = row.text(column)
    try:
        return round(float(text) * 1000)
    except (ValueError, OverflowError):
        pass
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise row.wrong(f"{column} is {text!r}, neither seconds nor a date and time",
                        "write 1200 or 2026-03-01 12:00:00") from None
    return round((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)


def _swf(path: Path, shape: Shape) -> Iterator[Job | None]:
    """The Standard Workload Format: fields 2 submit, 4 run, 5 processors (8 where 5 is not known), 9 the
    time its user asked for. Whole nodes are taken; jobs that did not run are passed over."""
    with reading(path) as file:
        for line, text in enumerate(file, 1):
            if text.startswith(";") or not text.strip():
                continue
            words = text.split()
            row = Row(path, line, {str(index): word for index, word in enumerate(words, 1)})
            if len(words) != _SWF_FIELDS:
                raise row.wrong(f"has {len(words)} fields, not {_SWF_FIELDS}", "give a file in SWF")
            procs, run_s, asked_s = row.number("5"), row.number("4"), row.number("9")
            procs = procs if procs > 0 else row.number("8")
            if run_s <= 0 or procs <= 0:
                yield None
                continue
            yield Job(submit_ms=row.span_ms("2"), duration_ms=row.span_ms("4"),
                      nodes=math.ceil(procs / shape.procs_per_node),
                      limit_ms=row.span_ms("9") if asked_s > 0 else None)


FORMATS: Mapping[str, Callable[[Path, Shape], Iterator[Job | None]]] = MappingProxyType({
    "kalos": _kalos, "philly": _philly, "swf": _swf, "gang-csv": _gang_csv, "spot": _spot})
