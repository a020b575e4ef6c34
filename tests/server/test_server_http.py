from __future__ import annotations

import hashlib
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from gangline.client import Client
from gangline.client.address import parse_address
from gangline.model.errors import NotFound, Rejected, Unavailable
from gangline.server.guard import MAX_BODY_BYTES


@pytest.fixture
def raw(any_server: Any) -> Iterator[httpx.Client]:
    with any_server.raw() as raw:
        yield raw


@pytest.mark.parametrize(("body", "field", "words"), [
    ({}, "submissions", "is required"),
    ({"submissions": []}, "submissions", "too few"),
    ({"submissions": [{"slot": "s", "spec": {"name": "a", "command": ["x"], "gpus": 8}}]},
     "submissions.0.spec.gpus", "unknown field"),
    ({"submissions": [{"slot": "s", "spec": {"name": "a", "command": ["x"], "gpu": "H100:0"}}]},
     "submissions.0.spec.gpu", "at least 1"),
    ({"submissions": [{"slot": "s", "spec": {"name": "a", "command": ["x"], "image": "i"}}]},
     "image", "not available"),
])
def test_a_wrong_body_is_refused_naming_the_field(raw: httpx.Client, body: Any, field: str,
                                                  words: str) -> None:
    reply = raw.post("/v1/gangs/ensure", json=body)
    assert reply.status_code == 422
    error = reply.json()
    assert (error["kind"], error["field"]) == ("rejected", field)
    assert words in error["message"]


@pytest.mark.parametrize(("method", "path", "status", "kind"), [
    ("GET", "/v1/gangs/g-none", 404, "not_found"),
    ("GET", "/v1/nowhere", 404, "not_found"),
    ("GET", "/docs", 404, "not_found"),
    ("POST", "/v1/status", 405, "rejected"),
    ("GET", "/v1/stop", 405, "rejected"),
    ("GET", "/v1/gangs?state=sleeping", 422, "rejected"),
    ("GET", "/v1/gangs?limit=0", 422, "rejected"),
    ("GET", "/v1/gangs/g-none/logs?offset=-1", 422, "rejected"),
    ("GET", "/v1/usage?by=colour", 422, "rejected"),
    ("GET", "/v1/volumes/none", 404, "not_found"),
    ("GET", "/v1/saves/77", 404, "not_found"),
    ("GET", "/v1/blobs/short", 422, "rejected"),
    ("GET", f"/v1/blobs/{'0' * 64}", 404, "not_found"),
])
def test_every_refusal_has_one_form(raw: httpx.Client, method: str, path: str, status: int,
                                    kind: str) -> None:
    reply = raw.request(method, path)
    assert (reply.status_code, reply.json()["kind"]) == (status, kind)
    assert set(reply.json()) == {"kind", "message", "field", "fix"}


def test_a_body_that_is_not_json_is_refused(raw: httpx.Client) -> None:
    reply = raw.post("/v1/stop", content=b"{", headers={"content-type": "application/json"})
    assert (reply.status_code, reply.json()["message"]) == (422, "the body is not JSON")


def test_an_unforeseen_failure_is_a_bug_with_a_log_line(any_server: Any, raw: httpx.Client,
                                                       caplog: pytest.LogCaptureFixture) -> None:
    (any_server.home / "logs").mkdir(exist_ok=True)
    (any_server.home / "logs" / "g-1").write_text("a file where a directory should be")
    piece = {"gang": "g-1", "attempt": 1, "generation": 1, "rank": 0, "offset": 0, "data_b64": ""}
    reply = raw.post("/v1/nodes/p-1/logs", json={"pieces": [piece]})
    assert (reply.status_code, reply.json()["kind"]) == (500, "bug")
    assert "POST /v1/nodes/p-1/logs failed" in caplog.text


@pytest.mark.parametrize("headers", [
    {"Origin": "https://evil.example"},
    {"Origin": "null"},
    {"Sec-Fetch-Site": "cross-site"},
    {"Host": "evil.example"},
    {"Host": "127.0.0.1.evil.example"},
])
def test_other_web_pages_and_rebound_names_get_nothing(raw: httpx.Client, headers: dict[str, str]) -> None:
    for method, path in (("GET", "/v1/status"), ("POST", "/v1/stop")):
        reply = raw.request(method, path, headers=headers)
        assert (reply.status_code, reply.json()["kind"]) == (403, "rejected")


