from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from gangline.client import Client
from gangline.model.errors import Conflict, NotFound, Rejected, Superseded
from gangline.model.orders import OrderPhase, Ready
from gangline.model.states import GangState

TOO_MANY = 3  # nodes: the fleet has two, so a gang that asks for three waits an hour for one to boot


def test_a_gang_is_ensured_once_and_seen_by_everyone(client: Client, submission: Callable[..., Any]) -> None:
    first = client.ensure(submission(size=TOO_MANY))
    again = client.ensure(submission(size=TOO_MANY))
    assert (first.created, again.created, again.gang) == (True, False, first.gang)
    assert first.gang.startswith("g-")
    view = client.observe(first.gang)
    assert (view.slot, view.state) == ("dep/run/step", GangState.QUEUED)
    assert client.observe("sft").gang == first.gang
    assert [v.gang for v in client.list(slot_prefix="dep/")] == [first.gang]
    assert client.list(state=GangState.RUNNING) == []
    with pytest.raises(NotFound):
        client.observe("g-nothing")
    with pytest.raises(Superseded):
        client.watch(first.gang, first.token)


def test_all_of_many_or_none(client: Client, submission: Callable[..., Any]) -> None:
    with pytest.raises(Rejected):
        client.ensure_many([submission("a"), submission("b", image="x")])
    assert client.list() == []
    assert len(client.ensure_many([submission("a"), submission("b")])) == 2


def test_a_gang_lives_from_submit_to_its_result(server: Any, client: Client, play_node: Callable[..., Any],
                                                submission: Callable[..., Any]) -> None:
    node = play_node(server)
    ensured = client.ensure(submission())
    order = node.bring_to_run()
    assert client.observe(ensured.gang).state is GangState.RUNNING
    node.finish(order, result={"loss": 1.5})
    view = client.observe(ensured.gang)
    assert (view.state, view.result) == (GangState.SUCCEEDED, {"loss": 1.5})
    watched = client.watch(ensured.gang, ensured.token, 0, wait_s=20)  # a final gang holds nobody
    assert watched.view == view
    assert client.watch(ensured.gang, ensured.token, watched.cursor, wait_s=20).events == ()
    rows = client.usage(by="gang,cause")
    assert {row.by["gang"] for row in rows} == {ensured.gang}
    assert sum(row.cost_nano for row in rows) == view.cost_nano


def test_a_watch_is_answered_by_the_first_event(server: Any, client: Client, play_node: Callable[..., Any],
                                                submission: Callable[..., Any]) -> None:
    node = play_node(server)
    ensured = client.ensure(submission())
    order = node.next_order(OrderPhase.ASSEMBLE)
    cursor = client.watch(ensured.gang, ensured.token).cursor
    with ThreadPoolExecutor(2) as pool:
        watching = pool.submit(client.watch, ensured.gang, ensured.token, cursor, 50)
        following = pool.submit(client.events, ensured.gang, cursor, 50)
        node.report(Ready(gang=order.gang, attempt=order.attempt, generation=order.generation))
        watched, page = watching.result(20), following.result(20)
    assert watched.events
    assert watched.view.state is GangState.STARTING
    assert page.cursor > cursor
    assert {event.gang for event in page.events} == {ensured.gang}


def test_a_deposed_owner_is_told_while_it_waits(client: Client, waiting_gang: Callable[..., Any],
                                                submission: Callable[..., Any]) -> None:
    ensured, cursor = waiting_gang(client)
    with ThreadPoolExecutor(1) as pool:
        watching = pool.submit(client.watch, ensured.gang, ensured.token, cursor, 50)
        newer = client.ensure(submission(size=TOO_MANY))
        with pytest.raises(Superseded):
            watching.result(20)
    assert client.watch(newer.gang, newer.token).view.gang == ensured.gang


def test_nobody_is_held_so_long_that_its_claim_lapses(client: Client, submission: Callable[..., Any]) -> None:
    ensured = client.ensure(submission(size=TOO_MANY, on_orphan="cancel", orphan_after=1.5))
    cursor = client.watch(ensured.gang, ensured.token).cursor
    for _ in range(4):
        watched = client.watch(ensured.gang, ensured.token, cursor, wait_s=50)
        assert watched.view.state is GangState.QUEUED


