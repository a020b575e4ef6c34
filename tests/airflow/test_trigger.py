"""The trigger: one event, no cancel on a restart, a fenced cancel on a person's act."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import pytest

from airflow_gangline.triggers import GangTrigger
from gangline.client import Client
from gangline.model.gang import Ensured, Submission
from gangline.model.spec import GangSpec
from gangline.model.states import GangState


def submit(client: Client, *command: str, slot: str = "") -> Ensured:
    spec = GangSpec(name="t", command=command, grace=0)
    return client.ensure(Submission(slot=slot or f"test:{uuid.uuid4()}", spec=spec))


def trigger_of(ensured: Ensured) -> GangTrigger:
    return GangTrigger(ensured.gang, ensured.token)


async def fired(trigger: GangTrigger) -> list[dict[str, Any]]:
    return [event.payload async for event in trigger.run()]


@pytest.mark.parametrize("conn_id", [None, "gangline_prod"])
def test_it_can_be_made_again_from_what_is_stored(conn_id: str | None) -> None:
    trigger = GangTrigger("g-abc", "secret", conn_id)
    path, kwargs = trigger.serialize()
    assert path == f"{GangTrigger.__module__}.{GangTrigger.__qualname__}"
    assert GangTrigger(**kwargs).serialize() == (path, kwargs)


def test_it_fires_once_when_the_gang_has_ended(client: Client) -> None:
    ensured = submit(client, "true")
    assert asyncio.run(fired(trigger_of(ensured))) == [{"gang": ensured.gang, "state": "succeeded"}]


def test_a_deposed_one_fires_as_superseded(client: Client) -> None:
    ensured = submit(client, "sleep", "600", slot="test:deposed")
    again = submit(client, "sleep", "600", slot="test:deposed")
    assert again.gang == ensured.gang
    assert asyncio.run(fired(trigger_of(ensured))) == [{"gang": ensured.gang, "state": "superseded"}]
    client.cancel(again.gang, again.token)


def test_a_gang_the_server_does_not_know_ends_the_wait(client: Client) -> None:
    (event,) = asyncio.run(fired(GangTrigger("g-gone", "x")))
    assert (event["state"], "g-gone" in event["text"]) == ("refused", True)


async def interrupted(trigger: GangTrigger, message: str) -> None:
    """Runs the trigger, cancels it as the triggerer does, and checks that it notices."""
    task = asyncio.ensure_future(fired(trigger))
    while trigger._endpoint is None:
        await asyncio.sleep(0.01)
    task.cancel(message)
    with pytest.raises(asyncio.CancelledError) as caught:
        await task
    # The triggerer tells a person's act from a restart by this text: it must arrive whole.
    assert caught.value.args == (message,)


def test_a_restart_of_the_triggerer_lets_the_gang_be(client: Client) -> None:
    ensured = submit(client, "sleep", "600")
    trigger = trigger_of(ensured)
    asyncio.run(interrupted(trigger, "shutdown"))
    asyncio.run(trigger.cleanup())
    assert client.observe(ensured.gang).cancel_requested is None
    client.cancel(ensured.gang, ensured.token)


def test_a_persons_act_cancels_the_gang(client: Client) -> None:
    ensured = submit(client, "sleep", "600")
    trigger = trigger_of(ensured)

    async def act() -> None:
        await interrupted(trigger, "user action")
        await trigger.on_kill()

    asyncio.run(act())
    view = client.watch(ensured.gang, ensured.token, 0, 0).view
    assert view.state is GangState.CANCELLED or view.cancel_requested


def test_a_late_kill_does_not_touch_the_next_trys_gang(client: Client) -> None:
    old = submit(client, "sleep", "600", slot="test:late")
    new = submit(client, "sleep", "600", slot="test:late")
    asyncio.run(trigger_of(old).on_kill())
    assert client.observe(new.gang).cancel_requested is None
    client.cancel(new.gang, new.token)
