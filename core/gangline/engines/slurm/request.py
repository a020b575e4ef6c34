"""What Slurm is asked for a job: the options of sbatch, a script that is always the same, and its arguments."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass

from gangline.engines.base import Job
from gangline.model.errors import Rejected
from gangline.model.fleet import Pool
from gangline.model.gpu import CPU

# Whatever differs from job to job comes as an argument, and goes on as one.
SCRIPT = """\
#!/bin/sh
# One supervisor on each node of the job; its program and arguments are this script's.
exec srun --kill-on-bad-exit=1 --wait=0 --ntasks-per-node=1 --cpu-bind=none --mpi=none --export=ALL \\
  --label --unbuffered sh -c 'exec "$@" --node "$SLURMD_NODENAME"' supervisor "$@"
"""
MOST_COMMENT = 200
NODE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """The options of sbatch, the arguments of the script, and the file for what the job prints."""

    options: tuple[str, ...]
    argv: tuple[str, ...]
    log: str

    @property
    def text(self) -> str:
        """For people: what could be typed, and the script."""
        return f"{shlex.join(['sbatch', *self.options, 'supervise.sh', *self.argv])}\n\n{SCRIPT}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """What goes with a part of a node's GPUs: processors and memory in the same proportion."""

    cpus: int
    memory_mb: int


def submission(job: Job, pool: Pool, argv: list[str], log: str, exported: list[str], share: Share | None) -> Submission:
    """The submission of a job; pure.

    `share` is for a job that takes a part of a node, None when that is not known of it.

    Raises:
        Rejected: a node's name, or the log's, could be read as more than a name.
    """
    settings = pool.slurm
    assert settings is not None
    for part in job.nodes:
        if not NODE_NAME.fullmatch(part.node):
            raise Rejected(f"{part.node[:60]!r} is no name of a Slurm node", field="nodes")
    if re.search(r"[%\\]", log):
        raise Rejected(f"{log!r} holds a character that Slurm replaces in names of files", field="log_dir",
                       fix="choose a folder without % and \\ in its name")
    count = len(job.nodes)
    options = [
        f"--job-name={job.name}", f"--comment={printable(job.slot, MOST_COMMENT) or '-'}",
        f"--partition={settings.partition}", f"--nodes={count}", f"--ntasks={count}", "--ntasks-per-node=1",
        f"--nodelist={','.join(part.node for part in job.nodes)}", *_hardware(job, pool, share),
        # One at a time of that name, whoever submits: two servers at once do not start a gang twice.
        "--dependency=singleton",
        "--no-requeue", "--open-mode=append", f"--output={log}", "--input=/dev/null", "--chdir=/",
        "--propagate=NONE", f"--export={','.join(exported)}", "--parsable",
    ]
    for name, value in (("account", settings.account), ("qos", settings.qos), ("reservation", settings.reservation),
                        ("constraint", settings.constraint)):
        options += [] if value is None else [f"--{name}={value}"]
    if job.limit_s is not None:
        options.append(f"--time={max(1, -(-int(job.limit_s) // 60))}")  # minutes
    return Submission(options=tuple(options), argv=tuple(argv), log=log)


def _hardware(job: Job, pool: Pool, share: Share | None) -> list[str]:
    part = job.nodes[0]
    cpu_only = pool.ask.type == CPU
    asked = [] if cpu_only or part.gpus == 0 else [f"--gres=gpu:{part.gpus}"]
    if part.whole:
        return [*asked, "--exclusive", "--mem=0"]
    if share is not None:
        return [*asked, f"--cpus-per-task={share.cpus}", f"--mem={share.memory_mb}M"]
    return [*asked, f"--cpus-per-task={part.gpus}"] if cpu_only else asked


def printable(text: str, most: int) -> str:
    """The text on one line of plain ASCII, at most so long; what does not fit in becomes "?"."""
    line = re.sub(r"[^ -~]", "?", " ".join(text.split()))
    return line if len(line) <= most else line[:most - 3] + "..."
