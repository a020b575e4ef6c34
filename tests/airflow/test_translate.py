"""The pure parts: slots, reports, outlet events and the lines a log gets."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from airflow_gangline.relay import PROGRESS_EVERY_S, Relay
from airflow_gangline.translate import (
    MAX_RESULT_BYTES,
    MAX_SLOT_CHARS,
    asset_extra,
    epoch_of,
    report,
    slot_for,
    tries_left,
    version_for,
)
from gangline.model.gang import (
    AttemptView,
    End,
    GangView,
    Holder,
    NodeShare,
    Progress,
    RankView,
    Resume,
    VersionRef,
    Wait,
)
from gangline.model.spec import GangSpec
from gangline.model.states import Cause, GangState


def task_instance(**changes: Any) -> SimpleNamespace:
    return SimpleNamespace(**{"dag_id": "d", "run_id": "r", "task_id": "t", "map_index": -1, "try_number": 1,
                              "max_tries": 0, **changes})


def gang_view(**changes: Any) -> GangView:
    return GangView(**{
        "gang": "g-abc", "name": "sft", "slot": "s", "epoch": 0, "tenant": "default",
        "state": GangState.RUNNING, "spec": GangSpec(name="sft", command=("true",)), "digest": "0",
        "submitted_ms": 0, "changed_ms": 0, **changes})


def version(volume: str, number: int, **changes: Any) -> VersionRef:
    return VersionRef(volume=volume, version=number, **changes)


def test_a_slot_names_one_task_instance() -> None:
    slots = {slot_for("prod", task_instance()), slot_for("dev", task_instance()),
             slot_for("prod", task_instance(map_index=0)), slot_for("prod", task_instance(run_id="q"))}
    assert "airflow:prod/d/r/t/-1" in slots
    assert len(slots) == 4


def test_long_ids_still_give_slots_of_their_own_that_fit() -> None:
    first = slot_for("prod", task_instance(dag_id="d" * 250, run_id="r" * 250, task_id="t" * 250))
    second = slot_for("prod", task_instance(dag_id="d" * 250, run_id="r" * 250, task_id="t" * 249 + "u"))
    assert len(first) == len(second) == MAX_SLOT_CHARS
    assert first != second


def test_the_epoch_moves_with_clears_and_not_with_retries() -> None:
    assert epoch_of(task_instance(try_number=2, max_tries=3)) == 3
    assert epoch_of(task_instance(max_tries=None)) == 0


@pytest.mark.parametrize(("try_number", "max_tries", "left"), [(1, 0, False), (1, 1, True), (2, 1, False)])
def test_tries_left(try_number: int, max_tries: int, left: bool) -> None:
    assert tries_left(task_instance(try_number=try_number, max_tries=max_tries)) is left


def test_a_report_is_small() -> None:
    rank = RankView(rank=0, node="n1", local_rank=0, state="exited", result={"loss": 1.9})
    view = gang_view(state=GangState.SUCCEEDED, ranks=(rank,), versions=(version("sft", 3),),
                     cost_nano=1_500_000_000)
    assert report(view) == {"gang": "g-abc", "state": "succeeded", "result": {"loss": 1.9},
                            "versions": ["sft@3"], "cost": "1.5000 USD"}
    big = rank.model_copy(update={"result": "x" * MAX_RESULT_BYTES})
    assert report(gang_view(ranks=(big,)))["result"] is None


def test_an_outlet_gets_the_newest_version_of_its_volume() -> None:
    both = gang_view(versions=(version("sft", 1), version("eval", 7), version("sft", 2)))
    assert version_for(("sft", "gangline://x/y"), both) == version("sft", 2)
    assert version_for(("model", "s3://bucket/eval/"), both) == version("eval", 7)
    assert version_for(("model", "s3://bucket/other"), both) is None
    assert version_for(("model",), gang_view(versions=(version("sft", 1),))) == version("sft", 1)
    assert version_for(("model",), gang_view()) is None


def test_an_outlet_event_says_which_version_and_which_gang() -> None:
    made = version("sft", 2, step=40, metrics={"loss": 0.5}, manifest_sha256="a" * 64)
    assert asset_extra(gang_view(), made) == {
        "uri": "sft@2", "volume": "sft", "version": 2, "step": 40, "manifest_sha256": "a" * 64,
        "metrics": {"loss": 0.5}, "gang": "g-abc"}
    assert asset_extra(gang_view(), None) == {"gang": "g-abc"}


def attempt(number: int, **changes: Any) -> AttemptView:
    node = NodeShare(node=f"n{number}", address="127.0.0.2", gpus=(0,), gpu_type="H100")
    return AttemptView(**{"number": number, "nodes": (node,), "started_ms": 0, **changes})


def test_news_is_said_once() -> None:
    relay = Relay()
    holder = Holder(gang="g-x", name="big", slot="airflow:a/d/r/t/-1", tenant="default")
    busy = Wait(code="busy", text="2 nodes short; held by big (airflow:a/d/r/t/-1)", blocked_by=(holder,))
    waiting = gang_view(state=GangState.QUEUED, wait=busy)
    assert list(relay.lines(waiting, 0.0)) == [
        "gang g-abc is queued", "waiting: 2 nodes short; held by big (airflow:a/d/r/t/-1)"]
    assert list(relay.lines(waiting, 1.0)) == []
    placed = gang_view(attempts=(attempt(1, fabric="ib-1", emulated=True, resume=(
        Resume(mount="/ckpt", volume="sft", version=4),)),))
    assert list(relay.lines(placed, 2.0)) == [
        "attempt 1 on n1, fabric ib-1 (emulated), resuming /ckpt from sft@4", "gang g-abc is running"]
    lost = End(cause=Cause.LOST, text="the node vanished", rank=3, node="n1")
    again = gang_view(attempts=(attempt(1, end=lost), attempt(2)))
    said = list(relay.lines(again, 3.0))
    assert said[0].startswith("attempt 1 ended: rank 3 on n1: the node vanished")
    assert said[1:] == ["attempt 2 on n2"]


def test_progress_comes_at_a_bounded_rate() -> None:
    relay = Relay()
    reports = [Progress(step=i, total=99, metrics={"loss": 0.5}, at_ms=i) for i in (1, 2, 3)]
    views = [gang_view(progress=progress) for progress in reports]
    list(relay.lines(gang_view(), 0.0))
    assert list(relay.lines(views[0], 0.0)) == ["progress: step 1/99 loss=0.5"]
    assert list(relay.lines(views[1], PROGRESS_EVERY_S / 2)) == []
    assert list(relay.lines(views[2], PROGRESS_EVERY_S)) == ["progress: step 3/99 loss=0.5"]
    assert list(relay.lines(views[2], 9 * PROGRESS_EVERY_S)) == []
