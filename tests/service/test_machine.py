"""Anything in any order: store, greedy planner and fake supervisors against what must always hold."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from service_world import World, check_invariants, fresh_store, greedy, submission

from gangline.model.errors import Conflict, Superseded
from gangline.model.gang import GangView
from gangline.model.orders import Empty, Order, OrderPhase, RankExit, Ready, Refused, Report, Started
from gangline.model.states import Cause, GangState
from gangline.plan import planner
from gangline.plan.check import check
from gangline.plan.policy import Policy
from gangline.service import fleet, loop, nodes, saves, submit, usage, views

SLOTS = st.sampled_from(["dag/a", "dag/b", "cli/c"])
NODES = st.sampled_from(["p-1", "p-2", "p-3", "p-4"])
LATE = st.sampled_from(["p-5", "p-6"])  # nodes that come when asked for, late or never
SIZES = st.sampled_from([1, 2, 3, "1..3", "2..4"])
EAGER = Policy(min_runtime_ms=0, cool_down_ms=0, resize_every_ms=0)
FAILURES = st.sampled_from([Cause.USER, Cause.OOM, Cause.HARDWARE, Cause.LOST, Cause.LAUNCH])


class Machine(RuleBasedStateMachine):
    """Every rule is something a client, a supervisor, an operator or time may do at any moment."""

    @initialize()
    def begin(self) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.world = World(fresh_store(), self.folder)
        self.epochs: dict[str, int] = {}
        self.finals: dict[str, GangState] = {}
        self.acknowledged: set[str] = set()
        self.sent: list[tuple[str, Report]] = []

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.converge()
            shutil.rmtree(self.folder)

    # clients

    @rule(slot=SLOTS, size=SIZES, retries=st.integers(0, 2), priority=st.integers(-1, 1))
    def submit(self, slot: str, size: int | str, retries: int, priority: int = 0) -> None:
        asked = submission(slot, self.epochs.get(slot, 0), size=size, ranks_per_node=1, timeout="300s",
                           volumes={"/ckpt": "vol"}, retries={"user": retries, "lost": 2},
                           priority=priority)
        try:
            ensured = self.world.ensure(asked)[0]
        except Conflict:
            return
        again = self.world.ensure(asked)[0]
        assert (again.gang, again.created) == (ensured.gang, False)
        self.acknowledged.add(ensured.gang)

    @rule(slot=SLOTS)
    def start_anew(self, slot: str) -> None:
        before = self.epochs.get(slot, 0)
        self.epochs[slot] = before + 1
        self.submit(slot, 2, 1)
        for epoch in range(before + 1):
            try:
                self.world.ensure(submission(slot, epoch))
            except Conflict:
                continue
            raise AssertionError("an older epoch was let in")

    @rule(data=st.data())
    @precondition(lambda self: self.acknowledged)
    def act_for_a_gang(self, data: st.DataObject) -> None:
        gang = data.draw(st.sampled_from(sorted(self.acknowledged)))
        match data.draw(st.sampled_from(["watch", "person", "owner", "stranger"])):
            case "watch":
                try:
                    submit.watch(self.world.store, gang, self.world.tokens[gang], 0, now_ms=self.world.now_ms)
                except Superseded:
                    assert self.world.view(gang).epoch < self.epochs.get(self.world.view(gang).slot, 0)
            case "person":
                submit.cancel(self.world.store, gang, None, "enough", now_ms=self.world.now_ms)
            case "owner":
                submit.cancel(self.world.store, gang, self.world.tokens[gang], "kill",
                              now_ms=self.world.now_ms)
            case _:
                before = self.world.view(gang)
                assert submit.cancel(self.world.store, gang, "x", "no", now_ms=self.world.now_ms) == before

    # the loop

    @rule()
    def plan(self) -> None:
        self.world.plan()

    @rule()
    def a_pass_as_the_server_makes_it(self) -> None:
        now_ms = self.world.now_ms
        seen = loop.snapshot(self.world.store, self.world.fleet, now_ms=now_ms)
        decided = planner.plan(seen, EAGER, now_ms)
        assert check(seen, decided) == ()
        loop.commit_plan(self.world.store, decided, now_ms=now_ms)
        for request in decided.capacity:
            fleet.provision(self.world.store, self.world.fleet.pools[0], request.nodes, now_ms=now_ms)

    @rule()
    def a_good_moment(self) -> None:
        """A pass, and every node does what it is told at once; ranks go on running."""
        self.a_pass_as_the_server_makes_it()
        for _ in range(2):
            for node in self.world.incarnations:
                for order in self.orders(node):
                    self.send(node, well(order)[:1])

    @rule(node=NODES)
    def plan_that_is_stale(self, node: str) -> None:
        stale = greedy(loop.snapshot(self.world.store, self.world.fleet, now_ms=self.world.now_ms))
        nodes.node_lost(self.world.store, node, "died meanwhile", now_ms=self.world.now_ms)
        loop.commit_plan(self.world.store, stale, now_ms=self.world.now_ms)
        self.world.hello(node)

    @rule(data=st.data())
    def a_gang_makes_room(self, data: st.DataObject) -> None:
        views_ = views.list_gangs(self.world.store)
        if not views_:
            return
        victim, other = data.draw(st.sampled_from(views_)), data.draw(st.sampled_from(views_))
        held = self.world.leases(victim.gang)
        if not self.world.preempt(victim.gang, other.gang):
            assert not interruptible(victim)
            return
        assert interruptible(victim)
        assert self.world.leases(victim.gang) == held, "nothing is given back before the nodes are empty"

    @rule(data=st.data(), size=st.integers(1, 4))
    def a_gang_changes_its_size(self, data: st.DataObject, size: int) -> None:
        running = [view for view in views.list_gangs(self.world.store) if interruptible(view)]
        if not running:
            return
        view = data.draw(st.sampled_from(running))
        has = [share.node for share in view.attempts[-1].nodes]
        able = view.spec.nodes <= size <= view.spec.most and size != len(has)
        assert self.world.resize(view.gang, size, *has[size:]) == able

    @rule(count=st.integers(1, 2))
    def capacity_is_asked_for(self, count: int) -> None:
        fleet.provision(self.world.store, self.world.fleet.pools[0], count, now_ms=self.world.now_ms)

    @rule(node=LATE)
    def capacity_comes_late_or_never(self, node: str) -> None:
        if node in {known.node for known in views.nodes(self.world.store)}:
            self.world.hello(node)

    @rule(seconds=st.sampled_from([1, 10, 125, 400, 2000]))
    def time_passes(self, seconds: int) -> None:
        due = loop.tick(self.world.store, now_ms=self.world.later(seconds))
        assert due is None or due > self.world.now_ms

    # supervisors

    @rule(node=st.one_of(NODES, LATE), data=st.data())
    def a_node_works(self, node: str, data: st.DataObject) -> None:
        if node not in self.world.incarnations:
            return
        for order in self.orders(node):
            reports = self.outcome(order, data)
            self.send(node, reports)

    @rule(data=st.data())
    @precondition(lambda self: self.sent)
    def reports_come_again(self, data: st.DataObject) -> None:
        many = data.draw(st.lists(st.sampled_from(self.sent), max_size=4))
        for node, report in many:
            self.world.report(node, report, report)

    @rule(node=NODES, swept=st.booleans())
    def a_node_is_lost(self, node: str, swept: bool) -> None:
        nodes.node_lost(self.world.store, node, "died", now_ms=self.world.now_ms, swept=swept)
        if swept:
            self.world.hello(node)

    @rule(node=NODES)
    def a_supervisor_is_replaced(self, node: str) -> None:
        self.world.hello(node)

    @rule(data=st.data(), key=st.sampled_from(["k1", "k2"]))
    def ranks_save(self, data: st.DataObject, key: str) -> None:
        running = views.list_gangs(self.world.store, (GangState.RUNNING,))
        if not running:
            return
        view = data.draw(st.sampled_from(running))
        try:
            save = self.world.open_save(view.gang, key)
            for rank in view.ranks[:data.draw(st.integers(0, len(view.ranks)))]:
                saves.report_save(self.world.store, self.world.saved(view.gang, save, rank.rank),
                                  now_ms=self.world.now_ms, volumes_root=self.folder)
        except Conflict:
            assert view.attempts[-1].end is None or view.attempts[-1].ended_ms is not None

    # what must hold

    @invariant()
    def everything_is_in_order(self) -> None:
        if not hasattr(self, "world"):
            return
        check_invariants(self.world.store)
        known = {view.gang: view for view in views.list_gangs(self.world.store, limit=10_000)}
        assert self.acknowledged <= set(known)
        for gang, state in self.finals.items():
            assert known[gang].state == state, "a final state changed"
        self.finals.update({gang: view.state for gang, view in known.items() if view.state.final})
        self.the_bill_adds_up()

    def the_bill_adds_up(self) -> None:
        now_ms = self.world.now_ms
        whole = usage.usage(self.world.store, (), None, None, now_ms=now_ms)
        parts = usage.usage(self.world.store, ("gang", "attempt", "node", "cause"), None, None, now_ms=now_ms)
        total = whole[0].cost_nano if whole else 0
        assert sum(row.cost_nano for row in parts) == total
        views_total = sum(view.cost_nano for view in views.list_gangs(self.world.store, limit=10_000,
                                                                      now_ms=now_ms))
        assert views_total == total

    def converge(self) -> None:
        """From wherever it is, everything comes to an end when nodes do as they are told."""
        there = {"p-1", "p-2", "p-3", "p-4", *self.world.incarnations}
        for node in sorted(there):
            self.world.hello(node)
        for _ in range(60):
            self.world.plan()
            for node in sorted(there):
                for order in self.orders(node):
                    self.send(node, well(order))
            if not views.status_counts(self.world.store).active:
                break
        else:
            left = [view for view in views.list_gangs(self.world.store, limit=10_000) if not view.state.final]
            raise AssertionError(f"some gang never came to an end: {left}; {views.nodes(self.world.store)}")
        self.everything_is_in_order()

    def orders(self, node: str) -> tuple[Order, ...]:
        return self.world.orders(node)

    def outcome(self, order: Order, data: st.DataObject) -> list[Report]:
        about = about_of(order)
        if order.phase is OrderPhase.STOP and data.draw(st.booleans()):
            return self.stopped(order)
        if order.task is None or data.draw(st.integers(0, 3)):
            return well(order)
        match data.draw(st.sampled_from(["nothing", "refused", "fails", "vanishes", "half"])):
            case "refused":
                return [Refused(**about, cause=Cause.LAUNCH, text="port taken")]
            case "fails":
                return [RankExit(**about, rank=order.task.ranks[0].rank, cause=data.draw(FAILURES))]
            case "vanishes":
                return [Empty(**about)]
            case "half":
                return well(order)[:1]
            case _:
                return []

    def stopped(self, order: Order) -> list[Report]:
        """The node's ranks save or not, leave with exit code 0, and some of it is still there or not."""
        ranks = [rank for rank in self.world.view(order.gang).ranks if rank.state == "running"]
        return [RankExit(**about_of(order), rank=rank.rank, cause=Cause.CANCELLED, exit_code=0) for rank in ranks]

    def send(self, node: str, reports: list[Report]) -> None:
        self.world.report(node, *reports)
        self.sent += [(node, report) for report in reports]


def interruptible(view: GangView) -> bool:
    """Nothing has ended its attempt yet."""
    return view.state in (GangState.PLACED, GangState.STARTING, GangState.RUNNING) and view.attempts[-1].end is None


def about_of(order: Order) -> dict[str, Any]:
    return {"gang": order.gang, "attempt": order.attempt, "generation": order.generation}


def well(order: Order) -> list[Report]:
    """What a node reports that does what it is told and whose ranks end well at once."""
    about = about_of(order)
    match order.phase:
        case OrderPhase.ASSEMBLE:
            return [Ready(**about)]
        case OrderPhase.START:
            ranks = order.task.ranks if order.task else ()
            return [Started(**about), *(RankExit(**about, rank=r.rank, cause=Cause.SUCCESS) for r in ranks)]
        case OrderPhase.STOP:
            return [Empty(**about)]


TestMachine = Machine.TestCase
TestMachine.settings = settings(max_examples=20, stateful_step_count=30, deadline=None,
                                suppress_health_check=list(HealthCheck))
