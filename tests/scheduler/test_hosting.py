"""A pool of another system under the real loop and store, with an engine in memory, one step at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gangline.engines.base import JobStatus, NodeStatus, SeenJob, SeenNode, job_name
from gangline.engines.fake import FakeEngine
from gangline.model.errors import Conflict, NotFound, Rejected, Unavailable
from gangline.model.fleet import Fleet
from gangline.model.gang import GangView, Submission
from gangline.model.node import NodeView
from gangline.model.orders import Empty, Hello, OrderPhase, RankExit, Ready, Report, Reports, Started
from gangline.model.spec import GangSpec
from gangline.model.states import Cause, GangState
from gangline.scheduler.crew import Crew
from gangline.scheduler.loop import Loop
from gangline.service import claims, submit, views
from gangline.service import fleet as fleet_service
from gangline.service.claims import Claim
from gangline.service.jobs import KILLS_MS, LEAVES_MS, PATIENCE_MS
from gangline.store import Store

FLEET_ID = "00c0ffee"
POOL = {"name": "train", "engine": "slurm", "gpu": "H100:8", "zone": "z", "fabric": "ib",
        "slurm": {"partition": "train"}}
FLEET = Fleet.parse({"pools": [POOL]})


class Inline(Executor):
    """Does at once what it is given."""

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        done: Future[Any] = Future()
        done.set_result(function(*args, **kwargs))
        return done


def seen(name: str, **more: Any) -> SeenNode:
    return SeenNode(**{"name": name, "pool": "train", "status": NodeStatus.READY, "address": f"10.0.0.{name[1:]}",
                       "gpu_type": "h100", "gpu_count": 8, "path": ("spine", "leaf"), **more})


class Site:
    """A server's loop and store over one fake cluster, and the supervisors of its jobs by hand."""

    def __init__(self, root: Path, fleet: Fleet = FLEET, nodes: int = 4) -> None:
        self.now_ms = 1_000_000
        self.engine = FakeEngine({f"n{i + 1}": seen(f"n{i + 1}") for i in range(nodes)})
        self.store = Store.open("sqlite://")
        self.root, self.fleet, self.made = root, fleet, 0
        fleet_service.sync_fleet(self.store, fleet, now_ms=self.now_ms)
        self.restart()
        self.step()

    def restart(self) -> None:
        """Another server on the same store: it remembers nothing."""
        self.store.on_commit.clear()
        self.store.on_move.clear()
        self.store.seen_ms.clear()
        pools = tuple(self.fleet.pools)
        self.crew = Crew(engine=self.engine, pools=pools, token_of=lambda gang, attempt: f"{gang}/{attempt}",
                         now_ms=lambda: self.now_ms, workers=Inline())
        self.loop = Loop(store=self.store, fleet=self.fleet, engines={}, volumes_root=self.root,
                         now_ms=lambda: self.now_ms, fleet_id=FLEET_ID, make_crews=lambda fleet: (self.crew,))

    def step(self, seconds: float = 0.01) -> None:
        """The clock moves on, the crew looks, and two passes run: what the first asks for, the second has seen."""
        for _ in range(2):
            self.now_ms += round(seconds * 1000)
            self.crew._not_before_s.clear()
            self.crew.look()
            self.loop.pass_once()

    def submit(self, slot: str = "slot", **fields: Any) -> str:
        self.made += 1
        spec = GangSpec.parse({"name": "job", "size": 2, "gpu": "H100:8", "ranks_per_node": 1, "command": ["true"],
                               **fields})
        letters = "abcdefghijklmnopqrstuvwxyz"
        ensured = submit.ensure_many(
            self.store, [Submission(slot=slot, spec=spec)], now_ms=self.now_ms,
            new_id=lambda: f"g-aaaaaaaaaa{letters[self.made // 26]}{letters[self.made % 26]}",
            new_token=lambda: f"token-{self.made}")
        return ensured[0].gang

    def view(self, gang: str) -> GangView:
        return views.observe(self.store, gang, now_ms=self.now_ms)

    def node(self, name: str) -> NodeView:
        return next(node for node in views.nodes(self.store) if node.node == name)

    def nodes_of(self, gang: str) -> list[str]:
        return [share.node for share in self.view(gang).attempts[-1].nodes]

    def hello(self, gang: str, node: str, attempt: int = 1, incarnation: str = "i") -> None:
        greeting = Hello(node=node, incarnation=f"{incarnation}-{node}", pid=1, start_time=1.0, boot_id="b",
                         address=f"10.1.0.{node[1:]}", gang=gang, attempt=attempt)
        claims.hello(self.store, greeting, Claim(gang, attempt), self.fleet, now_ms=self.now_ms)

    def orders(self, gang: str, node: str, attempt: int = 1) -> list[tuple[OrderPhase, bool]]:
        found = claims.orders(self.store, node, f"i-{node}", Claim(gang, attempt), now_ms=self.now_ms,
                              volumes_root=self.root)
        return [(order.phase, order.task is not None) for order in found.orders]

    def report(self, gang: str, node: str, make: Callable[..., Report], attempt: int = 1, **fields: Any) -> int:
        with self.store.transaction() as tx:
            generation = tx.gangs.get(gang).generation
        report = make(gang=gang, attempt=attempt, generation=generation, **fields)
        return claims.reports(self.store, node, Reports(incarnation=f"i-{node}", reports=(report,)),
                              Claim(gang, attempt), now_ms=self.now_ms)

    def run(self, gang: str, attempt: int = 1) -> None:
        """Its supervisors come, and all ranks start."""
        for node in self.nodes_of(gang):
            self.hello(gang, node, attempt)
        for make in (Ready, Started):
            for node in self.nodes_of(gang):
                self.report(gang, node, make, attempt)
        assert self.view(gang).state is GangState.RUNNING

    def finish(self, gang: str, attempt: int = 1) -> None:
        for rank, node in enumerate(self.nodes_of(gang)):
            self.report(gang, node, RankExit, attempt, rank=rank, exit_code=0, cause=Cause.SUCCESS)
        for node in self.nodes_of(gang):
            self.report(gang, node, Empty, attempt)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path)
    yield made
    made.store.close()


