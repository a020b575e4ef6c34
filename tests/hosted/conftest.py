from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest
from hosted_world import Cluster, HostedWorld, hosted_world
from ray_cluster import GPUS, RayServers, ray_servers
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


class Ray:
    """A Ray cluster as the tests of all systems see it."""

    nodes = ("n1", "n2", "n3", "n4")

    def __init__(self, servers: RayServers) -> None:
        self._servers = servers

    def pool(self) -> str:
        return (f"engine: ray, ray: {{address: '{self._servers.address}', token_file: {self._servers.token_file}, "
                "custom_resources: {rdma: 1}}")

    def jobs(self) -> dict[str, str]:
        said = self._servers.driver(
            "import json; print(json.dumps({g['name']: g['state'] for g in ray.util.placement_group_table().values()"
            " if g['state'] != 'REMOVED'}))")
        states: dict[str, str] = json.loads(said.splitlines()[-1])
        return {name: state for name, state in states.items() if name.startswith("gangline-")}

    def occupy(self, node: str) -> Callable[[], None]:
        return self._servers.occupy(node, GPUS)

    def drain(self, node: str) -> Callable[[], None]:
        pytest.skip("Ray has no drain that can be lifted")

    def cut(self, node: str) -> Callable[[], None]:
        self._servers.kill_raylet(node)
        return lambda: self._servers.run("node", node[1:])


@pytest.fixture(scope="session")
def slurm() -> Iterator[Cluster]:
    with slurm_cluster() as cluster:
        yield Slurm(cluster)


@pytest.fixture(scope="session")
def ray() -> Iterator[Cluster]:
    for servers in ray_servers():
        yield Ray(servers)


@pytest.fixture(params=["slurm", "ray"], scope="session")
def cluster(request: pytest.FixtureRequest) -> Cluster:
    found: Cluster = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch, cluster: Cluster) -> Iterator[HostedWorld]:
    with hosted_world(monkeypatch, cluster) as made:
        yield made
