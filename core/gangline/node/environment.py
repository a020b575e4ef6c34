"""What a rank finds around it: environment variables, its info file, and the program to run."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gangline.model.errors import Rejected, Unavailable
from gangline.model.orders import Order, RankOrder, Task
from gangline.node import boot

_PYTHONS = frozenset({"python", "python3"})
# Read when a program starts or a library is loaded: too late for a fork that has them loaded already.
_EARLY = ("LD_", "PYTHON", "TORCH", "PYTORCH", "OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_", "BLIS_",
          "NUMEXPR_", "MALLOC_", "GLIBC_", "LC_", "LANG", "ATEN_", "KINETO_", "CUDA_MODULE_LOADING")
# What starts a supervisor tells it in these; a rank that read them would take itself for a launcher's.
_OTHERS = ("GANGLINE_", "SLURM_", "SLURMD_", "SRUN_", "SBATCH_", "PMI_", "PMIX_", "RAY_", "KUBERNETES_")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where an attempt lives on this node."""

    run_dir: Path
    cwd: Path
    root: Path | None  # the unpacked snapshot
    socket: Path  # of the supervisor
    tree: str  # the mark of its processes
    token: str  # by which its ranks are known to the supervisor

    def log(self, rank: int) -> Path:
        return self.run_dir / f"rank-{rank}.log"

    def result(self, rank: int) -> Path:
        return self.run_dir / f"rank-{rank}.result.json"

    def stopped(self, rank: int) -> Path:
        """There once the rank has seen that it was asked to stop; `gangline.stop_requested` puts it there."""
        return self.run_dir / f"rank-{rank}.stopped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What every rank of a node runs: a SPEC of `gangline.node.boot`, or an argv."""

    interpreter: str
    argv: tuple[str, ...] | None
    spec: dict[str, Any] | None


def ranks_by_node(task: Task) -> list[list[int]]:
    """The ranks of every node in node-rank order."""
    if task.ranks_by_node:
        return [list(ranks) for ranks in task.ranks_by_node]
    per_node = task.world_size // len(task.nodes)
    return [list(range(start, start + per_node)) for start in range(0, per_node * len(task.nodes), per_node)]


def write_info(order: Order, task: Task, place: Place, node: str) -> Path:
    """The file GANGLINE_INFO names, readable by its owner alone."""
    path = place.run_dir / "info.json"
    info = {
        "token": place.token, "gang": order.gang, "name": task.name, "slot": task.slot,
        "attempt": order.attempt, "generation": order.generation, "tenant": task.tenant, "role": task.role,
        "node": node, "node_rank": task.node_rank, "size": len(task.nodes), "world_size": task.world_size,
        "least": task.least or len(task.nodes), "most": task.most or len(task.nodes),
        "nodes": [share.full() for share in task.nodes], "zone": task.zone, "fabric": task.fabric,
        "emulated": task.emulated, "rdma": task.rdma.full(), "mounts": [m.full() for m in task.mounts],
        "ranks_by_node": ranks_by_node(task),
    }
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        json.dump(info, file)
    return path


def find_interpreter(task: Task, path: str) -> str:
    """The Python that ranks run with; `Rejected` when this node does not have it."""
    found = shutil.which(task.interpreter or sys.executable, path=path)
    if found is None:
        raise Rejected(f"this node has no interpreter {task.interpreter or sys.executable}",
                       fix="name one that every node has, or leave `interpreter` out")
    return os.path.abspath(found)


def find_program(task: Task, interpreter: str, place: Place, path: str) -> Program:
    """What to run; `Rejected` naming a program that this node does not have."""
    cwd = place.cwd
    if task.function is not None:
        return Program(interpreter=interpreter, argv=None, spec={
            "kind": "function", "target": task.function, "args": task.args, "argv": [],
            "root": str(place.root) if place.root else None})
    command = task.command or ()
    if not command:
        raise Rejected("the order names neither a function nor a command")
    if command[0] in _PYTHONS:
        command = (interpreter, *command[1:])
    if "/" not in command[0]:
        found = shutil.which(command[0], path=path)
    else:
        found = shutil.which(str(cwd / command[0]))
    if found is None:
        raise Rejected(f"this node has no program {command[0]!r}",
                       fix="give a path inside the workdir, or install it on every node")
    spec = _python_spec(command[1:], cwd) if _same_interpreter(found, interpreter) else None
    return Program(interpreter=interpreter, argv=command, spec=spec)


def _same_interpreter(one: str, other: str) -> bool:
    # By folder too: an environment's python is a link to one that other environments link to as well.
    return (os.path.realpath(one) == os.path.realpath(other)
            and os.path.dirname(os.path.abspath(one)) == os.path.dirname(os.path.abspath(other)))