def job(gang: str, attempt: int = 1) -> str:
    return job_name(FLEET_ID, gang, attempt)


def test_nodes_are_those_the_engine_has(site: Site) -> None:
    assert {node.node for node in views.nodes(site.store)} == {"n1", "n2", "n3", "n4"}
    first = site.node("n1")
    assert (first.gpu_type, first.gpu_count, first.zone, first.fabric) == ("H100", 8, "z", "ib")
    assert (first.path, first.address, first.engine) == (("spine", "leaf"), "10.0.0.1", "slurm")
    del site.engine.nodes["n4"]
    site.engine.nodes["n5"] = seen("n5")
    site.step()
    assert {node.node for node in site.loop.picture.nodes() and views.nodes(site.store)
            if node.lifecycle != "gone"} == {"n1", "n2", "n3", "n5"}


def test_a_gang_is_one_job_and_runs_where_it_was_planned(site: Site) -> None:
    gang = site.submit()
    site.step()
    assert site.engine.launches == [job(gang)]
    launched = site.engine.jobs[job(gang)]
    assert list(launched.nodes) == site.nodes_of(gang)
    assert site.engine.tokens[job(gang)] == f"{gang}/1"
    first, second = site.nodes_of(gang)
    site.hello(gang, first)
    assert site.orders(gang, first) == [(OrderPhase.ASSEMBLE, False)]  # where the other is, is not known yet
    site.hello(gang, second)
    assert site.orders(gang, first) == [(OrderPhase.ASSEMBLE, True)]
    assert [share.address for share in site.view(gang).attempts[0].nodes] == [
        f"10.1.0.{name[1:]}" for name in (first, second)]
    site.run(gang)
    site.finish(gang)
    assert site.view(gang).state is GangState.SUCCEEDED
    assert site.orders(gang, first) == []  # so the supervisor leaves
    site.engine.end(job(gang), "COMPLETED")
    site.step()
    assert site.engine.launches == [job(gang)]


def test_a_launch_that_nobody_noted_is_found_again(site: Site) -> None:
    def crash() -> None:
        raise SystemExit("killed")

    gang = site.submit()
    site.engine.after = crash
    with pytest.raises(SystemExit):
        site.step()
    site.engine.after = lambda: None
    site.restart()
    site.step()
    assert site.engine.launches == [job(gang)]  # one job, though it was asked for twice
    site.run(gang)


