"""From submit to the first line of user code on all ranks, against torchrun agents."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from lab import RANKS, Fleet, Lab, read_marks
from table import Row

ABOUT = "submit to first user line on 4 nodes x 2 ranks, against 4 torchrun agents"
NODES, RANKS_PER_NODE = 4, 2
WORLD = NODES * RANKS_PER_NODE
AGAINST = f"{NODES} torchrun agents, static rendezvous"


def run(lab: Lab) -> list[Row]:
    fleet = lab.fleet

    def command(folder: Path, env: dict[str, str]) -> None:
        fleet.run(_spec(folder) | {"env": env})

    def function(folder: Path) -> None:
        fleet.run("rank_work:first_line", {"folder": str(folder)})

    # Where hashes are fixed the template's interpreter will not do: the rank starts one of its own.
    ways: dict[str, Callable[[Path], None]] = {
        "warm command": lambda folder: command(folder, {}),
        "torchrun": torchrun,
        "warm function": function,
        "cold command": lambda folder: command(folder, {"PYTHONHASHSEED": "0"}),
    }
    taken: dict[str, list[float]] = {name: [] for name in ways}
    _first_line_s(lab, ways["warm command"])  # not counted: the first of its kind finds nothing cached
    for turn in range(lab.rounds):
        for name, way in ways.items():
            began_ms = time.time_ns() // 1_000_000
            taken[name].append(_first_line_s(lab, way))
            if name == "warm command":
                lab.say(f"startup: {name}: {_time_line(fleet, began_ms)}")
        lab.say(f"startup: round {turn + 1} of {lab.rounds}: "
                + ", ".join(f"{name} {values[-1]:.2f} s" for name, values in taken.items()))
    rows = []
    for name, most, most_ratio in (("warm command", 0.5, 0.1), ("warm function", 0.5, 0.1),
                                   ("cold command", None, 1.2)):
        rows.append(Row(what=f"submit to first user line, {name}", ours=tuple(taken[name]), against=AGAINST,
                        other=tuple(taken["torchrun"]), most=most, most_ratio=most_ratio))
    return rows


def _first_line_s(lab: Lab, way: Callable[[Path], None]) -> float:
    folder = lab.marks()
    began_ns = time.time_ns()
    way(folder)
    return (max(read_marks(folder, WORLD).values()) - began_ns) / 1e9


def _time_line(fleet: Fleet, began_ms: int) -> str:
    """When the newest gang's last event of each kind was, from the start of its submission."""
    events = fleet.client.events(fleet.client.list(limit=1)[0].gang).events
    last_ms = {event.kind: event.at_ms - began_ms for event in events}
    return ", ".join(f"{kind} {at_ms} ms" for kind, at_ms in last_ms.items())


def _spec(folder: Path) -> dict[str, Any]:
    return {"name": "first-line", "command": ["python", "first_line.py", str(folder)], "workdir": str(RANKS)}


def torchrun(folder: Path) -> None:
    """The same ranks by one agent per node; returns when each has begun, and ends the agents."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    log = folder / "agents.log"
    agents: list[subprocess.Popen[bytes]] = []
    try:
        with log.open("ab") as output:
            agents += (_agent(node, port, folder, output) for node in range(NODES))
        read_marks(folder, WORLD)
    except TimeoutError as exc:
        raise TimeoutError(f"torchrun: {exc}: {log.read_text()[-500:]}") from None
    finally:
        for agent in agents:  # their ranks have ended; tearing down an agent would take seconds more
            os.killpg(agent.pid, signal.SIGKILL)
            agent.wait()


def _agent(node: int, port: int, folder: Path, output: IO[bytes]) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "torch.distributed.run", "--nnodes", str(NODES), "--node-rank", str(node),
               "--nproc-per-node", str(RANKS_PER_NODE), "--master-addr", "127.0.0.1",
               "--master-port", str(port), "--max-restarts", "0", "first_line.py", str(folder)]
    return subprocess.Popen(command, cwd=RANKS, stdout=output, stderr=output, stdin=subprocess.DEVNULL,
                            start_new_session=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
