"""The engine on a live cluster: KUBECONFIG_LIVE names its kubeconfig, and must not be one that matters to others.

KUBECONFIG_LIVE_NAMESPACE [default], KUBECONFIG_LIVE_IMAGE [python:3.11-slim] and KUBECONFIG_LIVE_LABELS (`k=v,…`, none)
say the rest. What is made is removed. Pods run a stand-in for the supervisor, as no address of this machine need be
reachable from the cluster.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from rig import FLEET, until

from gangline.engines.base import Job, JobNode, JobStatus, NodeStatus, SeenJob, SeenNode, job_name
from gangline.engines.kubernetes.engine import KubernetesEngine
from gangline.engines.supervision import Supervision
from gangline.model.fleet import Pool

CONFIG = os.environ.get("KUBECONFIG_LIVE")
PATIENCE_S = 180.0
pytestmark = pytest.mark.skipif(CONFIG is None, reason="KUBECONFIG_LIVE names no cluster")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sleeper(Supervision):
    """Says which arguments it got and stays."""

    def argv(self, pool: Pool, job: Job, *, token_file: str | None = None) -> list[str]:
        assert token_file is not None
        code = ("import sys, time; open(sys.argv[1]).read(); print('welcomed', *sys.argv[2:], flush=True); "
                "time.sleep(3600)")
        return ["python", "-c", code, token_file]


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[KubernetesEngine]:
    labels = dict(pair.split("=", 1) for pair in os.environ.get("KUBECONFIG_LIVE_LABELS", "").split(",") if pair)
    pool = Pool.parse({"name": "live", "engine": "kubernetes", "gpu": "cpu", "kubernetes": {
        "image": os.environ.get("KUBECONFIG_LIVE_IMAGE", "python:3.11-slim"), "kubeconfig": CONFIG, "labels": labels,
        "namespace": os.environ.get("KUBECONFIG_LIVE_NAMESPACE", "default")}})
    engine = KubernetesEngine((pool,), Sleeper(server_url="http://nowhere"), tmp_path, FLEET)
    yield engine
    for job in engine.observe().jobs:
        engine.stop(job.name, 1.0)
    engine.close()


def ready(engine: KubernetesEngine) -> list[SeenNode]:
    return [node for node in engine.observe().nodes if node.status is NodeStatus.READY]


def seen(engine: KubernetesEngine, name: str) -> SeenJob | None:
    return engine.poll_many([name]).get(name)


def test_a_job_runs_on_the_planned_nodes_is_found_again_and_leaves_nothing(engine: KubernetesEngine) -> None:
    nodes = ready(engine)[:2]
    assert nodes, "no node of the cluster is ready"
    name = job_name(FLEET, f"g-live{os.getpid()}", 1)
    job = Job(name=name, gang=f"g-live{os.getpid()}", attempt=1, pool="live", slot="größe\n$(x)", tenant="a b",
              title="x" * 1000, nodes=tuple(JobNode(node=node.name, gpus=0, whole=True) for node in nodes))
    uid = engine.launch(engine.prepare(job), "a token")
    assert engine.launch(engine.prepare(job), "a token") == uid
    until(lambda: engine.logs(name).count("welcomed") == len(nodes), "every pod's words",
          lambda: (seen(engine, name), engine.logs(name)), PATIENCE_S)
    found = seen(engine, name)
    assert found is not None
    assert (found.status, set(found.nodes)) == (JobStatus.RUNNING, {node.name for node in nodes})
    engine.stop(name, 5.0)
    until(lambda: seen(engine, name) is None, "the job to be gone", lambda: seen(engine, name), PATIENCE_S)


def test_a_drain_is_made_seen_and_lifted(engine: KubernetesEngine) -> None:
    node = ready(engine)[-1].name
    engine.drain(node, "a test")
    until(lambda: node not in {entry.name for entry in ready(engine)}, "the drain to be seen", within_s=PATIENCE_S)
    engine.resume(node)
    until(lambda: node in {entry.name for entry in ready(engine)}, "its end to be seen", within_s=PATIENCE_S)