def test_an_engine_that_does_not_answer_is_asked_again(site: Site) -> None:
    gang = site.submit()
    site.crew.look()
    site.engine.fault = Unavailable("no controller")
    site.loop.pass_once()
    site.loop.pass_once()
    assert site.engine.launches == []
    site.engine.fault = Unavailable("no controller")
    site.crew.look()
    assert site.crew.trouble == "no controller"
    site.step()
    assert site.engine.launches == [job(gang)]
    assert site.crew.trouble == ""


def test_what_the_engine_refuses_ends_the_attempt_with_its_words(site: Site) -> None:
    gang = site.submit()
    site.crew.look()
    for _ in range(40):
        site.now_ms += 10
        site.crew.look()
        site.engine.refusal = "Invalid account"
        site.crew._not_before_s.clear()
        site.loop.pass_once()
    view = site.view(gang)
    assert view.state is GangState.FAILED
    assert view.end is not None
    assert (view.end.cause, view.end.text) == (Cause.LAUNCH, "Invalid account")
    assert site.node("n1").free_gpus == tuple(range(8))


def test_a_store_that_fails_once_makes_no_job_a_stray(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    gang = site.submit()
    site.step()
    site.run(gang)
    site.restart()
    site.crew.look()
    with monkeypatch.context() as broken:
        broken.setattr("gangline.scheduler.hosting.jobs.cases", lambda store, gangs=None: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            site.loop.pass_once()
    site.step()
    site.step(LEAVES_MS / 1000)
    assert site.engine.jobs[job(gang)].status is JobStatus.RUNNING
    site.finish(gang)
    assert site.view(gang).state is GangState.SUCCEEDED


def test_a_refused_job_that_is_there_after_all_is_stopped_before_its_nodes_are_given_back(site: Site) -> None:
    gang = site.submit()
    site.crew.look()
    site.engine.jobs[job(gang)] = SeenJob(name=job(gang), id="9", status=JobStatus.RUNNING)  # nobody noted it
    site.engine.refusal = "quota exceeded"
    site.loop.pass_once()
    site.loop.pass_once()
    assert site.view(gang).state is not GangState.QUEUED
    assert site.node(site.nodes_of(gang)[0]).gangs == (gang,)
    site.engine.refusal = ""
    site.step()
    assert site.engine.jobs[job(gang)].status is JobStatus.ENDED
    site.step()
    assert job(gang, 2) in site.engine.launches


def test_a_pool_with_gangs_cannot_leave_the_file(site: Site) -> None:
    gang = site.submit()
    site.step()
    site.run(gang)
    other = Fleet.parse({"pools": [{**POOL, "name": "renamed"}]})
    with pytest.raises(Conflict, match="runs in pool train"):
        site.loop.adopt(other)
    site.step(LEAVES_MS / 1000)
    assert site.engine.jobs[job(gang)].status is JobStatus.RUNNING


def test_a_node_that_lost_gpus_says_so_and_takes_no_work(site: Site) -> None:
    site.engine.set_node("n1", gpu_count=0)
    site.step()
    assert not site.node("n1").healthy
    site.engine.set_node("n1", gpu_count=8)
    site.step()
    assert site.node("n1").healthy


def test_a_job_that_ends_early_says_what_its_supervisors_said(site: Site) -> None:
    gang = site.submit()
    site.step()
    site.engine.end(job(gang), "FAILED NonZeroExitCode")
    site.step()
    site.step()
    end = site.view(gang).attempts[0].end
    assert end is not None
    assert end.cause is Cause.LAUNCH
    assert "FAILED NonZeroExitCode" in end.text
    assert end.last_lines == (f"{job(gang)} was started",)
    assert site.engine.launches == [job(gang), job(gang, 2)]


def test_a_job_somebody_cancels_is_a_lost_attempt_and_nobody_is_blamed(site: Site) -> None:
    gang = site.submit()
    site.step()
    site.run(gang)
    site.engine.end(job(gang), "CANCELLED by 1000")
    site.step()
    site.step()
    first, second = site.view(gang).attempts
    assert first.end is not None
    assert (first.end.cause, first.end.node) == (Cause.LOST, None)
    assert "CANCELLED by 1000" in first.end.text
    assert [share.node for share in second.nodes] == [share.node for share in first.nodes]


def test_a_node_that_dies_is_replaced_once_its_supervisor_must_be_dead(site: Site) -> None:
    gang = site.submit()
    site.step()
    site.run(gang)
    dead, alive = site.nodes_of(gang)
    site.engine.set_node(dead, status=NodeStatus.DOWN, text="not responding")
    site.engine.end(job(gang), "NODE_FAIL")
    site.step()
    assert len(site.view(gang).attempts) == 1  # its ranks may live until their lease is over
    assert not site.node(dead).healthy
    site.step((FLEET.pools[0].lease * 1000 + KILLS_MS) / 2000 + 1)
    site.step()
    attempt = site.view(gang).attempts[-1]
    assert attempt.number == 2
    assert dead not in [share.node for share in attempt.nodes]
    assert alive in [share.node for share in attempt.nodes]
    end = site.view(gang).attempts[0].end
    assert end is not None
    assert (end.cause, end.node) == (Cause.LOST, dead)


def test_a_job_the_engine_has_forgotten_ends_its_attempt_but_an_old_look_does_not(site: Site) -> None:
    gang = site.submit()
    site.crew.look()  # begins before the launch: that it shows no job means nothing
    site.loop.pass_once()
    site.loop.pass_once()
    assert len(site.view(gang).attempts) == 1
    site.step()
    site.run(gang)
    site.engine.jobs.clear()
    site.step()
    end = site.view(gang).attempts[0].end
    assert end is not None
    assert end.cause is Cause.LOST


def test_cancel_before_any_supervisor_came_stops_the_job_first(site: Site) -> None:
    site.engine.waits = True
    gang = site.submit()
    site.step()
    assert site.engine.jobs[job(gang)].status is JobStatus.WAITING
    submit.cancel_some(site.store, [gang], "not needed", now_ms=site.now_ms)
    site.step()
    site.step()
    assert site.engine.jobs[job(gang)].status is JobStatus.ENDED
    assert site.view(gang).state is GangState.CANCELLED


def test_supervisors_that_do_not_end_their_ranks_are_stopped_by_the_engine(site: Site) -> None:
    gang = site.submit(grace="1s")
    site.step()
    site.run(gang)
    submit.cancel_some(site.store, [gang], "not needed", now_ms=site.now_ms)
    site.step()
    assert site.engine.jobs[job(gang)].status is JobStatus.RUNNING  # they have their grace
    site.step(PATIENCE_MS / 1000 + 2)
    site.step()
    assert site.engine.jobs[job(gang)].status is JobStatus.ENDED
    assert site.view(gang).state is GangState.CANCELLED


def test_jobs_without_an_attempt_are_ended_but_those_of_others_are_not(site: Site) -> None:
    stray, theirs = job_name(FLEET_ID, "g-zzzzzzzzzzzz", 1), job_name("0ddba115", "g-zzzzzzzzzzzz", 1)
    for name in (stray, theirs, "their-own"):
        site.engine.jobs[name] = SeenJob(name=name, id="7", status=JobStatus.RUNNING)
    site.step()
    assert site.engine.jobs[stray].status is JobStatus.RUNNING  # a supervisor may be leaving
    site.step(LEAVES_MS / 1000)
    assert site.engine.jobs[stray].status is JobStatus.ENDED
    assert site.engine.jobs[theirs].status is site.engine.jobs["their-own"].status is JobStatus.RUNNING


def test_what_others_hold_is_busy_and_not_broken(site: Site) -> None:
    for name in ("n1", "n2", "n3"):
        site.engine.set_node(name, foreign_gpus=3, foreign=("job 7 of bob",))
    site.step()
    single, wide = site.submit("b", size=1, gpu="H100:5"), site.submit("c", size=1, gpu="H100:6")
    site.step()
    assert site.nodes_of(single) != ["n4"]
    assert site.nodes_of(wide) == ["n4"]  # the only whole one
    assert site.node("n1").healthy
    pair = site.submit("a")
    site.step()
    assert site.view(pair).state is GangState.QUEUED
    for name in {"n1", "n2", "n3"} - {*site.nodes_of(single)}:
        site.engine.set_node(name, foreign_gpus=0, foreign=())
    site.step()
    assert len(site.nodes_of(pair)) == 2


def test_drains_of_the_engine_come_and_go_and_those_of_persons_stay(site: Site) -> None:
    site.engine.set_node("n1", status=NodeStatus.DRAINED, text="bad DIMM")
    site.engine.set_node("n2", status=NodeStatus.DRAINED, text="gangline 00c0ffee: ours")
    site.step()
    drain = site.node("n1").drain
    assert drain is not None
    assert (drain.owner, drain.reason) == ("slurm", "bad DIMM")
    assert site.node("n2").drain is None
    site.engine.set_node("n1", status=NodeStatus.READY, text="")
    site.step()
    assert site.node("n1").drain is None


def test_a_gang_keeps_to_one_pool(tmp_path: Path) -> None:
    other = {**POOL, "name": "lab", "slurm": {"partition": "lab"}}
    site = Site(tmp_path, Fleet.parse({"pools": [POOL, other]}), nodes=1)
    site.engine.nodes["n2"] = seen("n2", pool="lab")
    site.step()
    gang = site.submit()
    site.step()
    assert site.view(gang).state is GangState.QUEUED
    site.engine.nodes["n3"] = seen("n3", pool="lab")
    site.step()
    assert site.nodes_of(gang) == ["n2", "n3"]
    site.store.close()


def test_a_claim_is_for_its_attempt_alone(site: Site) -> None:
    gang, other = site.submit("a"), site.submit("b")
    site.step()
    first = site.nodes_of(gang)[0]
    site.hello(gang, first)
    with pytest.raises(Conflict, match="another supervisor"):
        site.hello(gang, first, incarnation="again")
    with pytest.raises(NotFound, match="no part"):
        site.hello(gang, site.nodes_of(other)[0])
    with pytest.raises(Rejected, match="token is for attempt 1"):
        site.report(other, first, lambda **about: Ready(**{**about, "gang": gang}))
    submit.cancel_some(site.store, [gang], "not needed", now_ms=site.now_ms)
    site.step()
    site.engine.end(job(gang), "over")
    site.step()
    with pytest.raises(Conflict, match="over"):
        site.hello(gang, first)


def test_sleeping_nodes_are_woken_for_demand(tmp_path: Path) -> None:
    site = Site(tmp_path, Fleet.parse({"pools": [{**POOL, "max": 4, "boot": "60s"}]}))
    for name in ("n3", "n4"):
        site.engine.set_node(name, status=NodeStatus.ASLEEP)
    site.step()
    held, gang = site.submit("a"), site.submit("b")
    site.step()
    site.step()
    assert site.engine.nodes["n3"].status is site.engine.nodes["n4"].status is NodeStatus.READY
    assert sorted(site.nodes_of(held) + site.nodes_of(gang)) == ["n1", "n2", "n3", "n4"]
    site.store.close()


def test_a_fleet_file_that_changes_the_pool_keeps_what_runs(site: Site) -> None:
    gang = site.submit()
    site.step()
    site.run(gang)
    site.fleet = Fleet.parse({"pools": [{**POOL, "price_per_gpu_hour": "3"}]})
    old = site.crew
    site.crew = replace(old, pools=site.fleet.pools, workers=Inline())
    site.loop.adopt(site.fleet)
    site.step()
    site.step()
    assert site.view(gang).state is GangState.RUNNING
    assert site.node("n1").price_nano_per_gpu_hour == 3_000_000_000
    assert site.engine.launches == [job(gang)]


def test_a_job_that_waits_for_a_node_others_took_is_given_up(site: Site) -> None:
    site.engine.waits = True
    gang = site.submit(size=4)
    site.step()
    site.engine.set_node("n2", status=NodeStatus.DRAINED, text="bad DIMM")
    site.step()
    site.engine.waits = False
    site.step()
    end = site.view(gang).attempts[0].end
    assert end is not None
    assert (end.cause, end.text) == (Cause.LAUNCH, "n2 is drained (bad DIMM)")
    assert site.view(gang).state is GangState.QUEUED
    assert site.node("n1").gangs == ()  # it keeps none of its nodes
    site.engine.set_node("n2", status=NodeStatus.READY, text="")
    site.engine.set_node("n3", foreign_gpus=1, foreign=("job 7 of bob",))
    site.step()
    assert site.view(gang).state is GangState.QUEUED
    site.engine.set_node("n3", foreign_gpus=0, foreign=())
    site.step()
    site.run(gang, 2)
