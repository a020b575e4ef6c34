"""`GanglineHook`: an Airflow connection as a client of a Gangline server."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseHook

if TYPE_CHECKING:
    from gangline.client import AsyncClient, Client

DEFAULT_CONN_ID = "gangline_default"
DEFAULT_DEPLOYMENT = "airflow"


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where a connection leads, resolved once: clients can be made from it in any thread.

    `conn_id` is None when there is no connection, and everything else is default.
    """

    conn_id: str | None = None
    url: str | None = None
    token: str | None = field(default=None, repr=False)
    home: str | None = None
    tenant: str | None = None
    deployment: str = DEFAULT_DEPLOYMENT

    def connect(self, *, start: bool = True) -> Client:
        """A client; without a URL the embedded server's, started when there is none and `start`."""
        from gangline.client import connect

        return connect(self.url, home=self.home, tenant=self.tenant, start=start, token=self.token)

    async def aconnect(self) -> AsyncClient:
        """The same for triggers: nothing here blocks the event loop."""
        from gangline.client import aconnect

        return await aconnect(self.url, home=self.home, token=self.token)


class GanglineHook(BaseHook):
    """Reads a connection of type `gangline` and makes clients from it.

    Host is the server's URL (empty: the embedded server), password its API token; the extra may name
    `deployment`, `tenant` and `home`. When the default connection does not exist, everything is
    default: the embedded server.
    """

    conn_name_attr = "gangline_conn_id"
    default_conn_name = DEFAULT_CONN_ID
    conn_type = "gangline"
    hook_name = "Gangline"

    def __init__(self, gangline_conn_id: str = DEFAULT_CONN_ID, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.gangline_conn_id = gangline_conn_id

    def endpoint(self) -> Endpoint:
        """Where the connection leads. Asks Airflow, so never call it from a signal handler."""
        from airflow.sdk.exceptions import AirflowNotFoundException

        try:
            return endpoint_of(self.get_connection(self.gangline_conn_id))
        except AirflowNotFoundException:
            return _without_connection(self.gangline_conn_id)

    async def aendpoint(self) -> Endpoint:
        """`endpoint` for triggers."""
        from airflow.sdk.exceptions import AirflowNotFoundException

        try:
            return endpoint_of(await self.aget_connection(self.gangline_conn_id))
        except AirflowNotFoundException:
            return _without_connection(self.gangline_conn_id)

    def get_client(self) -> Client:
        """A client of the connection's server; close it when done."""
        return self.endpoint().connect()

    def get_conn(self) -> Client:
        """The same as `get_client`, under the name Airflow gives it."""
        return self.get_client()

    def test_connection(self) -> tuple[bool, str]:
        """Whether the server answers, and which one it is or why not."""
        from gangline.model.errors import GanglineError

        try:
            with self.get_client() as client:
                status = client.status()
        except GanglineError as exc:
            return False, str(exc)
        return True, f"Gangline {status.version} at {status.url} with {len(status.nodes)} nodes"


def endpoint_of(connection: Any) -> Endpoint:
    """The endpoint in an Airflow connection; ValueError when its extra is not an object."""
    extra = connection.extra_dejson or {}
    return Endpoint(
        conn_id=connection.conn_id, url=_url_of(connection), token=connection.password or None,
        home=extra.get("home") or None, tenant=extra.get("tenant") or None,
        deployment=extra.get("deployment") or DEFAULT_DEPLOYMENT)


def _url_of(connection: Any) -> str | None:
    host = (connection.host or "").strip()
    if not host or host.startswith("unix:"):
        return host or None
    base = host if "://" in host else f"{connection.schema or 'http'}://{host}"
    return f"{base}:{connection.port}" if connection.port else base


def _without_connection(conn_id: str) -> Endpoint:
    """Only the default connection may be missing: a named one was meant to lead somewhere."""
    from airflow.sdk.exceptions import AirflowNotFoundException

    if conn_id == DEFAULT_CONN_ID:
        return Endpoint()
    raise AirflowNotFoundException(
        f"no connection {conn_id!r}; add one of type gangline, or leave gangline_conn_id out to use "
        "the embedded server")