def test_the_server_s_own_page_and_configured_names_are_taken(start_server: Callable[..., Any]) -> None:
    server = start_server(hosts=("gangs.internal",))
    with server.raw() as raw:
        assert raw.get("/v1/status", headers={"Origin": server.http}).status_code == 200
        assert raw.get("/v1/status", headers={"Host": "gangs.internal:80"}).status_code == 200
        assert raw.get("/v1/status", headers={"Host": "localhost"}).status_code == 200


def test_a_listener_with_a_token_serves_only_those_who_have_it(start_server: Callable[..., Any]) -> None:
    server = start_server(token="s3cret")
    with server.raw() as raw:
        refused = raw.get("/v1/status", headers={"Authorization": "Bearer wrong"})
        assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
    with Client(parse_address(server.http, token="s3cret")) as client:
        assert client.status().url == server.url
    with Client(parse_address(server.http)) as client, pytest.raises(Rejected, match="GANGLINE_TOKEN"):
        client.status()
    with server.client() as client:  # whoever reaches the socket in the home needs none
        assert client.status().url == server.url


def test_a_body_over_the_limit_is_refused_before_it_is_read(raw: httpx.Client) -> None:
    reply = raw.post("/v1/gangs/ensure", content=b"x" * (MAX_BODY_BYTES + 1))
    assert (reply.status_code, reply.json()["kind"]) == (413, "rejected")


def test_a_body_that_hides_its_size_is_cut_off(any_server: Any) -> None:
    host, port = any_server.http.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=20) as sock:
        sock.sendall(b"POST /v1/stop HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                     b"Transfer-Encoding: chunked\r\n\r\n")
        chunk = b"100000\r\n" + b" " * (1 << 20) + b"\r\n"
        for _ in range(MAX_BODY_BYTES // (1 << 20) + 1):
            sock.sendall(chunk)
        assert b"413" in sock.recv(4096)


def test_the_interface_describes_itself(raw: httpx.Client) -> None:
    paths = raw.get("/openapi.json").json()["paths"]
    assert "/v1/gangs/{gang}/watch" in paths
    assert paths["/v1/gangs/ensure"]["post"]["requestBody"]
    assert [path for path, methods in paths.items() if "get" in methods and "cancel" in path] == []


def test_blobs_are_kept_under_their_hash(server: Any, client: Client, tmp_path: Path) -> None:
    content = b"a" * (3 << 20) + b"end"
    sha256 = hashlib.sha256(content).hexdigest()
    path = tmp_path / "a.tar"
    path.write_bytes(content)
    assert not client.has_blob(sha256)
    client.put_blob(sha256, path)
    client.put_blob(sha256, content)
    assert client.has_blob(sha256)
    with server.raw() as raw:
        assert raw.get(f"/v1/blobs/{sha256}").content == content
        assert raw.put(f"/v1/blobs/{sha256}", content=content).status_code == 200
    assert [file.name for file in (server.home / "blobs").iterdir()] == [f"{sha256}.tar"]


def test_content_that_is_not_what_its_name_says_is_not_kept(server: Any, client: Client) -> None:
    with pytest.raises(Rejected, match="SHA-256") as caught:
        client.put_blob("0" * 64, b"something else")
    assert caught.value.field == "sha256"
    with pytest.raises(Rejected):
        client.put_blob("../up", b"x")
    assert not client.has_blob("0" * 64)
    assert list((server.home / "blobs").iterdir()) == []


def test_volumes_are_listed_and_named(client: Client, submission: Callable[..., Any]) -> None:
    client.ensure(submission(volumes={"/ckpt": "sft"}))
    assert [volume.volume for volume in client.volumes()] == ["sft"]
    assert client.volume("sft").versions == ()
    with pytest.raises(NotFound):
        client.set_name("sft", "best", 1)
    with pytest.raises(NotFound):
        client.volume("none")


def test_a_server_that_stops_takes_no_new_work(server: Any, client: Client,
                                               submission: Callable[..., Any]) -> None:
    def begin_to_stop() -> None:
        server.state.stopping = True

    server.in_loop(begin_to_stop)
    with pytest.raises(Unavailable, match="stopping"):
        client.ensure(submission())
