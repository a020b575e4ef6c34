"""What a gang left behind, as Dagster shows it. Pure: views in, metadata out."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import dagster as dg
from gangline.model.gang import AttemptView, GangView, UsageRow, VersionRef
from gangline.model.units import format_duration, format_money


@dataclass(frozen=True)
class GangOutcome:
    """A gang that succeeded: its last view and what it cost, by cause."""

    view: GangView
    usage: tuple[UsageRow, ...] = ()

    @property
    def result(self) -> Any:
        """Rank 0's value."""
        return self.view.result

    @property
    def version(self) -> VersionRef | None:
        """The newest version the gang committed, if it committed any."""
        return self.view.versions[-1] if self.view.versions else None

    def metadata(self) -> dict[str, Any]:
        """Metadata for a materialization or an output: where it ran, what it cost, what came out."""
        view = self.view
        facts: dict[str, Any] = {
            "gang": view.gang,
            "attempts": len(view.attempts),
            "cost": f"{format_money(view.cost_nano)} {view.currency}",
        }
        if view.attempts:
            facts["placement"] = dg.MetadataValue.md(placement_table(view.attempts[-1]))
            facts["rdma"] = dg.MetadataValue.json(view.attempts[-1].rdma.full())
        if self.usage:
            facts["cost by cause"] = dg.MetadataValue.md(usage_table(self.usage))
        if self.version is not None:
            facts |= _version_facts(self.version)
        if isinstance(view.result, Mapping):
            facts["result"] = dg.MetadataValue.json(dict(view.result))
        return facts

    def materialize_result(
        self, metadata: Mapping[str, Any] | None = None, **fields: Any
    ) -> "dg.MaterializeResult[Any]":
        """The materialization of the asset; its data version is the committed version, when there is one."""
        if self.version is not None:
            fields.setdefault("data_version", dg.DataVersion(self.version.uri))
        return dg.MaterializeResult(metadata={**self.metadata(), **(metadata or {})}, **fields)


def placement_table(attempt: AttemptView) -> str:
    """Markdown: each node with its GPUs."""
    emulated = " (emulated)" if attempt.emulated else ""
    where = f"zone {escape(attempt.zone or '-')}, fabric {escape(attempt.fabric or '-')}{emulated}"
    rows = [f"| {escape(n.node)} | {escape(n.gpu_type)} x {len(n.gpus)} | {escape(n.role) or '-'} |"
            for n in attempt.nodes]
    return "\n".join([where, "", "| node | holds | role |", "|---|---|---|", *rows])


def usage_table(rows: tuple[UsageRow, ...]) -> str:
    """Markdown: node time and cost of each cause; the rows sum to the gang's cost exactly."""
    lines = [f"| {escape(row.by.get('cause', ''))} | {format_duration(row.node_ms / 1000)} "
             f"| {format_money(row.cost_nano)} {row.currency} |" for row in rows]
    return "\n".join(["| cause | node time | cost |", "|---|---|---|", *lines])


def escape(text: str) -> str:
    """Text that Markdown cannot take for markup."""
    for mark in "\\`*_{}[]<>()#+!|":
        text = text.replace(mark, f"\\{mark}")
    return text.replace("\n", " ")


def _version_facts(version: VersionRef) -> dict[str, Any]:
    facts: dict[str, Any] = {"checkpoint": version.uri, "manifest_sha256": version.manifest_sha256}
    if version.step is not None:
        facts["step"] = version.step
    return facts | {f"checkpoint/{name}": dg.MetadataValue.float(value) for name, value in version.metrics.items()}