def _python_spec(arguments: tuple[str, ...], cwd: Path) -> dict[str, Any] | None:
    """The boot SPEC that does what `python ARGUMENTS` does; None for options only an interpreter can obey."""
    rest = list(arguments)
    while rest and rest[0] == "-u":
        rest.pop(0)  # ranks are unbuffered anyway
    if len(rest) >= 2 and rest[0] == "-m":
        return {"kind": "module", "target": rest[1], "argv": rest[2:]}
    if rest and not rest[0].startswith("-") and (cwd / rest[0]).is_file():
        return {"kind": "script", "target": rest[0], "argv": rest[1:]}
    return None


def may_fork(program: Program, env: Mapping[str, str], place: Place, template: Mapping[str, Any]) -> bool:
    """Whether a fork of the template behaves as a fresh interpreter would."""
    if program.spec is None or not _same_interpreter(program.interpreter, template["interpreter"]):
        return False
    if any(name.startswith(_EARLY) and (name, value) != ("OMP_NUM_THREADS", "1")
           for name, value in env.items()):
        return False
    # Where imports look first: what is there must win over what the template has imported.
    first = place.root or place.cwd
    if program.spec["kind"] == "script":
        first = (place.cwd / program.spec["target"]).resolve().parent
    return not any((first / f"{name}.py").exists() or (first / name / "__init__.py").exists()
                   for name in template["modules"])


def base_env(inherited: Mapping[str, str], interpreter: str, user: Mapping[str, str], *,
             local: bool) -> dict[str, str]:
    """What the node gives every rank, the task's own settings on top."""
    env = {name: value for name, value in inherited.items() if not name.startswith(_OTHERS)}
    env["PATH"] = os.path.dirname(interpreter) + os.pathsep + env.get("PATH", os.defpath)
    env |= {"PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1"}
    if local:
        env["GLOO_SOCKET_IFNAME"] = "lo"
    return env | dict(user)


def check_devices(task: Task, devices: Sequence[str] | None) -> None:
    """`Unavailable` when an engine gave this node fewer GPUs than are leased on it."""
    leased = sum(len(rank.gpus) for rank in task.ranks) and len(task.nodes[task.node_rank].gpus)
    if devices is not None and not task.emulated and len(devices) < leased:
        raise Unavailable(f"the engine gave this node {len(devices)} GPUs where {leased} are leased")


def visible(task: Task, rank: RankOrder, devices: Sequence[str] | None) -> str:
    """The GPUs a rank sees: none of others', and none where they are emulated.

    Where an engine gave `devices`, the GPUs leased on the node are those, in their order.
    """
    if task.emulated:
        return ""
    if devices is None:
        return ",".join(map(str, rank.gpus))
    leased = sorted(task.nodes[task.node_rank].gpus)
    return ",".join(devices[leased.index(gpu)] for gpu in rank.gpus)


def rank_env(order: Order, task: Task, rank: RankOrder, place: Place, base: Mapping[str, str], *,
             devices: Sequence[str] | None = None) -> dict[str, str]:
    """The whole environment of one rank: names as torchrun gives them, and Gangline's own."""
    by_node = ranks_by_node(task)
    of_role = [number for share, ranks in zip(task.nodes, by_node, strict=True) if share.role == task.role
               for number in ranks]
    own = {
        "RANK": rank.rank, "LOCAL_RANK": rank.local_rank, "WORLD_SIZE": task.world_size,
        "LOCAL_WORLD_SIZE": len(task.ranks), "GROUP_RANK": task.node_rank, "NODE_RANK": task.node_rank,
        "GROUP_WORLD_SIZE": len(task.nodes), "ROLE_RANK": of_role.index(rank.rank),
        "ROLE_WORLD_SIZE": len(of_role), "ROLE_NAME": task.role or "default",
        "MASTER_ADDR": task.master_addr, "MASTER_PORT": task.master_port,
        "TORCHELASTIC_RUN_ID": order.gang, "TORCHELASTIC_RESTART_COUNT": order.attempt - 1,
        "GANGLINE_GANG": order.gang, "GANGLINE_ATTEMPT": order.attempt,
        "GANGLINE_INFO": place.run_dir / "info.json", "GANGLINE_SUPERVISOR": place.socket,
        "GANGLINE_TREE": place.tree,
        "CUDA_VISIBLE_DEVICES": visible(task, rank, devices),
    }
    return {**base, **{name: str(value) for name, value in own.items()}}


def launch_order(program: Program, rank: int, env: dict[str, str], place: Place, *,
                 warm: bool) -> dict[str, Any]:
    """The RANK of `gangline.node.keeper` that starts one rank."""
    common = {"rank": rank, "env": env, "cwd": str(place.cwd), "log": str(place.log(rank))}
    if program.spec is not None and warm:
        return {**common, "boot": {**program.spec, "result": str(place.result(rank))}}
    if program.argv is not None:
        return {**common, "argv": list(program.argv)}
    spec_path = place.run_dir / f"rank-{rank}.boot.json"
    with open(os.open(spec_path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        json.dump({**(program.spec or {}), "result": str(place.result(rank))}, file)
    return {**common, "argv": [program.interpreter, boot.__file__, str(spec_path)], "announces": True}
