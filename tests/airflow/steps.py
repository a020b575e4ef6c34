"""A task instance as an operator meets it, for tests that need no Airflow around it."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any

from airflow.sdk.execution_time.context import OutletEventAccessors

_runs = itertools.count()


@dataclass
class TaskInstance:
    """Stands at Airflow's edge: ids, tries, XComs, and the state Airflow has for the task."""

    dag_id: str = "d"
    run_id: str = field(default_factory=lambda: f"run-{next(_runs)}")
    task_id: str = "t"
    map_index: int = -1
    try_number: int = 1
    max_tries: int = 0
    state: str = "running"
    xcoms: dict[str, Any] = field(default_factory=dict)

    def xcom_push(self, key: str, value: Any) -> None:
        self.xcoms[key] = value

    def get_task_states(self, *, dag_id: str, map_index: int, task_ids: list[str],
                        run_ids: list[str]) -> dict[str, dict[str, str]]:
        assert (dag_id, map_index, task_ids, run_ids) == (self.dag_id, self.map_index, [self.task_id],
                                                          [self.run_id])
        return {self.run_id: {self.task_id: self.state}}

    @property
    def slot(self) -> str:
        return f"airflow:airflow/{self.dag_id}/{self.run_id}/{self.task_id}/{self.map_index}"


def context(ti: TaskInstance) -> dict[str, Any]:
    return {"ti": ti, "outlet_events": OutletEventAccessors()}
