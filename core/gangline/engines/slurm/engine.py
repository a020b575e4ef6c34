"""The Slurm engine: what the loop asks, put to one cluster's programs."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gangline.engines.base import TAG, Job, JobNode, JobStatus, Request, SeenJob, Sight, parse_job_name
from gangline.engines.slurm.cluster import Cluster
from gangline.engines.slurm.programs import Programs, handed_on
from gangline.engines.slurm.request import SCRIPT, Share, Submission, submission
from gangline.engines.slurm.sight import loads, seen_jobs, seen_nodes
from gangline.engines.slurm.states import job_status
from gangline.engines.slurm.stopping import Stopping
from gangline.engines.slurm.table import JobRow, NodeRow
from gangline.engines.slurm.upkeep import Upkeep
from gangline.engines.supervision import TOKEN_ENV, Supervision
from gangline.model.engine import Slurm
from gangline.model.errors import Rejected
from gangline.model.fleet import Pool
from gangline.model.gpu import CPU
from gangline.model.node import NodeView

LOG_BYTES = 64 * 1024


@dataclass(slots=True)
class SlurmEngine:
    """All pools of one cluster. `home` is the server's; `fleet` tells servers apart that share the cluster."""

    pools: tuple[Pool, ...]
    supervision: Supervision
    home: Path
    fleet: str
    name: str = "slurm"
    _cluster: Cluster = field(init=False)
    _stopping: Stopping = field(init=False)
    _upkeep: Upkeep = field(init=False)
    _launching: threading.Lock = field(init=False, default_factory=threading.Lock)
    _rows: dict[str, NodeRow] = field(init=False, default_factory=dict)  # as last seen

    def __post_init__(self) -> None:
        programs = Programs(_settings(self.pools[0]))
        self._cluster = Cluster(programs)
        self._stopping = Stopping(programs)
        self._upkeep = Upkeep(self._cluster, f"{TAG} {self.fleet}")

    def observe(self) -> Sight:
        # Jobs before nodes: one that starts in between makes a node look fuller than its jobs, never emptier.
        jobs = self._cluster.jobs()
        nodes = self._cluster.nodes()
        self._rows = {row.name: row for row in nodes}
        ours = [row for row in jobs if self._is_ours(row)]
        return Sight(nodes=seen_nodes(self.pools, nodes, loads(jobs, ours), self._cluster.places()),
                     jobs=tuple(seen_jobs(ours).values()))

    def prepare(self, job: Job) -> Request:
        pool = self._pool(job.pool)
        log = str(self._log_dir(pool) / f"{job.name}.log")
        exported = handed_on([*self._cluster.programs.environment(), TOKEN_ENV])
        body = submission(job, pool, self.supervision.argv(pool, job), log, exported, self._share(pool, job.nodes[0]))
        return Request(job=job, text=body.text, body=body)

    def launch(self, request: Request, token: str) -> str:
        body, name = request.body, request.job.name
        assert isinstance(body, Submission)
        with self._launching:
            known = self.poll_many([name]).get(name)
            if known is not None:
                return known.id
            script = self._script()
            Path(body.log).parent.mkdir(parents=True, exist_ok=True)
            said = self._cluster.programs.run("sbatch", *body.options, str(script), *body.argv,
                                              extra={TOKEN_ENV: token})
        return self._first(name, said.strip().split(";")[0])

    def _first(self, name: str, id: str) -> str:
        """The job of that name that came first; ours goes again if another server was faster."""
        first = self.poll_many([name]).get(name)
        if first is None or first.id == id:
            return id
        self._cluster.programs.run("scancel", "--state=PENDING", id)
        return first.id

    def poll_many(self, names: Collection[str]) -> Mapping[str, SeenJob]:
        if not names:
            return {}
        return seen_jobs(self._named(names))

    def stop(self, name: str, grace_s: float) -> None:
        active = [row for row in self._named([name]) if job_status(row.state) is not JobStatus.ENDED]
        self._stopping.stop([str(row.id) for row in active], grace_s)

    def logs(self, name: str) -> str:
        if parse_job_name(name) is None:
            return ""
        for folder in dict.fromkeys(self._log_dir(pool) for pool in self.pools):
            try:
                with open(folder / f"{name}.log", "rb") as file:
                    file.seek(max(0, os.fstat(file.fileno()).st_size - LOG_BYTES))
                    return file.read(LOG_BYTES).decode(errors="ignore")
            except OSError:
                continue
        return ""

    def provision(self, nodes: Collection[NodeView]) -> None:
        self._upkeep.wake(node.node for node in nodes)

    def release(self, nodes: Collection[NodeView]) -> None:
        self._upkeep.sleep(node.node for node in nodes)

    def drain(self, node: str, reason: str) -> None:
        self._upkeep.drain(node, reason)

    def resume(self, node: str) -> None:
        self._upkeep.resume(node)

    def reboot(self, node: str) -> None:
        self._upkeep.reboot(node)

    def on_change(self, callback: Callable[[], None]) -> None:
        """Slurm does not say by itself when something changes."""

    def close(self) -> None:
        """Nothing is held open."""

    def _named(self, names: Collection[str]) -> list[JobRow]:
        ours = {name for name in names if self._is_our_name(name)}
        return [row for row in self._cluster.own_jobs(ours) if self._is_ours(row)] if ours else []

    def _is_ours(self, row: JobRow) -> bool:
        return row.user_id == os.getuid() and self._is_our_name(row.name)

    def _is_our_name(self, name: str) -> bool:
        parsed = parse_job_name(name)
        return parsed is not None and parsed[0] == self.fleet

    def _pool(self, name: str) -> Pool:
        found = next((pool for pool in self.pools if pool.name == name), None)
        if found is None:
            raise Rejected(f"pool {name} is not one of this cluster", field="pool")
        return found

    def _share(self, pool: Pool, part: JobNode) -> Share | None:
        """Processors and memory that go with a part of a node, as the node was last seen."""
        row = self._rows.get(part.node)
        of = None if row is None else row.cpus if pool.ask.type == CPU else row.gpus.count
        if part.whole or row is None or not of:
            return None
        return Share(cpus=max(1, row.cpus * part.gpus // of), memory_mb=max(1, row.memory_mb * part.gpus // of))

    def _script(self) -> Path:
        """The script that every job is started by, written where it is missing or of an older version."""
        path = self.home / "slurm" / "supervise.sh"
        if not path.exists() or path.read_text() != SCRIPT:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            part = path.with_name(f".supervise.{os.getpid()}.part")
            part.write_text(SCRIPT)
            part.replace(path)
        return path

    def _log_dir(self, pool: Pool) -> Path:
        folder = _settings(pool).log_dir
        return self.home / "slurm" / "logs" if folder is None else Path(folder)


def _settings(pool: Pool) -> Slurm:
    assert pool.slurm is not None
    return pool.slurm
