"""The supervisor: makes its node agree with the server's orders, and dies with all it runs when cut off."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import signal
import time
from collections.abc import Sequence
from pathlib import Path

from gangline.model.errors import Conflict, GanglineError, NotFound, Unavailable
from gangline.model.orders import Hello, Order, OrderPhase, Orders, Poll, Refused, Welcome
from gangline.model.states import Cause
from gangline.node import proc, sweep
from gangline.node.assemble import Node
from gangline.node.jobside import OwnJob, clear
from gangline.node.link import Link
from gangline.node.logs import LogPump
from gangline.node.outbox import About, Outbox
from gangline.node.rank_socket import RankSocket, socket_path
from gangline.node.tree import Tree
from gangline.node.warm import Starter

_LOG = logging.getLogger(__name__)
EXIT_OK, EXIT_FAILED, EXIT_CUT_OFF, EXIT_DEPOSED = 0, 70, 75, 76
_PAUSES_S = (0.05, 1.0)
_FIRST_WORD_S = 120.0  # a server that has not welcomed us by then is not there
_LAST_WORDS_S = 5.0  # for reports when told to leave
_POLLS_PER_LEASE = 3  # a lease must outlive a lost answer


class Supervisor:
    """One node's supervisor; `run` returns the exit status.

    One that came with a `job` serves that attempt alone, and leaves as soon as it is over.
    """

    def __init__(self, url: str, name: str, home: Path, address: str, template_socket: Path | None, *,
                 token: str | None = None, job: OwnJob | None = None) -> None:
        self.incarnation = secrets.token_hex(8)
        self._job = job
        link = Link(url, token)
        outbox = Outbox(link, name, self.incarnation)
        self._node = Node(
            name=name, home=home, local=address.startswith("127."), link=link, outbox=outbox,
            devices=None if job is None else job.devices, logs=LogPump(link, name), starter=Starter(template_socket),
            ranks=RankSocket(link, outbox, socket_path(sweep.node_dir(home, name))))
        self._address, self._warm = address, template_socket is not None
        self._trees: dict[About, Tree] = {}
        self._leave = asyncio.Event()
        self._over = False  # the attempt of its job is, so it leaves of its own accord
        self._welcome = Welcome(lease_s=_FIRST_WORD_S, poll_s=1.0)
        self._welcomed = asyncio.Event()

    async def run(self) -> int:
        """Serve until told to leave, deposed, or cut off; nothing of ours is left then."""
        loop = asyncio.get_running_loop()
        for signum in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(signum, self._leave.set)
        loop.add_signal_handler(signal.SIGCHLD, self._node.starter.reap)
        proc.adopt_orphans()
        await asyncio.to_thread(self._take_over)
        await self._node.ranks.open()
        duties = [asyncio.create_task(duty) for duty in (
            self._serve(), self._watch_lease(), self._leave.wait())]
        warming = asyncio.create_task(self._node.starter.facts())
        await asyncio.wait(duties, return_when=asyncio.FIRST_COMPLETED)
        status = self._why(duties)
        for task in (*duties, warming):
            task.cancel()
        await asyncio.gather(*duties, warming, return_exceptions=True)
        await self._end_everything(status)
        if self._job is not None:
            await asyncio.to_thread(clear, self._node.home, self._node.name)
        return status

    def _take_over(self) -> None:
        """End what an earlier supervisor of this node left; say nothing to the server before that."""
        sweep.node_dir(self._node.home, self._node.name).mkdir(parents=True, exist_ok=True, mode=0o700)
        ended = sweep.sweep(self._node.home, self._node.name)
        while not sweep.is_swept(self._node.home, self._node.name):
            ended += sweep.sweep(self._node.home, self._node.name)
        sweep.claim(self._node.home, self._node.name)
        if ended:
            _LOG.warning("ended %d processes of an earlier supervisor", ended)

    async def _serve(self) -> None:
        await self._introduce()
        duties = (self._follow_orders(), self._node.outbox.deliver(), self._node.logs.deliver())
        async with asyncio.TaskGroup() as group:
            for duty in duties:
                group.create_task(duty)

    async def _introduce(self) -> None:
        me = os.getpid()
        hello = Hello(node=self._node.name, incarnation=self.incarnation, pid=me,
                      start_time=proc.start_time_s(me), boot_id=proc.boot_id(), address=self._address,
                      warm=self._warm, gang=self._job and self._job.gang, attempt=self._job and self._job.attempt)
        answer = await self._node.link.insist("POST", f"/v1/nodes/{self._node.name}/hello", hello)
        self._welcome = Welcome.parse(answer)
        self._welcomed.set()
        _LOG.info("welcomed; the lease is %g s", self._welcome.lease_s)

    async def _follow_orders(self) -> None:
        seen, pause_s = "", _PAUSES_S[0]
        path = f"/v1/nodes/{self._node.name}/poll"
        while True:
            wait_s = min(self._welcome.poll_s, self._welcome.lease_s / _POLLS_PER_LEASE)
            poll = Poll(incarnation=self.incarnation, seen=seen, wait_s=wait_s)
            try:
                orders = Orders.parse(await self._node.link.send("POST", path, poll, wait_s=wait_s))
            except (Conflict, NotFound):
                raise
            except GanglineError as exc:
                if not isinstance(exc, Unavailable):
                    _LOG.error("the server's orders cannot be had: %s", exc)
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 2, _PAUSES_S[1])
                continue
            seen, pause_s = orders.digest, _PAUSES_S[0]
            self._obey(orders)
            if self._job is not None and not orders.orders:
                _LOG.info("attempt %d of %s is over", self._job.attempt, self._job.gang)
                self._over = True
                self._leave.set()

    def _obey(self, orders: Orders) -> None:
        wanted = {(order.gang, order.attempt, order.generation): order for order in orders.orders}
        for about, tree in list(self._trees.items()):
            if about in wanted:
                continue
            if tree.over.is_set():
                del self._trees[about]
            else:
                tree.stop(0.0, "the server no longer orders it")
        for about, order in wanted.items():
            self._obey_one(about, order)

    def _obey_one(self, about: About, order: Order) -> None:
        tree = self._trees.get(about)
        if order.phase is OrderPhase.STOP:
            if tree is None or tree.over.is_set():
                if not self._node.outbox.holds(about):
                    self._node.outbox.put(Tree.empty(about))
            else:
                tree.stop(order.grace_s, "the server ended the attempt")
            return
        if order.task is None:
            return  # others of the job have not come yet
        if tree is None:
            older = [other for key, other in self._trees.items() if key[0] == order.gang]
            tree = self._trees[about] = Tree(self._node, order, order.task, after=older)
        if tree is None or tree.over.is_set():
            gang, attempt, generation = about
            self._node.outbox.put(Refused(gang=gang, attempt=attempt, generation=generation, cause=Cause.LOST,
                                          text="this node has ended the attempt already"))
        elif order.phase is OrderPhase.START:
            tree.start()

    async def _watch_lease(self) -> None:
        """Return when the server has not been heard for a lease: it may give our work to others then."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._welcomed.wait(), _FIRST_WORD_S)
        while (left_s := self._node.link.heard_s + self._welcome.lease_s - time.monotonic()) > 0:
            await asyncio.sleep(left_s)

    def _why(self, duties: Sequence[asyncio.Task[object]]) -> int:
        serving, lease, leaving = duties
        if leaving.done():
            _LOG.info("told to leave")
            return EXIT_OK
        if serving.done():
            exc = _innermost(serving.exception())
            if isinstance(exc, Conflict | NotFound):
                _LOG.error("the server has another supervisor for this node: %s", exc)
                return EXIT_DEPOSED
            _LOG.error("the supervisor failed", exc_info=exc)
            return EXIT_FAILED
        assert lease.done()
        _LOG.error("cut off from the server for more than %g s", self._welcome.lease_s)
        return EXIT_CUT_OFF

    async def _end_everything(self, status: int) -> None:
        for tree in self._trees.values():
            tree.leave()
        await asyncio.gather(*(tree.emptied.wait() for tree in self._trees.values()))
        if status == EXIT_OK:
            await self._say_last_words()
        await self._node.ranks.close()
        self._node.starter.close()
        await self._node.link.close()

    async def _say_last_words(self) -> None:
        # An engine that ends a job knows why; a supervisor that it ends knows only that it was told to leave.
        ended_by_engine = self._job is not None and not self._over
        delivering = [asyncio.create_task(self._node.logs.deliver())]
        if not ended_by_engine:
            delivering.append(asyncio.create_task(self._node.outbox.deliver()))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LAST_WORDS_S):
                for tree in self._trees.values():
                    await tree.over.wait()
                if not ended_by_engine:
                    said = asyncio.create_task(self._node.outbox.empty())
                    await asyncio.wait((said, *delivering), return_when=asyncio.FIRST_COMPLETED)
                    said.cancel()
        for work in delivering:
            work.cancel()
        await asyncio.gather(*delivering, return_exceptions=True)


def _innermost(exc: BaseException | None) -> BaseException | None:
    while isinstance(exc, BaseExceptionGroup):
        exc = exc.exceptions[0]
    return exc
