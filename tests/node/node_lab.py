"""A home, a scripted server and real supervisors; leaving a process behind is a failure."""

from __future__ import annotations

import hashlib
import io
import json
import os
import signal
import socket
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scripted import Script, until

from gangline.model.gang import NodeShare
from gangline.model.orders import Order, OrderPhase, RankOrder, Task
from gangline.node import proc, sweep, template

CORE = str(Path(template.__file__).parents[2])


@dataclass
class Supervisor:
    """One started `python -m gangline.node`."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def terminate(self) -> int:
        self.process.terminate()
        return self.process.wait(30)

    def keepers(self, home: Path, gang: str = "g-1") -> list[int]:
        """Pids of the keepers of a gang's trees: they hold a marker and are named so."""
        markers = {str(path) for path in sweep._tree_dir(home, self.name).glob(f"{gang}.*.tree")}
        return [one.pid for one in proc.living()
                if one.name == "gangline-keeper" and sweep._holds(one.pid, markers)]


@dataclass
class Lab:
    """A home, a server, and the supervisors started in it."""

    home: Path
    script: Script
    template: Path | None
    env: dict[str, str] = field(default_factory=dict)
    started: list[Supervisor] = field(default_factory=list)
    port: int = 0

    @property
    def warm(self) -> bool:
        return self.template is not None

    def supervisor(self, name: str = "n1") -> Supervisor:
        log = self.home / f"{name}.log"
        command = [sys.executable, "-m", "gangline.node", "--server", self.script.url, "--node", name,
                   "--home", str(self.home), "--address", f"127.0.1.{len(self.started) + 1}",
                   "--warm-template", str(self.template or "")]
        clean = {name: value for name, value in os.environ.items()
                 if not name.startswith("GANGLINE_") and name != "PYTHONDONTWRITEBYTECODE"}
        clean |= {"PYTHONPATH": CORE, "GANGLINE_PRELOAD": ""}
        with log.open("ab") as output:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                                       env={**clean, **self.env})
        one = Supervisor(name, process, log)
        self.started.append(one)
        return one

    def snapshot(self, **files: str) -> str:
        """Upload modules by name (`work="..."`); the snapshot's digest."""
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as tar:
            for name, text in files.items():
                info = tarfile.TarInfo(f"{name}.py")
                info.size = len(text.encode())
                tar.addfile(info, io.BytesIO(text.encode()))
        return self.blob(buffer.getvalue())

    def blob(self, data: bytes) -> str:
        digest = hashlib.sha256(data).hexdigest()
        self.script.blobs[digest] = data
        return digest

    def task(self, nodes: tuple[str, ...] = ("n1",), node: str = "n1", ranks: int = 1, **fields: Any) -> Task:
        """A node's part of a gang with `ranks` ranks on each of its nodes."""
        node_rank = nodes.index(node)
        first = node_rank * ranks
        shares = tuple(NodeShare(node=name, address=f"127.0.1.{n + 1}", gpus=tuple(range(ranks)),
                                 gpu_type="H100") for n, name in enumerate(nodes))
        return Task(**{
            "name": "job", "slot": "slot", "tenant": "default", "node_rank": node_rank,
            "ranks": tuple(RankOrder(rank=first + n, local_rank=n, gpus=(n,)) for n in range(ranks)),
            "world_size": ranks * len(nodes), "nodes": shares, "master_addr": shares[0].address,
            "master_port": self.port, "emulated": True, **fields})

    def begin(self, gang: str, task: Task, node: str = "n1", generation: int = 1) -> None:
        """Order one node through assembly to started ranks."""
        self.order(gang, OrderPhase.ASSEMBLE, task, node, generation=generation)
        self.script.wait_report("ready", gang, generation=generation)
        self.order(gang, OrderPhase.START, task, node, generation=generation)

    def order(self, gang: str, phase: OrderPhase, task: Task | None, node: str = "n1", grace_s: float = 0.0,
              generation: int = 1) -> None:
        others = tuple(order for order in self.script.orders.get(node, ()) if order.gang != gang)
        self.script.order(node, *others, Order(gang=gang, attempt=1, generation=generation, phase=phase,
                                               grace_s=grace_s, task=task))

    def stop(self, gang: str, node: str = "n1", grace_s: float = 0.0) -> None:
        self.order(gang, OrderPhase.STOP, None, node, grace_s=grace_s)
        self.script.wait_report("empty", gang)


def written_pid(path: Path) -> int:
    """A pid that user code writes to a file."""
    return int(until(lambda: path.exists() and path.read_text().strip(), f"{path.name} to be written"))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def is_gone(pid: int) -> bool:
    found = proc.look(pid)
    return found is None or found.dead


def of_home(home: Path) -> list[proc.Proc]:
    """Living processes that carry a mark of one of the home's trees, or were started with its path."""
    prefix = f"GANGLINE_TREE={sweep.home_hash(home)}/".encode()
    found = []
    for one in proc.living():
        try:
            base = Path(f"/proc/{one.pid}")
            marked = prefix in (base / "environ").read_bytes()
            held = any(os.readlink(link).startswith(str(home.resolve() / "nodes"))
                       for link in (base / "fd").iterdir())
            if marked or held or os.fsencode(home) in (base / "cmdline").read_bytes():
                found.append(one)
        except OSError:
            continue
    return [one for one in found if one.pid != os.getpid()]


def end_template(path: Path) -> None:
    pid = template_pid(path)
    if pid is not None:
        os.kill(pid, signal.SIGKILL)
        until(lambda: is_gone(pid), "the template to end")


def template_pid(path: Path) -> int | None:
    with socket.socket(socket.AF_UNIX) as client:
        try:
            client.connect(str(path))
        except OSError:
            return None
        client.sendall(b'{"op": "hello"}')
        with client.makefile() as lines:
            return int(json.loads(lines.readline())["pid"])


def open_lab(tmp_path: Path, template_path: Path, kind: str) -> Iterator[Lab]:
    home = tmp_path / "h"
    home.mkdir(mode=0o700)
    script = Script(tmp_path / "s.sock")
    script.start()
    lab = Lab(home, script, template_path if "warm" in kind else None, port=free_port(),
              env={"GANGLINE_CGROUP": "off"} if "no group" in kind else {})
    try:
        yield lab
    finally:
        for one in lab.started:
            if one.process.poll() is None:
                one.process.terminate()
        for one in lab.started:
            try:
                one.process.wait(20)
            except subprocess.TimeoutExpired:
                one.kill()
        if script.running:
            script.stop()
        deadline = time.monotonic() + 5  # a keeper that has seen its last rank go is just leaving
        while (left := [one for one in of_home(home) if not is_gone(one.pid)]) and time.monotonic() < deadline:
            time.sleep(0.02)
        for one in left:
            proc.send(one, signal.SIGKILL)
    assert not left, f"left behind: {left}; {[one.log.read_text()[-3000:] for one in lab.started]}"