def test_cancelling(client: Client, submission: Callable[..., Any]) -> None:
    ensured = client.ensure(submission(size=TOO_MANY))
    assert client.cancel(ensured.gang, "stale", "no").state is GangState.QUEUED
    view = client.cancel(ensured.gang, None, "enough")
    assert (view.state, view.cancel_requested) == (GangState.CANCELLED, "enough")
    other = client.ensure(submission("s", epoch=2, size=TOO_MANY))
    assert client.cancel_slot("s", 1, "") == []
    assert client.cancel_slot("s", 2, "") == [other.gang]
    with pytest.raises(Conflict):
        client.ensure(submission("s", epoch=1))


def test_logs_are_followed_from_the_node_to_the_reader(server: Any, client: Client,
                                                       play_node: Callable[..., Any],
                                                       submission: Callable[..., Any]) -> None:
    node = play_node(server)
    gang = client.ensure(submission(retries={"user": 1})).gang
    order = node.bring_to_run()
    assert node.log(order, 0, b"one\n") == {"stored": 1, "gaps": []}
    chunk = client.logs(gang)
    assert (chunk.attempt, chunk.text, chunk.next) == (1, "one\n", 4)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(client.logs, gang, 0, None, 4, 50)
        node.log(order, 4, b"two\n")
        assert waiting.result(20).text == "two\n"
    assert node.log(order, 20, b"lost") == {
        "stored": 0, "gaps": [{"gang": gang, "attempt": 1, "rank": 0, "have": 8}]}

    with ThreadPoolExecutor(1) as pool:  # the next attempt answers who waits at the end of this one
        waiting = pool.submit(client.logs, gang, 0, None, 8, 50)
        node.finish(order, exit_code=3)
        second = node.bring_to_run()
        node.log(second, 0, b"again\n")
        chunk = waiting.result(20)
    assert chunk.attempt == 2
    assert client.logs(gang, attempt=2, wait_s=20).text == "again\n"
    assert client.logs(gang, attempt=1, offset=4).text == "two\n"
    node.finish(second)
    assert client.logs(gang, offset=6, wait_s=20).text == ""  # a final gang holds nobody


def test_orders_reach_a_waiting_supervisor_and_only_the_current_one(
        server: Any, client: Client, play_node: Callable[..., Any], submission: Callable[..., Any]) -> None:
    node = play_node(server)
    assert node.poll(wait_s=0).orders == ()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(node.poll, 50)
        gang = client.ensure(submission()).gang
        assert [(order.gang, order.phase) for order in waiting.result(20).orders] == [
            (gang, OrderPhase.ASSEMBLE)]
    play_node(server, incarnation="i-2")
    refused = node.http.post("/v1/nodes/p-1/poll", json={"incarnation": "i-1"})
    assert refused.status_code == 409
    assert refused.json()["kind"] == "conflict"
    mixed = node.http.post("/v1/nodes/p-2/hello", json={
        "node": "p-1", "incarnation": "x", "pid": 1, "start_time": 1, "boot_id": "b", "address": "a"})
    assert mixed.json()["field"] == "node"


def test_a_drained_node_says_by_whom(client: Client) -> None:
    drained = client.drain("p-1", "ops", "bad fan")
    assert drained.drain is not None
    assert (drained.drain.owner, drained.drain.reason) == ("ops", "bad fan")
    with pytest.raises(Conflict):
        client.undrain("p-1", "someone")
    assert client.undrain("p-1", "ops").drain is None
    with pytest.raises(NotFound):
        client.drain("nowhere", "ops")


def test_the_status_tells_what_goes_on(server: Any, client: Client, play_node: Callable[..., Any],
                                       submission: Callable[..., Any]) -> None:
    node = play_node(server)
    ensured = client.ensure(submission())
    order = node.bring_to_run()
    client.ensure(submission("other", size=TOO_MANY))
    cursor = client.watch(ensured.gang, ensured.token).cursor
    waiting = threading.Thread(target=client.events, args=(ensured.gang, cursor, 50))
    waiting.start()
    while (status := client.status()).watchers == 0:
        pass
    assert (status.active_gangs, status.queued_gangs, status.watchers) == (2, 1, 1)
    assert (status.url, status.home) == (server.url, str(server.home))
    assert [node.node for node in status.nodes][:2] == ["p-1", "p-2"]
    node.finish(order)
    waiting.join(20)
    assert client.status().active_gangs == 1
