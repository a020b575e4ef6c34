"""The slot of a Dagster step: the same for every re-execution that resumes it, new for one that starts over."""

import dagster as dg

IS_RESUME_TAG = "dagster/is_resume_retry"


def step_slot(context: dg.OpExecutionContext | dg.AssetExecutionContext, deployment: str, part: str | None) -> str:
    """`dagster:{deployment}/{root run of the resume chain}/{step key}`, and `/{part}` when a step runs several gangs.

    Re-execution from failure and automatic run retries resume: they find the gang of the first run again.
    Re-execution of all steps is a new piece of work.
    """
    key = context.get_step_execution_context().step.key
    slot = f"dagster:{deployment}/{_root_run_id(context)}/{key}"
    return f"{slot}/{part}" if part else slot


def _root_run_id(context: dg.OpExecutionContext | dg.AssetExecutionContext) -> str:
    run = context.run
    while run.parent_run_id and run.tags.get(IS_RESUME_TAG) == "true":
        parent = context.instance.get_run_by_id(run.parent_run_id)
        if parent is None:  # the parent was deleted from the run storage: its id is all that is left
            return str(run.parent_run_id)
        run = parent
    return str(run.run_id)
