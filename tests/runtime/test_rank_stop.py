"""Being asked to stop: heard once asked for, by this process only, and never instead of another listener."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator

import pytest

from gangline.model.errors import Rejected
from gangline.runtime import stopping
from gangline.runtime.stopping import stop_requested


@pytest.fixture(autouse=True)
def fresh_ear(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(stopping, "_ear", None)
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


def test_it_stays_true_and_whoever_listened_before_still_hears() -> None:
    heard: list[int] = []
    signal.signal(signal.SIGTERM, lambda signum, _: heard.append(signum))
    assert not stop_requested()
    os.kill(os.getpid(), signal.SIGTERM)
    assert stop_requested()
    assert stop_requested()
    assert heard == [signal.SIGTERM]


def test_a_child_does_not_take_its_parents_request_for_its_own() -> None:
    assert not stop_requested()
    os.kill(os.getpid(), signal.SIGTERM)
    assert stop_requested()
    if (child := os.fork()) == 0:
        os._exit(5 if stop_requested() else 0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_child_ends_as_it_would_without_us() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    assert not stop_requested()
    if (child := os.fork()) == 0:
        os.kill(os.getpid(), signal.SIGTERM)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGTERM


def test_only_the_main_thread_may_begin_to_listen() -> None:
    said: list[object] = []

    def ask() -> None:
        try:
            said.append(stop_requested())
        except Rejected as exc:
            said.append(exc.fix)

    for begun in (False, True):
        if begun:
            stop_requested()
        thread = threading.Thread(target=ask)
        thread.start()
        thread.join()
    assert said == ["call it once in the main thread, before the others begin", False]


def test_the_supervisor_finds_a_note_of_it_beside_the_ranks_place(supervise, be_rank) -> None:
    fake = supervise(2)
    be_rank(fake, 1)
    assert not stop_requested()
    assert not list(fake.home.glob("*.stopped"))
    os.kill(os.getpid(), signal.SIGTERM)
    assert stop_requested()
    assert [path.name for path in fake.home.glob("*.stopped")] == ["rank-1.stopped"]
