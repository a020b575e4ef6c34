from __future__ import annotations

import asyncio
import multiprocessing
import threading
from pathlib import Path
from typing import Any

import pytest

from gangline.client import AsyncClient, Client
from gangline.client.address import parse_address
from gangline.model.errors import (
    Bug,
    Conflict,
    GanglineError,
    NotFound,
    Rejected,
    Superseded,
    Unavailable,
)
from gangline.model.gang import GangView, Submission
from gangline.model.spec import GangSpec

SPEC = GangSpec(name="sft", command=("true",))
VIEW = GangView(gang="g-1", name="sft", slot="s", epoch=0, tenant="default", state="queued", spec=SPEC,
                digest="d", submitted_ms=1, changed_ms=1).wire()


def test_a_typed_answer_comes_from_the_wire(answering: Any) -> None:
    answering.answers = [(200, VIEW)]
    with Client(answering.address) as client:
        assert client.observe("a/b").spec == SPEC
    assert answering.asked[0][:2] == ("GET", "/v1/gangs/a/b")


def test_what_is_asked_is_what_the_contract_says(answering: Any) -> None:
    answering.answers = [(200, {"gangs": [VIEW]}), (200, {"view": VIEW, "cursor": 4}),
                         (200, {"events": [], "cursor": 4}), (200, {"cancelled": ["g-1"]}),
                         (200, {"rows": []})]
    with Client(answering.address) as client:
        assert [view.gang for view in client.list(["queued", "running"], slot_prefix="s", limit=3)] == ["g-1"]
        assert client.watch("g-1", "tok", 3, wait_s=2).cursor == 4
        assert client.events("g-1", after=4) == ((), 4)
        assert client.cancel_slot("s", 2, "gone") == ["g-1"]
        assert client.usage(["cause", "gang"], from_ms=5) == []
    assert [asked[:2] for asked in answering.asked] == [
        ("GET", "/v1/gangs?state=queued%2Crunning&slot_prefix=s&limit=3"),
        ("POST", "/v1/gangs/g-1/watch"),
        ("GET", "/v1/gangs/g-1/events?after=4&wait_s=0.0"),
        ("POST", "/v1/slots/cancel"),
        ("GET", "/v1/usage?by=cause%2Cgang&from_ms=5")]
    assert answering.asked[1][2] == {"token": "tok", "cursor": 3, "wait_s": 2}


@pytest.mark.parametrize("error", [Rejected("no", field="gpu", fix="yes"), NotFound("no"), Conflict("no"),
                                   Superseded("no"), Bug("no")])
def test_an_error_is_raised_as_the_class_the_server_named(answering: Any, error: GanglineError) -> None:
    answering.answers = [(error.http_status, error.to_wire())]
    with Client(answering.address) as client, pytest.raises(GanglineError) as caught:
        client.observe("g-1")
    assert type(caught.value) is type(error)
    assert str(caught.value) == str(error)


@pytest.mark.parametrize(("answer", "wanted"), [
    ((502, None), Unavailable), ((500, {"detail": "?"}), Bug), ((200, {"unheard_of": 1}), Bug),
    ((200, None), Bug)])
def test_an_answer_that_is_not_ours_is_named_so(answering: Any, answer: Any, wanted: type) -> None:
    answering.answers = [answer]
    with Client(answering.address, retry_s=0) as client, pytest.raises(wanted):
        client.observe("g-1")


def test_a_server_that_never_answered_is_not_waited_for(tmp_path: Path) -> None:
    url = f"unix:{tmp_path}/s.sock"
    with Client(parse_address(url)) as client, pytest.raises(Unavailable) as caught:
        client.status()
    assert url in str(caught.value)
    assert "gangline serve" in str(caught.value)


def test_a_call_that_may_be_repeated_is_when_the_server_comes_back(answering: Any) -> None:
    answering.answers = [(200, VIEW)]
    with Client(answering.address) as client:
        client.observe("g-1")
        answering.stop()
        back = threading.Timer(0.3, answering.start)
        back.start()
        assert client.observe("g-1").gang == "g-1"
        back.join()


