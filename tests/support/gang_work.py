"""What the gangs of these tests run: plain Python, no torch, checkpoints of JSON."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import gangline


def train(marks: str, steps: int = 60, save_every: int = 10, step_s: float = 0.05,
          child: bool = False) -> dict[str, Any]:
    """Count to `steps`, committing every `save_every`; leaves this rank's pids in the folder `marks`."""
    if steps < 0:
        raise ValueError(f"cannot count to {steps}")
    info = gangline.cluster_info()
    mark(marks, info.attempt, info.rank, os.getpid())
    if child:
        mark(marks, info.attempt, 1000 + info.rank, orphan())
    state: dict[str, Any] = {"step": 0, "history": []}
    resumed_at = gangline.load_checkpoint(state) or 0
    while state["step"] < steps:
        time.sleep(step_s)
        state["step"] += 1
        state["history"] = [*state["history"], state["step"]]
        gangline.report_progress(state["step"], steps, loss=1.0 / state["step"])
        if state["step"] % save_every == 0:
            gangline.save_checkpoint(state, step=state["step"])
    return {"step": state["step"], "resumed_at": resumed_at, "whole": state["history"] == list(range(1, steps + 1))}


def hold(marks: str) -> str:
    """Run until the file `go` appears in `marks`."""
    info = gangline.cluster_info()
    mark(marks, info.attempt, info.rank, os.getpid())
    while not (Path(marks) / "go").exists():
        time.sleep(0.02)
    return "went"


def polite(marks: str, steps: int = 0, step_s: float = 0.02, gate: bool = False) -> dict[str, Any]:
    """Step until `steps` or, with none, until the file `end`; asked to stop, save and leave.

    The state is the same on every rank, so rank 0's file is enough to go on with any number of them. With
    `gate` nothing is saved before the file `save` is there.
    """
    info, folder = gangline.cluster_info(), Path(marks)
    mark(marks, info.attempt, info.rank, os.getpid())
    state: dict[str, Any] = {"curve": []}
    if (saved := gangline.resume_path()) is not None:
        file = saved / "rank-0" / "state.json"
        state = json.loads((file if file.exists() else saved / "state.json").read_text())
    resumed_at = len(state["curve"])
    while len(state["curve"]) < steps if steps else not (folder / "end").exists():
        if gangline.stop_requested():
            (folder / f"asked-{info.attempt}.{info.rank}").touch()
            while gate and not (folder / "save").exists():
                time.sleep(0.01)
            with gangline.new_version() as path:
                (path / "state.json").write_text(json.dumps(state))
            if info.rank == 0:
                (folder / f"saved-{info.attempt}").write_text(str(len(state["curve"])))
            return {"stopped": True}
        time.sleep(step_s)
        state["curve"].append(0.5 * state["curve"][-1] + 0.1 if state["curve"] else 1.0)
        gangline.report_progress(len(state["curve"]), steps or None, loss=state["curve"][-1])
    return {"resumed_at": resumed_at, "curve": state["curve"], "size": info.size, "most": info.most}


def curve(steps: int) -> list[float]:
    """What `polite` computes when nothing interrupts it."""
    losses = [1.0]
    while len(losses) < steps:
        losses.append(0.5 * losses[-1] + 0.1)
    return losses


def give(marks: str, kind: str) -> Any:
    """A result of a kind that JSON has no place for."""
    deep: list[Any] = []
    for _ in range(300):
        deep = [deep]
    return {"deep": deep, "half": "\ud800", "set": {1}}[kind]


def mark(marks: str, attempt: int, rank: int, pid: int) -> None:
    path = Path(marks) / f"{attempt}.{rank}.pid"
    temporary = path.with_suffix(f".{os.getpid()}.tmp")
    temporary.write_text(str(pid))
    temporary.rename(path)


def orphan() -> int:
    """A grandchild in a session of its own that ignores SIGTERM and whose parent is gone; its pid."""
    code = ("import os, signal, sys, time\n"
            "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
            "if os.fork(): os._exit(0)\n"
            "os.setsid(); print(os.getpid(), flush=True); os.close(1); time.sleep(3600)")
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True)
    return int(done.stdout)
