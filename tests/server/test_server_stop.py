from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import event

from gangline.client import AsyncClient, Client
from gangline.client.address import parse_address
from gangline.model.errors import Conflict, Unavailable
from gangline.model.gang import Ensured
from gangline.model.orders import Empty, OrderPhase
from gangline.model.states import GangState


def test_a_server_without_work_stops_when_asked(server: Any, client: Client) -> None:
    assert client.stop() == server.state.pid
    assert server.ended()
    with pytest.raises(Unavailable):
        client.status()


def test_a_server_with_work_refuses_to_stop(server: Any, client: Client,
                                            submission: Callable[..., Any]) -> None:
    gang = client.ensure(submission()).gang
    with pytest.raises(Conflict, match=gang) as caught:
        client.stop()
    assert "--force" in str(caught.value)
    assert client.ensure(submission("other")).created  # it goes on as before


def test_forced_it_ends_every_gang_first(server: Any, client: Client, play_node: Callable[..., Any],
                                         start_server: Callable[..., Any],
                                         submission: Callable[..., Any]) -> None:
    node = play_node(server)
    running = client.ensure(submission("a", size=1)).gang
    order = node.bring_to_run()
    queued = client.ensure(submission("b", size=4)).gang
    cursor = client.events(running).cursor
    with ThreadPoolExecutor(2) as pool:
        stopping = pool.submit(client.stop, True)
        watching = pool.submit(client.events, running, cursor, 50)
        stop = node.next_order(OrderPhase.STOP)
        assert stop.gang == running
        assert watching.result(20).events
        assert not stopping.done()
        node.report(Empty(gang=order.gang, attempt=order.attempt, generation=order.generation))
        stopping.result(20)
    assert server.ended()
    with start_server(home=server.home).client() as after:
        assert {after.observe(gang).state for gang in (queued, running)} == {GangState.CANCELLED}


def test_a_leaving_server_answers_who_waits(server: Any, client: Client,
                                            waiting_gang: Callable[..., Any]) -> None:
    ensured, cursor = waiting_gang(client)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(client.events, ensured.gang, cursor, 50)
        while not server.in_loop(lambda: server.state.notifier.listeners):
            pass
        server.stop()
        assert waiting.result(20).cursor == cursor


def test_a_client_goes_on_with_its_token_and_cursor_on_the_next_server(
        start_server: Callable[..., Any], submission: Callable[..., Any]) -> None:
    first = start_server()
    with Client(parse_address(first.url)) as client:
        ensured = client.ensure(submission(size=3))
        cursor = client.watch(ensured.gang, ensured.token).cursor
        first.stop()
        later = threading.Timer(0.3, start_server, kwargs={"home": first.home})
        later.start()
        client.cancel(ensured.gang)
        later.join()
        watched = client.watch(ensured.gang, ensured.token, cursor, wait_s=20)
    assert watched.view.state is GangState.CANCELLED
    assert all(event.seq > cursor for event in watched.events)


def test_an_idle_server_leaves_by_itself(start_server: Callable[..., Any]) -> None:
    assert start_server(idle_s=0.3).ended()


def test_a_server_with_work_or_a_watcher_does_not(start_server: Callable[..., Any],
                                                  submission: Callable[..., Any]) -> None:
    before = start_server()
    with before.client() as client:
        gang = client.ensure(submission(size=3)).gang
    before.stop()
    server = start_server(home=before.home, idle_s=0.3)
    assert not server.ended(1.0)
    with server.client() as client:
        client.cancel(gang)
    assert server.ended()


def test_waiting_clients_cost_nothing_until_something_happens(server: Any, client: Client,
                                                              waiting_gang: Callable[..., Any]) -> None:
    asyncio.run(_watch_idly(server, [waiting_gang(client, f"s/{n}") for n in range(2)]))


async def _watch_idly(server: Any, gangs: list[tuple[Ensured, int]]) -> None:
    await asyncio.to_thread(server.state.loop.stop)  # its own passes are not the watchers' cost
    server.in_loop(lambda: setattr(server.state, "loop_ended", True))
    reads: list[object] = []
    event.listen(server.state.store.engine, "begin", reads.append)
    async with AsyncClient(parse_address(server.url)) as client:
        waits = [asyncio.create_task(client.watch(ensured.gang, ensured.token, cursor, 50))
                 for ensured, cursor in gangs * 100]
        while server.state.notifier.listeners < 200 or reads:  # until all have read and found nothing
            reads.clear()
            await asyncio.sleep(0.2)
        await asyncio.sleep(0.8)
        assert reads == []
        await client.cancel(gangs[0][0].gang)
        done, _ = await asyncio.wait(waits[0::2], timeout=20)
        assert len(done) == 100
        assert all(task.result().view.state is GangState.CANCELLED for task in done)
        assert len(reads) <= 1 + 2 * 100  # the cancel, and for each of its watchers one look and one answer
        for task in waits:
            task.cancel()
        await asyncio.wait(waits)
    while server.in_loop(lambda: server.state.notifier.listeners):
        await asyncio.sleep(0.01)  # those who left have freed their places
