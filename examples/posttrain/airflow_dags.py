"""The pipeline as Airflow DAGs. Put `examples/` (or a copy of `posttrain/`) into the DAGs folder.

Tasks that need GPUs are deferred while their gang waits and runs: they hold no worker. Parsing this file
imports no torch.
"""

import datetime as dt

from airflow.sdk import Asset, Metadata, dag, task

from airflow_gangline.hooks import GanglineHook
from airflow_gangline.operators import GangOperator
from posttrain import corpus, recipe, steps
from posttrain.promote import promote, publish_base, published_base

PACKAGES = (*corpus.HELDOUT_PARTS, *corpus.OTHER_PARTS)
SEED = 0
NAME = recipe.base_name(SEED, recipe.PRETRAIN.steps)

adapter = Asset(name="posttrain-adapter", uri="gangline://adapter")
scored = Asset(name="posttrain-scores", uri="gangline://adapter/scores")

BASE_VERSION = "{{ ti.xcom_pull(task_ids='base_version') }}"
ADAPTER_VERSION = "{{ ti.xcom_pull(task_ids='finetune')['result']['version'] }}"


@dag(schedule="0 3 * * *", start_date=dt.datetime(2026, 1, 1, tzinfo=dt.UTC), catchup=False, tags=["gangline"])
def posttrain():
    """Pretrain if need be, fine-tune on 4 nodes, evaluate on every package at once."""

    @task.branch
    def find_base():
        with GanglineHook().get_client() as client:
            return "base_version" if published_base(client, NAME) is not None else "pretrain"

    pretrain = GangOperator(task_id="pretrain", function=steps.pretrain, args={"seed": SEED})

    @task(trigger_rule="none_failed_min_one_success")
    def base_version(ti=None):
        trained = ti.xcom_pull(task_ids="pretrain")
        with GanglineHook().get_client() as client:
            if trained is not None:
                publish_base(client, NAME, trained["result"]["version"])
            return published_base(client, NAME)

    finetune = GangOperator(
        task_id="finetune", function=steps.finetune, args={"seed": SEED}, outlets=[adapter],
        volumes=steps.mounts(base=BASE_VERSION))

    evaluate = GangOperator.partial(
        task_id="evaluate", function=steps.evaluate, map_index_template="{{ task.args['package'] }}",
        volumes=steps.mounts(base=BASE_VERSION, adapter=ADAPTER_VERSION),
    ).expand(args=[{"package": package, "seed": SEED} for package in PACKAGES])

    @task(outlets=[scored])
    def publish_scores(evaluated, tuned):
        results = [one["result"] for one in evaluated]
        if len(results) != len(PACKAGES):
            raise ValueError(f"{len(results)} of {len(PACKAGES)} packages were evaluated")
        yield Metadata(scored, {"version": tuned["result"]["version"], "scores": results})

    found, version = find_base(), base_version()
    found >> pretrain >> version
    found >> version >> finetune >> evaluate
    publish_scores(evaluate.output, finetune.output)


@dag(schedule=[scored], catchup=False, tags=["gangline"])
def posttrain_promote():
    """Move `adapter@best` when new scores say so."""

    @task(inlets=[scored])
    def promote_best(inlet_events=None):
        newest = inlet_events[scored][-1].extra
        with GanglineHook().get_client() as client:
            return promote(client, newest["version"], newest["scores"])

    promote_best()


posttrain()
posttrain_promote()
