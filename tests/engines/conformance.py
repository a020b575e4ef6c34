"""What every engine promises, run against real servers: subclass `Conformance` and give it a fixture `rig`.

A test that needs something the engine has not got is not run; see `Trait`.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from rig import OTHER_FLEET, Rig, Run, Trait, ask, everywhere, look, start, until

from gangline.engines.base import TAG, JobStatus, NodeStatus
from gangline.model.errors import Rejected

HOSTILE = list({
    "line breaks": "a\nb\r\nc", "directive": "x\n#SBATCH --comment=taken\n", "quotes": "'\"'; touch {canary} #",
    "command": "$(touch {canary})`touch {canary}`", "option": "--wrap=touch {canary}", "percent": "%j/../%x %%",
    "separators": "a|b,c=d;e&&f", "braces": "{{name}} ${HOME} {node}", "unicode": "größe ☃ \u202e 訓練",
    "control": "\x1b[2J\x07\x7f", "nothing": "", "long": "x" * 10_000, "long lines": "y\n" * 5_000, "zero byte": "a\0b",
}.items())


def needs(rig: Rig, trait: Trait) -> None:
    if trait not in rig.traits:
        pytest.skip(f"this engine has no {trait}")


@pytest.fixture
def undo() -> Iterator[list[Callable[[], None]]]:
    """What is put into this list is called when the test is over, last first."""
    calls: list[Callable[[], None]] = []
    yield calls
    for call in reversed(calls):
        call()


class Conformance:
    """The suite. `rig` has every node up and idle before each test, and whatever a test leaves is ended."""

    @pytest.fixture(autouse=True)
    def clean(self, rig: Rig) -> Iterator[None]:
        yield
        for engine in (rig.engine, rig.other_fleet()):
            for job in engine.observe().jobs:
                engine.stop(job.name, 0.0)
            until(lambda engine=engine: all(  # type: ignore[misc]
                job.status is JobStatus.ENDED for job in engine.observe().jobs), "every job to be over")

    # -- nodes ---------------------------------------------------------------------------------------

    def test_it_sees_every_node_and_what_it_is(self, rig: Rig) -> None:
        nodes = {node.name: node for node in rig.engine.observe().nodes}
        assert set(nodes) == set(rig.nodes)
        for node in nodes.values():
            assert (node.pool, node.status) == (rig.pool, NodeStatus.READY), node
            assert (node.gpu_type, node.gpu_count) == (rig.gpu_type, rig.gpus)
            assert (node.foreign_gpus, node.foreign) == (0, ())
            assert node.address

    def test_it_knows_the_switches_that_nodes_share(self, rig: Rig) -> None:
        needs(rig, Trait.PATHS)
        paths = [node.path for node in rig.engine.observe().nodes]
        assert all(len(path) >= 2 for path in paths)
        assert len({path[0] for path in paths}) == 1
        assert 1 < len({path[-1] for path in paths}) < len(paths)

    def test_a_job_of_somebody_else_makes_a_node_busy_not_broken(self, rig: Rig) -> None:
        needs(rig, Trait.FOREIGN)
        end = rig.occupy(rig.nodes[0], rig.gpus)
        try:
            busy, other = look(rig, rig.nodes[0]), look(rig, rig.nodes[1])
            assert busy.status is NodeStatus.READY
            assert busy.foreign_gpus == rig.gpus
            assert len(busy.foreign) == 1
            assert (other.foreign_gpus, other.foreign) == (0, ())
            assert rig.engine.observe().jobs == () or all(
                job.status is JobStatus.ENDED for job in rig.engine.observe().jobs)
        finally:
            end()
        until(lambda: not look(rig, rig.nodes[0]).foreign_gpus, "the node to be free again")

    def test_a_part_taken_by_somebody_else_leaves_the_rest(self, rig: Rig, undo: list[Callable[[], None]]) -> None:
        needs(rig, Trait.FOREIGN)
        needs(rig, Trait.FRACTIONS)
        undo.append(rig.occupy(rig.nodes[0], 1))
        assert look(rig, rig.nodes[0]).foreign_gpus == 1
        run = start(rig, rig.nodes[:1], rig.gpus - 1)
        run.wait_status(JobStatus.RUNNING)
        assert look(rig, rig.nodes[0]).foreign_gpus == 1

    def test_our_own_jobs_are_no_foreign_load_and_another_fleets_are(self, rig: Rig) -> None:
        needs(rig, Trait.FOREIGN)
        start(rig, rig.nodes[:1])
        theirs = ask(rig, rig.nodes[1:2], fleet=OTHER_FLEET)
        theirs.launch(rig.other_fleet())
        theirs.wait_hello()
        assert look(rig, rig.nodes[0]).foreign_gpus == 0
        assert look(rig, rig.nodes[1]).foreign_gpus == rig.gpus
        assert theirs.name not in {job.name for job in rig.engine.observe().jobs}

    def test_a_drain_of_ours_comes_and_goes(self, rig: Rig) -> None:
        needs(rig, Trait.DRAIN)
        node = rig.nodes[0]
        for _ in range(2):
            rig.engine.drain(node, "ecc errors; \"quoted\" $(x)\nState=IDLE")
        drained = look(rig, node)
        assert drained.status is NodeStatus.DRAINED
        assert "ecc errors" in drained.text
        assert look(rig, rig.nodes[1]).status is NodeStatus.READY
        for _ in range(2):
            rig.again().resume(node)
        self._is_back(rig, node)

    def test_a_drain_of_others_is_neither_taken_over_nor_lifted(self, rig: Rig) -> None:
        needs(rig, Trait.DRAIN)
        node = rig.nodes[0]
        lift = rig.others_drain(node, "fan replaced on Tuesday")
        try:
            for change in (lambda: rig.engine.resume(node), lambda: rig.engine.drain(node, "ours"),
                           lambda: rig.engine.resume(node)):
                change()
                seen = look(rig, node)
                assert seen.status is NodeStatus.DRAINED
                assert "fan replaced on Tuesday" in seen.text
                assert TAG not in seen.text
        finally:
            lift()
        self._is_back(rig, node)

    def _is_back(self, rig: Rig, node: str) -> None:
        until(lambda: look(rig, node).status is NodeStatus.READY, f"{node} to take work again", lambda: look(rig, node))

    def test_a_drain_lets_what_runs_go_on(self, rig: Rig) -> None:
        needs(rig, Trait.DRAIN)
        run = start(rig, rig.nodes[:1])
        rig.engine.drain(rig.nodes[0], "later")
        assert look(rig, rig.nodes[0]).status is NodeStatus.DRAINED
        run.wait_status(JobStatus.RUNNING)
        rig.engine.resume(rig.nodes[0])
        self._is_back(rig, rig.nodes[0])

    # -- asking for a job ----------------------------------------------------------------------------

    def test_what_would_be_asked_is_printable_and_holds_no_secret(self, rig: Rig) -> None:
        run = ask(rig, rig.nodes[:2])
        request = rig.engine.prepare(run.job)
        assert request == rig.engine.prepare(run.job)
        assert request.job == run.job
        assert run.name in request.text
        assert all(node in request.text for node in rig.nodes[:2])
        assert run.guest.token not in f"{request.text} {request.body!r}"
        assert run.seen() is None

    def test_every_node_of_a_job_gets_a_supervisor_that_shows_the_token(self, rig: Rig) -> None:
        run = start(rig, rig.nodes[:3])
        seen = run.wait_status(JobStatus.RUNNING)
        assert (seen.name, seen.id, set(seen.nodes)) == (run.name, run.id, set(rig.nodes[:3]))
        assert {call.authorization for call in run.guest.calls} == {f"Bearer {run.guest.token}"}
        assert rig.hub.strangers == []
        assert [job.id for job in rig.engine.observe().jobs if job.name == run.name] == [run.id]

    def test_the_token_is_in_no_arguments_and_no_log(self, rig: Rig) -> None:
        run = start(rig, rig.nodes[:2])
        run.wait_started()
        assert everywhere(run.name), "nothing of the job was found to look at"
        assert everywhere(run.guest.token) == []
        until(lambda: rig.engine.logs(run.name), "a log")
        assert run.guest.token not in rig.engine.logs(run.name)

    def test_asked_twice_there_is_one_job(self, rig: Rig) -> None:
        run = ask(rig, rig.nodes[:2])
        assert run.launch() == run.launch()
        run.wait_hello()
        assert run.launch() == run.id
        self._there_is_one(rig, run)

    def test_after_a_crash_the_job_is_found_again(self, rig: Rig) -> None:
        run = ask(rig, rig.nodes[:2])
        first = run.launch()
        second = rig.again()
        assert run.launch(second) == first
        assert run.name in {job.name for job in second.observe().jobs}
        run.wait_hello()
        self._there_is_one(rig, run)

    def test_two_servers_at_once_end_with_one_job(self, rig: Rig) -> None:
        run = ask(rig, rig.nodes[:2])
        engines = [rig.engine, rig.again(), rig.engine]
        ready = threading.Barrier(len(engines))

        def launch(engine: object) -> None:
            ready.wait()
            run.launch(engine)  # type: ignore[arg-type]

        threads = [threading.Thread(target=launch, args=(engine,)) for engine in engines]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        run.wait_hello()
        self._there_is_one(rig, run)

    def _there_is_one(self, rig: Rig, run: Run) -> None:
        run.wait_started()
        active = [job for job in rig.engine.observe().jobs
                  if job.name == run.name and job.status is not JobStatus.ENDED]
        assert len(active) == 1
        assert run.guest.hellos.keys() == run.guest.nodes  # `hellos` fails on a second one from a node

    def test_jobs_it_does_not_know_are_left_out(self, rig: Rig) -> None:
        run = start(rig, rig.nodes[:1])
        unknown = ask(rig, rig.nodes[1:2])
        assert set(rig.engine.poll_many([run.name, unknown.name])) == {run.name}
        assert rig.engine.poll_many([]) == {}
        assert rig.engine.logs(unknown.name) == ""

    @pytest.mark.parametrize("kinds", [HOSTILE[i::5] for i in range(5)], ids=lambda kinds: ", ".join(dict(kinds)))
    def test_what_users_write_is_data_or_refused(self, rig: Rig, kinds: list[tuple[str, str]], tmp_path: Path) -> None:
        canary = tmp_path / "canary"
        runs = []
        for (_, text), node in zip(kinds, rig.nodes, strict=False):
            value = text.replace("{canary}", str(canary))
            run = ask(rig, (node,), slot=value, tenant=value, title=value)
            with contextlib.suppress(Rejected):
                run.launch()
                runs.append(run)
        for run in runs:
            run.wait_started()
            assert run.wait_status(JobStatus.RUNNING).nodes == tuple(run.guest.nodes)
        names = {job.name for job in rig.engine.observe().jobs if job.status is not JobStatus.ENDED}
        assert names == {run.name for run in runs}
        assert not canary.exists()

    # -- waiting and sharing -------------------------------------------------------------------------

    def test_a_job_whose_nodes_are_taken_waits_and_says_why(self, rig: Rig) -> None:
        needs(rig, Trait.QUEUE)
        needs(rig, Trait.FOREIGN)
        end = rig.occupy(rig.nodes[0], rig.gpus)
        try:
            run = ask(rig, rig.nodes[:2])
            run.launch()
            until(lambda: (seen := run.seen()) and seen.status is JobStatus.WAITING and seen.text, "a reason",
                  lambda: run.seen())
            assert run.guest.hellos == {}
        finally:
            end()
        run.wait_hello()
        run.wait_status(JobStatus.RUNNING)

    def test_whole_nodes_are_exclusive_and_parts_share(self, rig: Rig) -> None:
        needs(rig, Trait.QUEUE)
        needs(rig, Trait.FRACTIONS)
        one, two = start(rig, rig.nodes[:1], 1), start(rig, rig.nodes[:1], rig.gpus - 1)
        whole = ask(rig, rig.nodes[:1])
        whole.launch()
        whole.wait_status(JobStatus.WAITING)
        assert one.wait_status(JobStatus.RUNNING).nodes == two.wait_status(JobStatus.RUNNING).nodes
        rig.engine.stop(one.name, 0.0)
        one.wait_over()
        whole.wait_status(JobStatus.WAITING)
        rig.engine.stop(two.name, 0.0)
        whole.wait_hello()

    # -- ends ----------------------------------------------------------------------------------------

    def test_a_job_ends_by_itself_when_its_attempt_is_over(self, rig: Rig) -> None:
        run = start(rig, rig.nodes[:2])
        run.wait_started()
        rig.hub.end(run.guest)
        run.wait_over()
        assert run.processes() == []

    def test_nothing_is_left_of_a_stopped_job(self, rig: Rig) -> None:
        run = start(rig, rig.nodes[:2])
        run.wait_started()
        until(lambda: len(run.processes()) >= 4, "the ranks and their children", run.processes)
        rig.engine.stop(run.name, 5.0)
        run.wait_over()
        assert run.processes() == []
        for _ in range(2):  # over or not, to end it again is no error
            rig.engine.stop(run.name, 0.0)

    def test_a_supervisor_that_dies_ends_its_whole_job(self, rig: Rig) -> None:
        run = start(rig, rig.nodes[:2])
        run.wait_started()
        os.kill(run.guest.hellos[rig.nodes[1]]["pid"], signal.SIGKILL)
        run.wait_over()
        assert run.processes() == []

    def test_a_job_that_waits_can_be_stopped(self, rig: Rig) -> None:
        needs(rig, Trait.QUEUE)
        start(rig, rig.nodes[:1])
        waiting = ask(rig, rig.nodes[:2])
        waiting.launch()
        waiting.wait_status(JobStatus.WAITING)
        rig.engine.stop(waiting.name, 60.0)
        waiting.wait_over()
        assert waiting.guest.hellos == {}

    def test_stopping_what_is_unknown_is_no_error(self, rig: Rig) -> None:
        rig.engine.stop(ask(rig, rig.nodes[:1]).name, 1.0)

    def test_its_log_tells_what_the_supervisors_said(self, rig: Rig) -> None:
        run = start(rig, rig.nodes[:2])
        until(lambda: rig.engine.logs(run.name).count("welcomed") == 2, "both supervisors' words",
              lambda: rig.engine.logs(run.name))
        assert len(rig.engine.logs(run.name).encode()) <= 64 * 1024

    def test_a_dead_node_is_down_and_ends_its_whole_job(self, rig: Rig, undo: list[Callable[[], None]]) -> None:
        run, other = start(rig, rig.nodes[:2]), start(rig, rig.nodes[2:3])
        run.wait_started()
        revive = rig.kill_node(rig.nodes[1])
        try:
            until(lambda: look(rig, rig.nodes[1]).status is NodeStatus.DOWN, "the node to be down",
                  lambda: look(rig, rig.nodes[1]))
            run.wait_over()
            assert run.processes() == []
            assert look(rig, rig.nodes[0]).status is NodeStatus.READY
            other.wait_status(JobStatus.RUNNING)
        finally:
            revive()
        until(lambda: look(rig, rig.nodes[1]).status is NodeStatus.READY, "the node to be back",
              lambda: look(rig, rig.nodes[1]))
        again = start(rig, rig.nodes[:2])
        again.wait_status(JobStatus.RUNNING)

    def test_closing_ends_no_job(self, rig: Rig) -> None:
        engine = rig.again()
        run = ask(rig, rig.nodes[:1])
        run.launch(engine)
        engine.close()
        run.wait_hello()
        run.wait_status(JobStatus.RUNNING)
