"""Views of gangs as Dagster metadata, without a server."""

from dagster_gangline.follow import describe, failure
from dagster_gangline.outcome import GangOutcome, usage_table
from gangline.model.gang import AttemptView, End, GangView, NodeShare, UsageRow, VersionRef, Wait
from gangline.model.spec import GangSpec
from gangline.model.states import Cause, GangState


def view(state: GangState = GangState.SUCCEEDED, **changes: object) -> GangView:
    node = NodeShare(node="n_1", address="127.0.0.2", gpus=(0, 1), gpu_type="H100")
    known = {
        "gang": "g-aaaaaaaaaaaa", "name": "sft", "slot": "s", "epoch": 0, "tenant": "default", "state": state,
        "spec": GangSpec(name="sft", command=("true",)), "digest": "d", "submitted_ms": 1000, "changed_ms": 5000,
        "attempts": (AttemptView(number=1, nodes=(node,), started_ms=2000, fabric="ib|1", emulated=True),),
        "versions": (VersionRef(volume="v", version=1, step=10), VersionRef(volume="v", version=2, step=20)),
        "cost_nano": 1_500_000_000,
    }
    return GangView.model_validate(known | changes)


def test_the_newest_version_is_the_data_version() -> None:
    result = GangOutcome(view()).materialize_result({"more": 1})
    assert result.data_version is not None
    assert result.data_version.value == "v@2"
    assert result.metadata is not None
    assert result.metadata["checkpoint"] == "v@2"
    assert result.metadata["cost"] == "1.5000 USD"
    assert result.metadata["more"] == 1


def test_names_cannot_break_out_of_the_tables() -> None:
    placement = GangOutcome(view()).metadata()["placement"].value
    assert "ib\\|1" in placement
    assert "n\\_1" in placement
    assert "emulated" in placement
    row = UsageRow(by={"cause": "run|ning"}, gpu_ms=1, node_ms=61_000, cost_nano=2_000_000, currency="USD")
    assert "| run\\|ning | 1m01s | 0.0020 USD |" in usage_table((row,))


def test_a_wait_says_what_the_plan_says() -> None:
    waiting = view(GangState.QUEUED, attempts=(), wait=Wait(code="busy", text="needs 4 x H100:8; held by other"))
    assert describe(waiting) == "sft (g-aaaaaaaaaaaa) waits: needs 4 x H100:8; held by other"


def test_a_failure_carries_its_evidence() -> None:
    end = End(cause=Cause.OOM, text="the kernel killed it", rank=3, node="n_1", last_lines=("a", "b"))
    failed = failure(view(GangState.FAILED, end=end, ended_ms=5000))
    assert failed.description == "sft (g-aaaaaaaaaaaa) failed after 4.0s: the kernel killed it"
    assert failed.metadata["cause"].value == "oom"
    assert failed.metadata["rank"].value == 3
    assert failed.metadata["last lines"].value == "a\nb"
