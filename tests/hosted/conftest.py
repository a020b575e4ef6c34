from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from hosted_world import Cluster, HostedWorld, hosted_world
from slurm_cluster import SlurmCluster, slurm_cluster


class Slurm:
    """A Slurm cluster as the tests of all systems see it."""

    nodes = ("n1", "n2", "n3", "n4")

    def __init__(self, cluster: SlurmCluster) -> None:
        self._cluster = cluster

    def pool(self) -> str:
        return f"engine: slurm, slurm: {{partition: train, conf: {self._cluster.conf}}}"

    def jobs(self) -> dict[str, str]:
        lines = self._cluster.run("squeue", "-h", "-o", "%j %T").splitlines()
        return dict(line.split(maxsplit=1) for line in lines if line.startswith("gangline-"))

    def occupy(self, node: str) -> Callable[[], None]:
        job = self._cluster.run("sbatch", "--parsable", "--output=/dev/null", "--chdir=/", "--exclusive",
                                f"--nodelist={node}", "--job-name=theirs", "--wrap=exec sleep 1000")
        self._cluster.wait_job(job, "RUNNING")
        return lambda: self._cluster.end(job)

    def drain(self, node: str) -> Callable[[], None]:
        self._cluster.run("scontrol", "update", f"nodename={node}", "state=drain", "reason=bad DIMM")
        return lambda: self._cluster.run("scontrol", "update", f"nodename={node}", "state=undrain") and None

    def cut(self, node: str) -> Callable[[], None]:
        self._cluster.cut(node)
        return lambda: self._cluster.revive(node)


@pytest.fixture(scope="session")
def slurm() -> Iterator[Cluster]:
    with slurm_cluster() as cluster:
        yield Slurm(cluster)


@pytest.fixture(params=["slurm"])
def cluster(request: pytest.FixtureRequest) -> Cluster:
    found: Cluster = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch, cluster: Cluster) -> Iterator[HostedWorld]:
    with hosted_world(monkeypatch, cluster) as made:
        yield made
