"""A connection leads to a server; only the default one may be missing."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from airflow.sdk.exceptions import AirflowNotFoundException

from airflow_gangline.hooks import Endpoint, GanglineHook


def connection(monkeypatch: pytest.MonkeyPatch, name: str, **fields: object) -> GanglineHook:
    monkeypatch.setenv(f"AIRFLOW_CONN_{name.upper()}", json.dumps({"conn_type": "gangline", **fields}))
    return GanglineHook(name)


@pytest.mark.parametrize(("fields", "url"), [
    ({"host": "https://gang.example"}, "https://gang.example"),
    ({"host": "gang.example", "port": 8443, "schema": "https"}, "https://gang.example:8443"),
    ({"host": "127.0.0.1", "port": 7000}, "http://127.0.0.1:7000"),
    ({"host": "unix:/run/gangline.sock"}, "unix:/run/gangline.sock"),
    ({}, None),
])
def test_the_url_of_a_connection(monkeypatch: pytest.MonkeyPatch, fields: dict[str, object],
                                 url: str | None) -> None:
    assert connection(monkeypatch, "gang_test", **fields).endpoint().url == url


def test_what_else_a_connection_says(monkeypatch: pytest.MonkeyPatch) -> None:
    hook = connection(monkeypatch, "gang_test", host="https://gang.example", password="secret",
                      extra={"deployment": "prod", "tenant": "research", "home": "/srv/gangline"})
    expected = Endpoint(conn_id="gang_test", url="https://gang.example", token="secret", deployment="prod",
                        tenant="research", home="/srv/gangline")
    assert hook.endpoint() == expected
    assert asyncio.run(hook.aendpoint()) == expected
    assert "secret" not in repr(expected)
    assert hook.get_client().address.token == "secret"


def test_the_default_connection_may_be_missing() -> None:
    assert GanglineHook().endpoint() == Endpoint()
    assert asyncio.run(GanglineHook().aendpoint()) == Endpoint()


def test_a_named_connection_may_not() -> None:
    with pytest.raises(AirflowNotFoundException, match="leave gangline_conn_id out"):
        GanglineHook("gang_elsewhere").endpoint()


def test_testing_a_connection_says_what_is_wrong(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    works, text = connection(monkeypatch, "gang_test", host=f"unix:{tmp_path}/none.sock").test_connection()
    assert (works, "none.sock" in text) == (False, True)


def test_testing_a_connection_names_the_server(client: object) -> None:
    works, text = GanglineHook().test_connection()
    assert works, text
    assert "2 nodes" in text
