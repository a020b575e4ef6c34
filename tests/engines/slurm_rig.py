"""The Slurm engine with a real cluster behind it, and what others do on that cluster."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from hub import Hub
from rig import FLEET, OTHER_FLEET, Trait, supervision, until
from slurm_cluster import GPUS, NODES, SlurmCluster

from gangline.engines.slurm import SlurmEngine
from gangline.model.fleet import Pool


@dataclass
class SlurmRig:
    """One test's engine on the cluster that all tests share."""

    cluster: SlurmCluster
    hub: Hub
    home: Path
    pool: str = "train"
    nodes: tuple[str, ...] = tuple(f"n{i + 1}" for i in range(NODES))
    gpu_type: str = "h100"
    gpus: int = GPUS
    traits: frozenset[Trait] = frozenset(Trait)
    settings: dict[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.engine = self.again()

    def again(self) -> SlurmEngine:
        return self.make(FLEET, self.home)

    def other_fleet(self) -> SlurmEngine:
        return self.make(OTHER_FLEET, self.home.with_name("other"))

    def make(self, fleet: str, home: Path, **pool: object) -> SlurmEngine:
        home.mkdir(mode=0o700, exist_ok=True)
        settings = {"partition": "train", "conf": self.cluster.conf, **self.settings}
        data = {"name": self.pool, "engine": "slurm", "gpu": f"H100:{GPUS}", "slurm": settings,
                "node_home": str(home / "nodes"), **pool}
        return SlurmEngine((Pool.parse(data),), supervision(self.hub), home, fleet)

    def submit(self, *options: str, command: str = "exec sleep 1000") -> str:
        """A job of somebody else; its id."""
        return self.cluster.run("sbatch", "--parsable", "--output=/dev/null", "--chdir=/", *options,
                                f"--wrap={command}")

    def occupy(self, node: str, gpus: int) -> Callable[[], None]:
        whole = ["--exclusive"] if gpus == GPUS else []
        id = self.submit(f"--nodelist={node}", f"--gres=gpu:{gpus}", "--job-name=theirs", *whole)
        until(lambda: self.state(id) == "RUNNING", f"job {id} to run", lambda: self.state(id))
        return lambda: self.end(id)

    def state(self, id: str) -> str:
        return self.cluster.run("squeue", "-h", "-t", "all", "-j", id, "-o", "%T")

    def end(self, id: str) -> None:
        self.cluster.run("scancel", "-s", "KILL", id)
        self.cluster.run("scancel", id)
        until(lambda: self.state(id) in ("CANCELLED", "FAILED", "COMPLETED"), f"job {id} to end")

    def others_drain(self, node: str, reason: str) -> Callable[[], None]:
        self.update(node, "drain", reason)
        return lambda: self.update(node, "undrain")

    def update(self, node: str, state: str, reason: str = "") -> None:
        why = [f"reason={reason}"] if reason else []
        self.cluster.run("scontrol", "update", f"nodename={node}", f"state={state}", *why)

    def kill_node(self, node: str) -> Callable[[], None]:
        self.cluster.cut(node)
        return lambda: self.revive(node)

    def revive(self, node: str) -> None:
        self.cluster.start(node)
        until(lambda: self.cluster.states(node) == {"idle"}, f"{node} to be idle", lambda: self.cluster.states(node))
