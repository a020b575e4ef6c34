from __future__ import annotations

import json

import pytest
from cli_views import BOOM, GONE, HOUR_MS, RESUME, T0, attempt, gang, plain, ranks, used, waiting

from gangline.cli.output import fields, size_text, table
from gangline.cli.render_events import in_words
from gangline.cli.render_fleet import Check, check_list, node_list, server_status
from gangline.cli.render_follow import changes, log_line, status_line
from gangline.cli.render_gang import explanation, gang_details, gang_list, summary
from gangline.cli.render_passes import pass_details, pass_list
from gangline.cli.render_usage import usage_table
from gangline.cli.render_volume import volume_details, volume_list
from gangline.client.run import blame, failed, located
from gangline.model.gang import End, Event, Progress, RankView, VersionRef
from gangline.model.node import NodeView, RefusedPlan, ServerStatus, Strike
from gangline.model.passes import PassDetail, PassView
from gangline.model.spec import GangSpec
from gangline.model.states import Cause, GangState, NodeLifecycle
from gangline.model.volume import PointerView, VersionView, VolumeView

S = GangState
VERSION = VersionRef(volume="sft", version=3, step=200, metrics={"loss": 1.94321})


def test_tables_align_and_end_without_spaces() -> None:
    assert plain(table(("A", "LONG"), [("x", "y"), ("wide cell", "")])) == \
        "A          LONG\nx          y\nwide cell"
    assert plain(table(("表", "B"), [("a", "b")])) == "表  B\na   b"
    assert plain(fields([("a", "1"), ("long", "2"), ("none", "")])) == "a     1\nlong  2"
    assert [size_text(n) for n in (0, 1023, 2048, 3 << 30)] == ["0 B", "1023 B", "2.0 KiB", "3.0 GiB"]


def test_gangs_one_a_line() -> None:
    views = [gang(S.QUEUED, wait=waiting()), gang(S.RUNNING, progress=Progress(step=4, total=9)),
             gang(S.FAILED, end=BOOM), gang(S.SUCCEEDED, versions=(VERSION,)),
             gang(S.RUNNING, cancel_requested="me: enough")]
    assert plain(gang_list(views, T0 + 90_000)) == """\
GANG            NAME  STATE      ASKS FOR         TENANT   SUBMITTED  NOTE
g-aaaaaaaaaaaa  sft   queued     2 x H100:8 rdma  default  1m30s ago  needs 2 x H100:8; 1 of 2 is free
g-aaaaaaaaaaaa  sft   running    2 x H100:8 rdma  default  1m30s ago  step 4/9
g-aaaaaaaaaaaa  sft   failed     2 x H100:8 rdma  default  1m30s ago  \
rank 1 on n2 ended with exit code 1: RuntimeError: boom
g-aaaaaaaaaaaa  sft   succeeded  2 x H100:8 rdma  default  1m30s ago  sft@3
g-aaaaaaaaaaaa  sft   running    2 x H100:8 rdma  default  1m30s ago  stopping"""
    assert plain(gang_list([], T0)) == "no gangs"