def test_a_busy_server_is_asked_again_and_a_refusal_is_not(answering: Any) -> None:
    busy = Unavailable("stopping")
    answering.answers = [(200, VIEW), (503, busy.to_wire()), (503, busy.to_wire()), (200, VIEW),
                         (409, Conflict("no").to_wire())]
    with Client(answering.address) as client:
        client.observe("g-1")
        client.observe("g-1")
        assert len(answering.asked) == 4
        with pytest.raises(Conflict):
            client.observe("g-1")
    assert len(answering.asked) == 5


def test_a_call_that_must_not_be_repeated_is_not(answering: Any) -> None:
    answering.answers = [(200, VIEW), (503, Unavailable("no").to_wire())]
    with Client(answering.address) as client:
        client.observe("g-1")
        with pytest.raises(Unavailable):
            client.set_name("v", "best", 3, expected_revision=1)
    assert len(answering.asked) == 2


def test_repeating_ends(answering: Any) -> None:
    answering.answers = [(200, VIEW), (503, Unavailable("no").to_wire())]
    with Client(answering.address, retry_s=0.3) as client:
        client.observe("g-1")
        with pytest.raises(Unavailable):
            client.observe("g-1")
    assert 2 < len(answering.asked) < 8


def test_the_tenant_of_the_connection_is_the_default_of_specs(answering: Any) -> None:
    ensured = {"gang": "g", "token": "t", "created": True, "state": "queued"}
    answering.answers = [(200, {"ensured": [ensured]})]
    own = GangSpec(name="b", command=("true",), tenant="mine")
    with Client(answering.address, tenant="team") as client:
        client.ensure(Submission(slot="a", spec=SPEC))
        client.ensure(Submission(slot="b", spec=own))
    assert [asked[2]["submissions"][0]["spec"]["tenant"] for asked in answering.asked] == ["team", "mine"]


def test_blobs_travel_from_memory_and_from_files(answering: Any, tmp_path: Path) -> None:
    answering.answers = [(404, None), (201, {}), (201, {}), (200, None)]
    path = tmp_path / "a.tar"
    path.write_bytes(b"from a file")
    with Client(answering.address) as client:
        assert not client.has_blob("ab")
        client.put_blob("ab", b"from memory")
        client.put_blob("ab", path)
        assert client.has_blob("ab")
    assert [(method, body) for method, _, body in answering.asked] == [
        ("HEAD", b""), ("PUT", b"from memory"), ("PUT", b"from a file"), ("HEAD", b"")]


def test_a_server_of_another_version_is_only_asked_for_its_status_and_its_end(answering: Any) -> None:
    answering.answers = [(200, {"stopped": True, "pid": 7})]
    with Client(answering.address, refusal=Conflict("other version")) as client:
        with pytest.raises(Conflict):
            client.observe("g-1")
        assert client.stop() == 7


def _observe_in_child(client: Client, results: Any) -> None:
    results.put(client.observe("g-1").gang)


def test_a_client_survives_a_fork(answering: Any) -> None:
    answering.answers = [(200, VIEW)]
    fork = multiprocessing.get_context("fork")
    results = fork.Queue()
    with Client(answering.address) as client:
        client.observe("g-1")
        child = fork.Process(target=_observe_in_child, args=(client, results))
        child.start()
        assert results.get(timeout=20) == "g-1"
        child.join(20)
        assert client.observe("g-1").gang == "g-1"


def test_coroutines_get_the_same_answers_and_errors(answering: Any) -> None:
    answering.answers = [(200, VIEW), (503, Unavailable("no").to_wire()),
                         (200, {"attempt": 1, "rank": 0, "text": "a", "offset": 0, "next": 1}),
                         (200, VIEW), (409, Superseded("no").to_wire())]

    async def main() -> None:
        async with AsyncClient(answering.address) as client:
            assert (await client.observe("g-1")).gang == "g-1"
            assert (await client.logs("g-1")).text == "a"
            assert (await client.cancel("g-1", "t")).gang == "g-1"
            with pytest.raises(Superseded):
                await client.watch("g-1", "t", 0, 1)

    asyncio.run(main())
