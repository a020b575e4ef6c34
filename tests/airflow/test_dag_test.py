"""`dag.test()`: a deferred gang, and a mapped fan-out over its result, from a DAG file anywhere."""

from __future__ import annotations

import os
import textwrap
from pathlib import Path

import pytest

from conftest import DAGS, child_environ
from gangline.client import Client
from gangline.model.states import GangState

_SOURCE = '''
    import os

    import gangline
    from airflow.sdk import DAG, Asset, task
    from airflow_gangline.operators import GangOperator
    from fan_out_work import evaluate


    @gangline.clustered(size=2, gpu="cpu:4", volumes={"/ckpt": "sft"})
    def train(lr: float) -> dict:
        info = gangline.cluster_info()
        with gangline.new_version(step=3, metrics={"lr": lr}) as folder:
            (folder / f"part-{info.rank}").write_text("weights")
        return {"shards": [{"shard": i} for i in range(2)], "ranks": info.world_size}


    @task
    def shards(report: dict) -> list:
        return report["result"]["shards"]


    with DAG("fan_out", schedule=None):
        trained = GangOperator(task_id="train", function=train, args={"lr": 0.5},
                               env={"PYTHONPATH": os.environ.get("PYTHONPATH", "")},
                               outlets=[Asset(name="sft", uri="gangline://sft")])
        GangOperator.partial(task_id="evaluate", function=evaluate).expand(args=shards(trained.output))
'''

_WORK = '''
    """What the fan-out runs: beside the DAG file, so that its ranks need not import Airflow."""
    import gangline


    @gangline.clustered(size=1, gpu="cpu:1")
    def evaluate(shard: int) -> dict:
        return {"shard": shard, "score": shard * 10}
'''


def test_a_gang_and_a_fan_out(airflow_db: Path, client: Client, tmp_path: Path,
                              monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow.dag_processing.dagbag import DagBag

    for name, text in {"fan_out": _SOURCE, "fan_out_work": _WORK}.items():
        (DAGS / f"{name}.py").write_text(textwrap.dedent(text))
    monkeypatch.syspath_prepend(str(DAGS))  # as Airflow's own processes do
    monkeypatch.setenv("PYTHONPATH", child_environ()["PYTHONPATH"])
    monkeypatch.chdir(tmp_path)  # where a worker stands means nothing
    bag = DagBag(str(DAGS))
    assert bag.import_errors == {}
    run = bag.dags["fan_out"].test()
    assert str(run.state) == "success"
    views = client.list(slot_prefix=f"airflow:airflow/fan_out/{run.run_id}/")
    assert all(view.state is GangState.SUCCEEDED for view in views)
    by_slot = {view.slot.rpartition("fan_out/")[2].partition("/")[2]: view for view in views}
    assert sorted(by_slot) == ["evaluate/0", "evaluate/1", "train/-1"]
    assert by_slot["train/-1"].result["ranks"] == 2
    scores = [by_slot[f"evaluate/{i}"].result for i in range(2)]
    assert scores == [{"shard": 0, "score": 0}, {"shard": 1, "score": 10}]
    assert os.getcwd() == str(tmp_path)
