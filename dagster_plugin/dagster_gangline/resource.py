"""`GanglineResource`: how ops and assets run gangs."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import Field

import dagster as dg
from dagster_gangline.follow import StepContext, failure, follow
from dagster_gangline.outcome import GangOutcome
from dagster_gangline.slot import step_slot
from gangline.client import Client, connect
from gangline.client.submission import Origin, Target, prepare_many, submit
from gangline.model.gang import GangView, UsageRow
from gangline.model.states import GangState


class GanglineResource(dg.ConfigurableResource):  # type: ignore[type-arg]
    """Runs gangs from ops and assets, on the embedded fleet by default.

    ```python
    @dg.asset
    def sft(context: dg.AssetExecutionContext, gangline: GanglineResource) -> dg.MaterializeResult:
        return gangline.run(context, train, args={"lr": 3e-4}).materialize_result()
    ```
    """

    url: str | None = Field(default=None, description="Server to use; empty: GANGLINE_URL, else the embedded server.")
    token: str | None = Field(default=None, description="Bearer token of that server; use EnvVar.")
    home: str | None = Field(default=None, description="Home of the embedded server; empty: GANGLINE_HOME.")
    deployment: str = Field(default="dagster", description="Names this Dagster among all that share a fleet.")
    tenant: str | None = Field(default=None, description="Whose quota and bill, where the spec does not say.")

    def client(self) -> Client:
        """A connection; starts the embedded server when one is needed. Close it or use it in `with`."""
        return connect(self.url, home=Path(self.home) if self.home else None, tenant=self.tenant, token=self.token)

    def run(self, context: StepContext, target: Target, args: Mapping[str, Any] | None = None, *,
            part: str | None = None, **options: Any) -> GangOutcome:
        """Run one gang to its end and return what it left behind.

        `target` is a clustered function, "package.module:function", or a spec; `options` override fields
        of its spec. The step's slot finds a gang that an earlier execution of this step left running.
        A step that runs several gangs names each with `part`.

        Raises:
            dagster.Failure: the gang failed or was cancelled; the evidence is its metadata.
        """
        return self.map(context, target, [args or {}], part=part, **options)[0]

    def map(self, context: StepContext, target: Target, each: Sequence[Mapping[str, Any]], *,
            part: str | None = None, **options: Any) -> list[GangOutcome]:
        """Run one gang for every set of arguments, all submitted at once; outcomes in the same order.

        Raises:
            dagster.Failure: at least one gang did not succeed; all have ended by then.
        """
        labels = {"dagster/run": context.run.run_id, "dagster/job": context.run.job_name}
        options["labels"] = {**labels, **options.get("labels", {})}
        origin = Origin(slot=step_slot(context, self.deployment, part), home=Path(self.home) if self.home else None)
        with self.client() as client:
            views = follow(context, client, submit(client, prepare_many(target, each, options=options, origin=origin)))
            for view in views:
                if view.state is not GangState.SUCCEEDED:
                    raise failure(view)
            used = _usage(client, views)
            return [GangOutcome(view, tuple(used.get(view.gang, ()))) for view in views]


def _usage(client: Client, views: Sequence[GangView]) -> dict[str, list[UsageRow]]:
    """What the gangs used by cause, asked for once, and only from when the first of them was there."""
    found: dict[str, list[UsageRow]] = {}
    if views:
        for row in client.usage(by=("gang", "cause"), from_ms=min(view.submitted_ms for view in views)):
            found.setdefault(row.by["gang"], []).append(row)
    return found
