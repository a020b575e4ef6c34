"""The extra link of a gang's task."""

from __future__ import annotations

from typing import Any

from airflow.sdk import BaseOperatorLink

LINK_KEY = "gangline_link"


class GangLink(BaseOperatorLink):
    """Leads from the task to its gang: the command that shows it, for a server has no pages."""

    name = "Gang"

    @property
    def xcom_key(self) -> str:
        return LINK_KEY

    def get_link(self, operator: Any, *, ti_key: Any) -> str:
        """What the task stored when it submitted.

        Airflow calls this on the worker when a task ends or defers and stores the answer under the
        same key, so reading it back is what keeps the link alive while the task is deferred.
        """
        from airflow.sdk.execution_time.xcom import XCom

        value = XCom.get_one(key=LINK_KEY, dag_id=ti_key.dag_id, task_id=ti_key.task_id,
                             run_id=ti_key.run_id, map_index=ti_key.map_index)
        return str(value or "")


def link_to(client_url: str, gang: str) -> str:
    """The command line that shows a gang; a server that is not of this machine is named in it."""
    where = f" --url {client_url}" if client_url.startswith(("http://", "https://")) else ""
    return f"gangline show {gang}{where}"
