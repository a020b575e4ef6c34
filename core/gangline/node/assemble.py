"""Everything an attempt needs on this node before its ranks may start: code, program, versions, keeper."""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import socket
from dataclasses import dataclass
from pathlib import Path

from gangline.model.errors import GanglineError, Rejected, Unavailable
from gangline.model.orders import Order, Task
from gangline.node import environment, sweep
from gangline.node.environment import Place, Program
from gangline.node.fetch import fetch_code
from gangline.node.link import Link
from gangline.node.logs import LogPump
from gangline.node.outbox import Outbox
from gangline.node.rank_socket import RankSocket
from gangline.node.warm import KeeperLink, Starter


@dataclass(frozen=True, slots=True)
class Node:
    """What the trees of a supervisor share."""

    name: str
    home: Path
    local: bool  # its address is loopback: only nodes of one host meet there
    link: Link
    outbox: Outbox
    logs: LogPump
    ranks: RankSocket
    starter: Starter
    devices: tuple[str, ...] | None = None  # GPUs that an engine gave, in the order of those that are leased


@dataclass(frozen=True, slots=True, kw_only=True)
class Assembled:
    """A node that can start its ranks at once."""

    place: Place
    program: Program
    env: dict[str, str]  # of every rank, before what tells them apart
    group: Path | None
    keeper: KeeperLink
    warm: bool


class DamagedVersion(Exception):
    """The version to resume from is not what was committed."""

    def __init__(self, volume: str, version: int, problems: list[str]) -> None:
        super().__init__("; ".join(problems[:5]))
        self.volume, self.version = volume, version


async def assemble(node: Node, order: Order, task: Task, tree: sweep.Tree) -> Assembled:
    """Make all ready but start no rank.

    Raises `DamagedVersion`; `Rejected` for what no repetition mends; `Unavailable`, `OSError` or another
    `GanglineError` for what another node or a later time may.
    """
    environment.check_devices(task, node.devices)
    place = await _make_place(node, order, task, tree)
    interpreter = environment.find_interpreter(task, os.environ.get("PATH", os.defpath))
    env = environment.base_env(os.environ, interpreter, task.env, local=node.local)
    program = environment.find_program(task, interpreter, place, env["PATH"])
    if task.node_rank == 0:
        _check_port(task.master_port)
        await _verify_versions(task)
    environment.write_info(order, task, place, node.name)
    await asyncio.to_thread(sweep.mark, tree)
    group = sweep.make_group(tree)
    facts = await node.starter.facts() if program.spec is not None else None
    warm = facts is not None and environment.may_fork(program, task.env, place, facts)
    keeper = await node.starter.keeper(tree, group, place.run_dir / "keeper.log", warm=warm)
    return Assembled(place=place, program=program, env=env, group=group, keeper=keeper, warm=warm)


def run_dir(node: Node, order: Order) -> Path:
    """The folder of an attempt's own files; it lives as long as the attempt is on the node."""
    name = f"{order.gang}.{order.attempt}.{order.generation}"
    return sweep.node_dir(node.home, node.name) / "run" / name


def cause_of(exc: Exception) -> str:
    """One line for a refusal."""
    if isinstance(exc, Rejected | Unavailable) or not isinstance(exc, GanglineError):
        return str(exc)
    return f"the server refused what this node needs: {exc}"


async def _make_place(node: Node, order: Order, task: Task, tree: sweep.Tree) -> Place:
    folder = run_dir(node, order)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True, mode=0o700)
    root = None
    if task.snapshot is not None:
        root = await fetch_code(node.link, node.home, task.snapshot)
    cwd = root or folder / "work"
    cwd.mkdir(exist_ok=True)
    return Place(run_dir=folder, cwd=cwd, root=root, socket=node.ranks.path, tree=tree.name,
                 token=secrets.token_urlsafe(18))


def _check_port(port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("0.0.0.0", port))  # noqa: S104 - where torch's store will listen
        except OSError as exc:
            raise Unavailable(f"EADDRINUSE: MASTER_PORT {port} is taken on this node: {exc}") from None


async def _verify_versions(task: Task) -> None:
    resumed = [mount for mount in task.mounts if mount.resume is not None and mount.resume_dir is not None]
    if not resumed:
        return
    from gangline.volumes.verify import verify

    for mount in resumed:
        assert mount.resume is not None
        assert mount.resume_dir is not None
        # In a thread: hashing a large version takes minutes, and the lease must be kept meanwhile.
        problems = await asyncio.to_thread(verify, Path(mount.root), mount.resume_dir,
                                           mount.manifest_sha256 or "")
        if problems:
            raise DamagedVersion(mount.volume, mount.resume, problems)
