"""Pure translation: an Airflow task instance to a slot, a gang to what a task reports of it."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gangline.model.gang import GangView, VersionRef

MAX_SLOT_CHARS = 512  # what a server accepts; Airflow's ids may be 250 characters each
MAX_RESULT_BYTES = 32_000  # XCom rows are read whole into every task that pulls them
BY_AIRFLOW = "Airflow: "


def slot_for(deployment: str, ti: Any) -> str:
    """The slot of a task instance: the same for every try of it, and for nothing else."""
    index = ti.map_index if ti.map_index is not None else -1
    slot = f"airflow:{deployment}/{ti.dag_id}/{ti.run_id}/{ti.task_id}/{index}"
    if len(slot) <= MAX_SLOT_CHARS:
        return slot
    digest = hashlib.sha256(slot.encode()).hexdigest()
    return f"{slot[:MAX_SLOT_CHARS - len(digest) - 1]}~{digest}"


def epoch_of(ti: Any) -> int:
    """How often the task was deliberately started anew: Airflow raises `max_tries` on a clear only."""
    return int(ti.max_tries or 0)


def tries_left(ti: Any) -> bool:
    """Whether Airflow will try the task again when this try fails."""
    return bool(ti.max_tries) and int(ti.try_number) <= int(ti.max_tries)


def reason(why: str) -> str:
    """Why a gang is cancelled, marked as coming from Airflow itself and not from a person."""
    return f"{BY_AIRFLOW}{why}"


def report(view: GangView) -> dict[str, Any]:
    """What a task returns: ids, references and small values; larger things stay in volumes."""
    from gangline.model.units import format_money

    size = len(json.dumps(view.result).encode())
    return {
        "gang": view.gang,
        "state": str(view.state),
        "result": view.result if size <= MAX_RESULT_BYTES else None,
        "versions": [version.uri for version in view.versions],
        "cost": f"{format_money(view.cost_nano)} {view.currency}",
    }


def version_for(names: tuple[str, ...], view: GangView) -> VersionRef | None:
    """The version an outlet known by `names` stands for: the newest this gang committed to its volume.

    An outlet belongs to the volume that its name or the end of its URI names; when the gang wrote to
    one volume only, every outlet is that volume's.
    """
    volumes = {version.volume for version in view.versions}
    named = {name.rstrip("/").rpartition("/")[2] for name in names} & volumes
    wanted = named or (volumes if len(volumes) == 1 else set())
    return next((v for v in reversed(view.versions) if v.volume in wanted), None)


def asset_extra(view: GangView, version: VersionRef | None) -> dict[str, Any]:
    """What the event of an outlet says: which version it is and which gang made it."""
    if version is None:
        return {"gang": view.gang}
    return {"uri": version.uri, "volume": version.volume, "version": version.version, "step": version.step,
            "manifest_sha256": version.manifest_sha256, "metrics": dict(version.metrics), "gang": view.gang}