def test_a_success_is_summed_up() -> None:
    done = ranks()[0].model_copy(update={"result": {"loss": 1.9}, "state": "exited", "exit_code": 0})
    view = gang(S.SUCCEEDED, ended_ms=T0 + 130_000, attempts=(attempt(1, emulated=True), attempt(2)),
                ranks=(done,), versions=(VERSION,))
    rows = [used("running", 2 * HOUR_MS, 14_200_000_000), used("lost", HOUR_MS // 2, 3_550_000_000)]
    assert plain(summary(view, rows)) == """\
sft (g-aaaaaaaaaaaa) succeeded in 2m10s, 2 attempts
  cost      2.5000 GPU hours, 17.7500 USD (running 14.2000, lost 3.5500)
  versions  sft@3 (step 200, loss 1.943)
  rdma      requested, not proved
  note      emulated: its nodes are pretended, so its times and costs are not those of the GPUs named
  result    {"loss": 1.9}"""


def test_a_failure_is_summed_up_with_its_last_lines() -> None:
    view = gang(S.FAILED, ended_ms=T0 + 5_000, attempts=(attempt(),), end=BOOM)
    assert plain(summary(view, [])) == """\
sft (g-aaaaaaaaaaaa) failed in 5.0s, 1 attempt
  why   rank 1 on n2 ended with exit code 1: RuntimeError: boom
  rdma  requested, not proved
  last lines of rank 1:
    Traceback:
    RuntimeError: boom"""


def test_a_gang_in_full(monkeypatch: pytest.MonkeyPatch) -> None:
    first = attempt(1, ended_ms=T0 + 50_000, end=GONE)
    view = gang(attempts=(first, attempt(2, started_ms=T0 + 60_000, resume=RESUME)), ranks=ranks(),
                progress=Progress(step=7, metrics={"loss": 2.0}), previous="g-000000000000")
    text = plain(gang_details(view, [], T0 + 90_000))
    assert "  runs       train:main(lr=0.001)" in text
    assert "  follows    g-000000000000" in text
    assert "  volumes    /ckpt = sft" in text
    assert """\
  ATTEMPT  NODES               TIME  RESUMED FROM  END
  1        n1, n2 (z1, ib-1)   20s                 node n2 was lost: its supervisor died [lost]
""".replace("ib-1)   ", "ib-1)  ").replace("NODES               ", "NODES              ") in text
    assert "  2        n1, n2 (z1, ib-1)  30s   sft@3" in text
    assert "  0           n1    0      running" in text


def test_a_waiting_gang_is_explained() -> None:
    assert plain(explanation(gang(S.QUEUED, wait=waiting()), T0 + 90_000)) == """\
sft (g-aaaaaaaaaaaa) queued since 30s
  needs 2 x H100:8; 1 of 2 is free
  short of  1 node
  earliest  in 1m00s, by the plan
  held by
    GANG            NAME  TENANT    SLOT
    g-bbbbbbbbbbbb  eval  research  daily/eval"""
    running = plain(explanation(gang(attempts=(attempt(),)), T0 + 90_000))
    assert "holds    n1, n2 (z1, ib-1)" in running


def test_every_change_is_said_once() -> None:
    views = [
        gang(S.QUEUED), gang(S.QUEUED, wait=waiting()), gang(S.QUEUED, wait=waiting()),
        gang(S.PLACED, attempts=(attempt(),)), gang(S.STARTING, attempts=(attempt(),)),
        gang(S.RUNNING, attempts=(attempt(),)), gang(S.RUNNING, attempts=(attempt(),), versions=(VERSION,)),
        gang(S.QUEUED, attempts=(attempt(ended_ms=T0, end=GONE),), versions=(VERSION,)),
        gang(S.RUNNING, attempts=(attempt(ended_ms=T0, end=GONE), attempt(2, resume=RESUME)),
             versions=(VERSION,)),
        gang(S.COMMITTING, attempts=(attempt(ended_ms=T0, end=GONE), attempt(2, resume=RESUME)),
             versions=(VERSION,), cancel_requested="me"),
    ]
    said = [line for old, new in zip([None, *views], views, strict=False) for line in changes(old, new)]
    assert said == [
        "queued", "waiting: needs 2 x H100:8; 1 of 2 is free", "placed on n1, n2 (z1, ib-1)",
        "every node is ready, starting the ranks", "running", "committed sft@3 (step 200, loss 1.943)",
        "attempt 1 ended: node n2 was lost: its supervisor died [lost]", "queued",
        "attempt 2 placed on n1, n2 (z1, ib-1), resuming from sft@3", "running", "stopping: me",
        "the ranks are done, committing"]


def test_a_terminal_is_not_told_twice_why_it_waits() -> None:
    assert changes(gang(S.QUEUED), gang(S.QUEUED, wait=waiting()), waits=False) == []
    assert changes(None, gang(S.QUEUED, wait=waiting()), waits=False) == ["queued"]


def test_the_line_in_place() -> None:
    assert status_line(gang(S.QUEUED, wait=waiting()), T0 + 90_000).plain == \
        "sft queued 1m30s  needs 2 x H100:8; 1 of 2 is free; expected in 1m00s"
    running = gang(progress=Progress(step=3, total=5, metrics={"loss": 0.5}))
    assert status_line(running, T0 + 90_000).plain == "sft running 30s  step 3/5, loss 0.5"


def test_log_lines_carry_equally_wide_tags() -> None:
    assert log_line(3, "hello", 16).plain == "[rank  3] hello"
    assert log_line(0, "\x1b[31mred\x1b[0m and plain", 2).plain == "[rank 0] red and plain"
    assert "\x1b" not in log_line(0, "\x1b[2J\x1b]0;title\x07x", 2).plain
    assert log_line(0, "10%\r 50%\r100%", 1).plain == "[rank 0] 100%"


@pytest.mark.parametrize(("kind", "data", "words"), [
    ("gang.submitted", {}, "submitted"),
    ("gang.placed", {"attempt": 2, "nodes": ["n1", "n2"]}, "attempt 2 placed on n1, n2"),
    ("rank.exited", {"rank": 1, "node": "n1", "cause": "success"}, "rank 1 on n1 is done"),
    ("rank.exited", {"rank": 1, "node": "n1", "cause": "user", "exit_code": 3},
     "rank 1 on n1 failed: exit code 3"),
    ("rank.exited", {"rank": 1, "node": "n1", "cause": "lost", "signal": "SIGKILL"},
     "rank 1 on n1 was ended by SIGKILL"),
    ("attempt.ended", {"attempt": 1, "cause": "user", "rank": 0, "node": "n1", "text": "rank 0 ended badly"},
     "attempt 1 ended (user): rank 0 on n1 ended badly"),
    ("gang.queued", {"after": 1, "kept": ["n1"]}, "queued for attempt 2, keeping n1"),
    ("gang.failed", {"cause": "user", "text": "boom"}, "failed: boom"),
    ("gang.succeeded", {"cause": "success", "text": "done"}, "succeeded"),
    ("version.published", {"volume": "v", "version": 2, "step": 9}, "committed v@2 at step 9"),
    ("lease.closed", {"lease": 3}, ""),
    ("something.new", {"a": 1, "b": None}, "something new: a 1"),
])
def test_events_in_words(kind: str, data: dict[str, object], words: str) -> None:
    assert in_words(Event(seq=1, at_ms=T0, kind=kind, data=data)) == words


def test_a_failure_is_read_at_one_glance() -> None:
    error = failed(gang(S.FAILED, end=BOOM))
    assert str(error) == """\
sft (g-aaaaaaaaaaaa) failed: rank 1 on n2 ended with exit code 1: RuntimeError: boom
last lines:
  Traceback:
  RuntimeError: boom"""
    assert error.view["state"] == "failed"
    assert blame(None) == "no reason was recorded"
    assert located("out of memory", 3, "n1") == "rank 3 on n1: out of memory"
    assert located("the gang timed out", None, None) == "the gang timed out"


def test_nodes_and_servers() -> None:
    def node(name: str, **more: object) -> NodeView:
        return NodeView.parse({"node": name, "pool": "p", "engine": "local", "gpu_type": "H100",
                               "gpu_count": 2, "zone": "z", "fabric": "f", "lifecycle": "ready",
                               "free_gpus": [0, 1], **more})

    nodes = [node("n1", emulated=True, price_nano_per_gpu_hour=2_500_000_000),
             node("n2", drain={"owner": "ann", "reason": "new NIC"}, free_gpus=[], gangs=["g-1"]),
             node("n3", lifecycle="booting"), node("n4", healthy=False)]
    assert plain(node_list(nodes)) == """\
NODE  POOL  GPUS             STATE      FREE  GANGS  PLACE  PER GPU HOUR  DRAINED FOR
n1    p     H100:2 emulated  ready      2/2          z/f    2.50 USD
n2    p     H100:2           drained    0/2   g-1    z/f                  new NIC (ann)
n3    p     H100:2           booting    2/2          z/f
n4    p     H100:2           unhealthy  2/2          z/f"""
    assert "PER GPU HOUR" not in plain(node_list(nodes[2:]))
    status = ServerStatus(version="1.0", pid=7, url="unix:/s", started_ms=T0, nodes=tuple(nodes))
    text = plain(server_status(status, T0 + 5_000))
    assert "1 booting, 1 drained, 1 ready, 1 unhealthy (1 emulated)" in text
    assert "this machine as one node (no fleet file)" in text
    assert "no plan" not in text
    refused = status.model_copy(update={"refused_plan": RefusedPlan(number=9, since_ms=T0, faults=("n1: twice",))})
    assert plain(server_status(refused, T0 + 5_000)).endswith("""
  no plan has been accepted for 5.0s: nothing starts, what runs goes on
    n1: twice
    fix: this is a bug of Gangline; report it with what gangline plan --show 9 --json says""")


def test_a_refused_plan() -> None:
    summary = PassView(id=9, at_ms=T0, version=1, duration_us=1, trigger="change", policy="fifo", placed=1,
                       faults=("n1: twice",))
    assert "refused, 1 fault" in plain(pass_list([summary]))
    assert "refused, nothing of it was done:\n    n1: twice" in plain(
        pass_details(PassDetail(summary=summary, plan={}), ["g starts on n1"]))


def test_checks() -> None:
    assert plain(check_list([Check("ok", "fine"), Check("fail", "bad", "do this")])) == \
        "ok    fine\nfail  bad\n      fix: do this"


def test_volumes() -> None:
    def version(number: int, **more: object) -> VersionView:
        return VersionView.parse({"volume": "sft", "version": number, "directory": f"d{number}",
                                  "manifest_sha256": "a" * 64, "bytes": 2048, "files": 2, "created_ms": T0,
                                  "gang": "g-1", "slot": "s", **more})

    versions = (version(2, damaged="file lost"), version(1, step=10))
    view = VolumeView(volume="sft", root="/v", versions=versions,
                      names=(PointerView(volume="sft", name="best", version=1, revision=1),))
    assert plain(volume_list([view], T0 + 60_000)) == """\
VOLUME  VERSIONS  NEWEST  COMMITTED  SIZE     NAMES
sft     2         sft@2   1m00s ago  4.0 KiB  best=1"""
    text = plain(volume_details(view, T0 + 60_000))
    newest, older = text.splitlines()[2:]
    assert " ".join(newest.split()) == "sft@2 2.0 KiB 2 1m00s ago g-1 s damaged: file lost"
    assert " ".join(older.split()) == "sft@1 10 2.0 KiB 2 1m00s ago g-1 s best"
    assert plain(volume_list([], T0)) == "no volumes"


def test_usage_sums_exactly() -> None:
    rows = [used("running", HOUR_MS, 333_333_333), used("lost", 1, 1)]
    assert plain(usage_table(rows, ["cause"])) == """\
CAUSE    GPU HOURS  NODE HOURS  COST
running  1.0000     0.1250      0.3333 USD
lost     0.0000     0.0000      0.0000 USD
total    1.0000     0.1250      0.3333 USD"""
    assert plain(usage_table([], ["gang"])) == "nothing was used"


def test_results_too_long_for_a_line_are_cut() -> None:
    rank = RankView(rank=0, node="n1", local_rank=0, state="exited", exit_code=0, result="x" * 1000)
    text = plain(summary(gang(S.SUCCEEDED, ranks=(rank,)), []))
    assert "… (1002 characters; --json shows all)" in text
    assert json.dumps("x" * 1000) not in text


ELASTIC = GangSpec.parse({"name": "sft", "size": "2..4", "gpu": "H100:8", "function": "train:main"})
ROOM = End(cause=Cause.PREEMPTED, text="made room for urgent (tenant research, slot daily/urgent)")


def test_an_elastic_gang_says_how_many_of_its_nodes_it_has() -> None:
    waiting_one = gang(GangState.QUEUED, spec=ELASTIC)
    assert "2..4 x H100:8" in plain(gang_list([waiting_one], T0))
    running = gang(spec=ELASTIC, attempts=(attempt(),))
    for text in (plain(gang_list([running], T0)), plain(gang_details(running, (), T0))):
        assert "2 of 2..4 x H100:8" in text
    done = gang(GangState.SUCCEEDED, spec=ELASTIC, attempts=(attempt(ended_ms=T0 + HOUR_MS),), ended_ms=T0 + HOUR_MS)
    assert " of 2..4" not in plain(gang_list([done], T0))
    assert changes(None, running)[0] == "placed on n1, n2 (z1, ib-1), 2 of 2..4 nodes"
    assert "2..4" not in changes(None, gang(attempts=(attempt(),)))[0]


def test_a_gang_that_makes_room_says_for_whom_while_it_saves() -> None:
    before, after = gang(attempts=(attempt(),)), gang(attempts=(attempt(end=ROOM),))
    said = f"stopping: {ROOM.text}"
    assert said in plain(gang_list([after], T0))
    assert said in plain(gang_details(after, (), T0))
    assert said in plain(explanation(after, T0))
    assert changes(before, after) == [said]
    assert changes(after, after) == []
    over = gang(GangState.QUEUED, attempts=(attempt(end=ROOM, ended_ms=T0 + HOUR_MS),))
    assert f"attempt 1 ended: {ROOM.text} [preempted]" in changes(after, over)
    assert "stopping" not in plain(gang_list([over], T0))


def test_preemption_and_resizing_in_words() -> None:
    def said(kind: str, **data: object) -> str:
        return in_words(Event(seq=1, at_ms=T0, kind=kind, gang="g", data=data))

    assert said("preempt.requested", text=ROOM.text) == f"asked to stop and wait again: {ROOM.text}"
    assert said("resize.requested", text="goes on with 4 nodes instead of 2") == (
        "asked to stop and start again: goes on with 4 nodes instead of 2")
    left = said("rank.exited", rank=3, node="n1", cause="cancelled", exit_code=0)
    assert left == "rank 3 on n1 stopped when asked to"
    assert said("node.suspect", node="n1", gangs=["g-1", "g-2", "g-3"], within_h=24) == (
        "node n1 was blamed for the ends of g-1, g-2, g-3 within 24 h; nobody has drained it")


def test_a_node_that_several_gangs_blame_is_shown() -> None:
    strikes = tuple(Strike(gang=f"g-{n}", attempt=1, cause=Cause.LOST, at_ms=T0 + n) for n in range(3))
    node = NodeView(node="n1", pool="p", engine="local", gpu_type="H100", gpu_count=8, zone="z",
                    lifecycle=NodeLifecycle.READY)
    assert "BLAMED" not in plain(node_list([node, node.model_copy(update={"strikes": strikes[:2]})]))
    shown = plain(node_list([node, node.model_copy(update={"strikes": strikes})]))
    assert "BLAMED BY" in shown
    assert "3 gangs, last " in shown
