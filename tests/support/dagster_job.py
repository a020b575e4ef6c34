"""A Dagster job of one asset that trains with a gang; its folder of marks comes from MARKS."""

import os

import gang_work

import dagster as dg
import gangline
from dagster_gangline import GanglineResource

train = gangline.clustered(size=2, gpu="H100:8", ranks_per_node=2, grace="2s",
                           volumes={"/ckpt": "ckpt"})(gang_work.train)


@dg.asset
def model(context: dg.AssetExecutionContext, gangline: GanglineResource) -> dg.MaterializeResult:
    args = {"marks": os.environ["MARKS"], "steps": int(os.environ.get("STEPS", "60"))}
    return gangline.run(context, train, args).materialize_result()


@dg.asset
def shards(context: dg.AssetExecutionContext, gangline: GanglineResource) -> dg.MaterializeResult:
    each = [{"marks": os.environ["MARKS"], "steps": steps, "save_every": 1000} for steps in (1, 2, 3)]
    outcomes = gangline.map(context, train, each, size=1, gpu="H100:1", ranks_per_node=1)
    return dg.MaterializeResult(value=[outcome.result["step"] for outcome in outcomes])


defs = dg.Definitions(assets=[model, shards], resources={"gangline": GanglineResource()},
                      jobs=[dg.define_asset_job("training", selection="model")],
                      executor=dg.in_process_executor)
