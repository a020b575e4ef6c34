"""The pipeline as Dagster assets: `dagster dev -m posttrain.dagster_defs`.

Every asset that needs GPUs hands its work to a gang and becomes what the gang committed. A run that is
restarted finds its gangs again.
"""

import base64

import dagster as dg
from dagster_gangline import GanglineResource
from posttrain import corpus, plot, recipe, steps
from posttrain.promote import compare, promote, publish_base, published_base

PACKAGES = (*corpus.HELDOUT_PARTS, *corpus.OTHER_PARTS)


class Seed(dg.Config):
    """What makes one run differ from another."""

    seed: int = 0


@dg.asset(group_name="posttrain", kinds={"pytorch"})
def base_model(context: dg.AssetExecutionContext, config: Seed, gangline: GanglineResource) -> dg.MaterializeResult:
    """The base model: an earlier run's of the same recipe, or a new one."""
    name = recipe.base_name(config.seed, recipe.PRETRAIN.steps)
    with gangline.client() as client:
        version = published_base(client, name)
        if version is not None:
            return dg.MaterializeResult(value=version, data_version=dg.DataVersion(f"{steps.BASE}@{version}"),
                                        metadata={"recipe": name, "reused": True})
        outcome = gangline.run(context, steps.pretrain, {"seed": config.seed})
        publish_base(client, name, outcome.version.version)
    return outcome.materialize_result({"recipe": name}, value=outcome.version.version)


@dg.asset(group_name="posttrain", kinds={"pytorch"})
def adapter(context: dg.AssetExecutionContext, config: Seed, gangline: GanglineResource,
            base_model: int) -> dg.MaterializeResult:
    """The adapter, trained on 4 nodes at once."""
    outcome = gangline.run(context, steps.finetune, {"seed": config.seed}, volumes=steps.mounts(base=base_model))
    picture = base64.b64encode(plot.loss_curve(outcome.result["curve"])).decode()
    return outcome.materialize_result(
        {"loss": dg.MetadataValue.md(f"![loss](data:image/png;base64,{picture})")},
        value=outcome.version.version)


@dg.asset(group_name="posttrain", kinds={"pytorch"})
def scores(context: dg.AssetExecutionContext, config: Seed, gangline: GanglineResource, base_model: int,
           adapter: int) -> dg.MaterializeResult:
    """Bits per byte on every held-out package: one small gang each, all at once."""
    each = [{"package": package, "seed": config.seed} for package in PACKAGES]
    outcomes = gangline.map(context, steps.evaluate, each, volumes=steps.mounts(base=base_model, adapter=adapter))
    table = [outcome.result for outcome in outcomes]
    return dg.MaterializeResult(value=table, metadata={"scores": dg.MetadataValue.md(plot.score_table(table)),
                                                       **compare(table)})


@dg.asset_check(asset=scores, blocking=True)
def beats_base(scores: list) -> dg.AssetCheckResult:
    """The adapter predicts the held-out packages better than the base does."""
    means = compare(scores)
    return dg.AssetCheckResult(passed=means["adapter"] < means["base"], metadata=means)


@dg.asset(group_name="posttrain")
def promoted(gangline: GanglineResource, adapter: int, scores: list) -> dg.MaterializeResult:
    """The name `adapter@best`, moved to this version."""
    with gangline.client() as client:
        decision = promote(client, adapter, scores)
    return dg.MaterializeResult(metadata=decision, data_version=dg.DataVersion(f"{steps.ADAPTER}@{adapter}"))


everything = dg.define_asset_job("posttrain", selection=dg.AssetSelection.groups("posttrain"))

defs = dg.Definitions(
    assets=[base_model, adapter, scores, promoted],
    asset_checks=[beats_base],
    jobs=[everything],
    schedules=[dg.ScheduleDefinition(job=everything, cron_schedule="0 3 * * *")],
    resources={"gangline": GanglineResource()},
)
