"""`GangTrigger`: waits for a gang without a worker."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

if TYPE_CHECKING:
    from airflow_gangline.hooks import Endpoint


class GangTrigger(BaseTrigger):
    """Watches one gang as its owner and fires once, with {"gang", "state"}, when it is final.

    A restart of the triggerer only detaches: the next one watches on. Only a person's act on the
    task cancels the gang, and only while this trigger's token is that of the current owner.
    Without a connection it asks Airflow for none: the first such question costs a triggerer many
    seconds, in which none of its triggers runs.
    """

    def __init__(self, gang: str, token: str, gangline_conn_id: str | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.gang = gang
        self.token = token
        self.gangline_conn_id = gangline_conn_id
        self._endpoint: Endpoint | None = None

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return ("airflow_gangline.triggers.GangTrigger",
                {"gang": self.gang, "token": self.token, "gangline_conn_id": self.gangline_conn_id})

    async def run(self) -> AsyncIterator[TriggerEvent]:
        from airflow_gangline.follow import follow

        endpoint = await self._resolved()
        event = await follow(endpoint, self.gang, self.token, self.log.info)
        yield TriggerEvent(event)  # type: ignore[no-untyped-call]

    async def on_kill(self) -> None:
        """Cancel the gang, unless a later try of the task has taken it over."""
        from airflow_gangline.translate import reason

        endpoint = await self._resolved()
        async with await endpoint.aconnect() as client:
            await client.cancel(self.gang, self.token, reason("the deferred task was cleared or marked"))

    async def _resolved(self) -> Endpoint:
        if self._endpoint is None:
            from airflow_gangline.hooks import Endpoint, GanglineHook

            known = self.gangline_conn_id
            self._endpoint = await GanglineHook(known).aendpoint() if known else Endpoint()
        return self._endpoint
