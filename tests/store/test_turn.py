"""Transactions run in the order in which they were asked for."""

from __future__ import annotations

import threading

import pytest

from gangline.model.errors import Bug
from gangline.store.turn import Turn


def test_who_has_waited_longest_comes_next_however_often_another_asks() -> None:
    turn, order = Turn(), []
    waiting, go = threading.Event(), threading.Event()

    def wait_for_it() -> None:
        waiting.set()
        with turn:
            order.append("waited")
            go.set()

    with turn:
        thread = threading.Thread(target=wait_for_it)
        thread.start()
        assert waiting.wait(10)
        while not turn.waiting:
            pass
        order.append("first")
    with turn:  # at once, while the other one is not awake yet
        order.append("again")
    assert go.wait(10)
    thread.join()
    assert order == ["first", "waited", "again"]


def test_it_is_no_lock_to_be_taken_twice_and_is_given_back_on_errors() -> None:
    turn = Turn()
    with turn, pytest.raises(Bug, match="inside another"), turn:
        pass
    with pytest.raises(ZeroDivisionError), turn:
        raise ZeroDivisionError
    with turn:
        pass
    assert turn.waiting == 0
