"""One attempt on this node: assembled, its ranks started and watched, their ends judged, all of it ended."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import shutil
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from gangline.model.errors import Rejected
from gangline.model.orders import Damaged, Empty, Order, RankExit, Ready, Refused, Report, Started, Task
from gangline.model.states import Cause
from gangline.node import cgroup, environment, proc, sweep
from gangline.node.assemble import Assembled, DamagedVersion, Node, assemble, cause_of, run_dir
from gangline.node.logs import last_lines
from gangline.node.outbox import About
from gangline.node.rank_socket import Caller
from gangline.node.verdict import Ending, judge, lost_its_peers

_LOG = logging.getLogger(__name__)
_LAST_LINES = 20
_STARTING_S = 60.0  # a port found taken later than this is the user's own
_DRAIN_S = 5.0  # how long the lease is held for logs that the server has not taken yet
_LEAVE_S = 10.0  # for the peers of a rank that stopped of its own accord
_GIVE_UP_S = 600.0  # and how long they are kept for it after that


class Tree:
    """The processes of one (gang, attempt, generation) on this node, from order to empty."""

    def __init__(self, node: Node, order: Order, task: Task, *, after: list[Tree]) -> None:
        self._node, self._order, self._task = node, order, task
        self.about: About = (order.gang, order.attempt, order.generation)
        self._mark = sweep.tree_of(node.home, node.name, *self.about)
        self._ready: Assembled | None = None
        self._start_wanted = asyncio.Event()
        self._stop_wanted = asyncio.Event()
        self._ended_because: str | None = None
        self._ended_as = Cause.CANCELLED
        self._asked = False  # SIGTERM was sent to its ranks
        self._told_empty = False  # the keeper has seen the last process go
        self._running: set[int] = set()  # ranks that were started and have not ended
        self._began_s: float | None = None
        self._oom_kills = proc.oom_kills()
        self.emptied = asyncio.Event()  # nothing is left
        self.over = asyncio.Event()  # and that was reported
        self._work = asyncio.create_task(self._live(after), name=f"tree of {order.gang}")

    def start(self) -> None:
        """Every node is ready: start the ranks. Repeatable."""
        self._start_wanted.set()

    def stop(self, grace_s: float, because: str) -> None:
        """End the tree: SIGTERM, and after the grace SIGKILL. Repeatable; the earliest end counts."""
        self._end(grace_s, because)
        self._stop_wanted.set()

    def leave(self) -> None:
        """End the tree because its supervisor leaves: what still runs is lost, not cancelled."""
        if self._ended_because is None:
            self._ended_as = Cause.LOST
        self.stop(0.0, f"the supervisor of {self._node.name} left")

    @staticmethod
    def empty(about: About) -> Empty:
        gang, attempt, generation = about
        return Empty(gang=gang, attempt=attempt, generation=generation)

    async def _live(self, after: list[Tree]) -> None:
        for older in after:
            await older.over.wait()
        try:
            await self._unless_stopped(self._assemble())
            if self._ready is not None and not self._stop_wanted.is_set():
                await self._run(self._ready)
        except Exception as exc:  # noqa: BLE001 - a fault of ours must not leave the server waiting
            _LOG.error("the tree of %s failed", self.about, exc_info=exc)
            self._refuse(Cause.LAUNCH, f"the supervisor failed: {exc!r}")
        await self._clean()
        self.emptied.set()
        await self._stop_wanted.wait()
        drained = await self._node.logs.drained(self.about, within_s=_DRAIN_S)
        self._put(self.empty(self.about))
        self.over.set()
        if not drained and not await self._node.logs.drained(self.about, within_s=_GIVE_UP_S):
            _LOG.warning("the server did not take all of the log of %s", self.about)
        self._forget()

    async def _unless_stopped(self, work: Coroutine[Any, Any, None]) -> None:
        """Do the work, or drop it as soon as the tree is to end."""
        doing = asyncio.create_task(work)
        stopped = asyncio.create_task(self._stop_wanted.wait())
        await asyncio.wait((doing, stopped), return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if not doing.done():
            doing.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await doing

    async def _assemble(self) -> None:
        """Make everything ready but the ranks; report Ready, or why that cannot be."""
        gang, attempt, generation = self.about
        try:
            self._ready = await assemble(self._node, self._order, self._task, self._mark)
        except DamagedVersion as exc:
            self._put(Damaged(gang=gang, attempt=attempt, generation=generation, volume=exc.volume,
                              version=exc.version, text=str(exc)))
        except Rejected as exc:
            self._refuse(Cause.USER, cause_of(exc))
        except Exception as exc:  # noqa: BLE001 - whatever it is, another node may manage
            _LOG.warning("cannot assemble %s", self.about, exc_info=exc)
            self._refuse(Cause.LAUNCH, cause_of(exc))
        else:
            self._node.ranks.admit(self._ready.place.token, Caller(self.about, self._task))
            self._put(Ready(gang=gang, attempt=attempt, generation=generation))

    async def _run(self, ready: Assembled) -> None:
        """From the start of the ranks to an empty tree."""
        gang, attempt, generation = self.about
        starting = asyncio.create_task(self._start_ranks(ready))
        async for event in ready.keeper.events():
            match event["event"]:
                case "started":
                    self._put(Started(gang=gang, attempt=attempt, generation=generation))
                case "rank_exit":
                    self._see_exit(ready, event["rank"], event["code"], event["signal"])
                case "empty":
                    self._told_empty = True
                case other:
                    _LOG.error("the keeper says %r", other)
        starting.cancel()
        if not self._told_empty:
            await self._mourn_keeper(ready)

    async def _start_ranks(self, ready: Assembled) -> None:
        await self._start_wanted.wait()
        if self._ended_because is not None:
            return
        orders = []
        for rank in self._task.ranks:
            env = environment.rank_env(self._order, self._task, rank, ready.place, ready.env,
                                       devices=self._node.devices)
            orders.append(environment.launch_order(ready.program, rank.rank, env, ready.place,
                                                   warm=ready.warm))
            ready.place.log(rank.rank).touch(mode=0o600)
            self._node.logs.add(self.about, rank.rank, ready.place.log(rank.rank))
        self._running = {rank.rank for rank in self._task.ranks}
        self._began_s = time.monotonic()
        ready.keeper.start(orders)

    def _see_exit(self, ready: Assembled, rank: int, code: int | None, signal_name: str | None) -> None:
        self._running.discard(rank)
        self._node.logs.look()
        lines = last_lines(ready.place.log(rank), _LAST_LINES)
        noted = ready.place.stopped(rank).exists()
        ending = Ending(
            rank=rank, code=code, signal=signal_name, last_lines=lines, ended_because=self._ended_because,
            ended_as=self._ended_as, oom_killed=self._oom_killed(ready), starting=self._is_starting(),
            master_port=self._task.master_port, stopped=noted or self._asked,
            peers=len(self._task.nodes) > 1)
        cause, text = judge(ending)
        well = cause is Cause.SUCCESS
        gang, attempt, generation = self.about
        self._put(RankExit(gang=gang, attempt=attempt, generation=generation, rank=rank, exit_code=code,
                           signal=signal_name, cause=cause, text=text, last_lines=() if well else lines,
                           peer=cause is Cause.LOST and lost_its_peers(ending),
                           result=_read_result(ready.place.result(rank)) if well else None))
        if not well:
            # Ranks agree to stop before every node has heard that it should: let this one's leave, too.
            self._end(_LEAVE_S if noted else 0.0, f"rank {rank} had ended on this node")

    def _is_starting(self) -> bool:
        young = self._began_s is not None and time.monotonic() - self._began_s < _STARTING_S
        return young and self.about not in self._node.ranks.advanced

    def _oom_killed(self, ready: Assembled) -> bool:
        own = cgroup.oom_kills(ready.group) if ready.group is not None else 0
        return own > 0 or proc.oom_kills() > self._oom_kills

    async def _mourn_keeper(self, ready: Assembled) -> None:
        """The keeper was killed: its ranks died with it; end what they had started, then say so."""
        await self._clean()
        await asyncio.to_thread(self._node.starter.end_strays)
        because = self._ended_because
        if self._began_s is None and because is None:
            self._refuse(Cause.LOST, "the keeper of this node's ranks was killed")
        gang, attempt, generation = self.about
        for rank in sorted(self._running):
            self._put(RankExit(
                gang=gang, attempt=attempt, generation=generation, rank=rank, signal="SIGKILL",
                cause=Cause.LOST if because is None else self._ended_as,
                text=f"rank {rank} ended: {because or 'its keeper was killed from outside'}",
                last_lines=last_lines(ready.place.log(rank), _LAST_LINES)))
        self._running = set()

    def _end(self, grace_s: float, because: str) -> None:
        self._asked = self._asked or (self._ended_because is None and grace_s > 0)
        self._ended_because = self._ended_because or because
        if self._ready is not None and not self._told_empty:
            self._ready.keeper.stop(grace_s)

    async def _clean(self) -> None:
        """Make sure that nothing is left, whatever became of the keeper."""
        if self._ready is not None:
            self._ready.keeper.close()
            if self._told_empty:
                await asyncio.to_thread(sweep.unmark, self._mark, self._ready.group)
        while self._mark.marker.exists():
            await asyncio.to_thread(sweep.end_trees, [self._mark])

    def _forget(self) -> None:
        self._node.logs.drop(self.about)
        self._node.outbox.forget(self.about)
        if self._ready is not None:
            self._node.ranks.expel(self._ready.place.token)
        shutil.rmtree(run_dir(self._node, self._order), ignore_errors=True)

    def _refuse(self, cause: Cause, text: str) -> None:
        gang, attempt, generation = self.about
        self._put(Refused(gang=gang, attempt=attempt, generation=generation, cause=cause, text=text))

    def _put(self, report: Report) -> None:
        self._node.outbox.put(report)


def _read_result(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None  # a command, a program that left before its function returned, or one that wrote here itself
