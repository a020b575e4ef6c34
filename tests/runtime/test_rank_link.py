"""The line to the supervisor mends itself once, and never waits for ever."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gangline.model.errors import Bug, Conflict, NotFound, Rejected, Unavailable
from gangline.runtime.link import Link, supervisor
from gangline.runtime.progress import report_progress


@contextmanager
def _listening(path: Path, serve: Callable[[socket.socket], None]) -> Iterator[Link]:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()
        thread = threading.Thread(target=serve, args=(server,), daemon=True)
        thread.start()
        link = Link(str(path), "t", 2)
        try:
            yield link
        finally:
            link.close()
            thread.join(10)


def _answer(server: socket.socket, reply: bytes) -> dict[str, object]:
    peer, _ = server.accept()
    with peer, peer.makefile("rb") as lines:
        request = json.loads(lines.readline())
        peer.sendall(reply)
    return request


def test_a_lost_connection_is_opened_again_once_and_the_request_repeated(tmp_path: Path) -> None:
    seen: list[object] = []

    def serve(server: socket.socket) -> None:
        seen.append(_answer(server, b'{"ok": tr'))
        seen.append(_answer(server, b'{"ok": true, "save": 3}\n'))

    with _listening(tmp_path / "s", serve) as link:
        assert link.request("open_save", mount="/c")["save"] == 3
    assert seen == [{"op": "open_save", "token": "t", "rank": 2, "mount": "/c"}] * 2


def test_a_second_loss_is_unavailable(tmp_path: Path) -> None:
    def serve(server: socket.socket) -> None:
        _answer(server, b"")
        _answer(server, b"")

    with _listening(tmp_path / "s", serve) as link, pytest.raises(Unavailable, match="cannot be reached"):
        link.request("hello")


def test_silence_ends_at_the_timeout_and_a_late_reply_is_not_taken_for_the_next(tmp_path: Path) -> None:
    asked_again = threading.Event()

    def serve(server: socket.socket) -> None:
        late, _ = server.accept()
        with late:
            assert asked_again.wait(10)
            _answer(server, b'{"ok": true, "n": 2}\n')

    with _listening(tmp_path / "s", serve) as link:
        with pytest.raises(Unavailable, match=r"within 0\.05 s"):
            link.request("save_state", timeout_s=0.05)
        asked_again.set()
        assert link.request("save_state")["n"] == 2


def test_nobody_there_is_unavailable(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="cannot be reached"):
        Link(str(tmp_path / "none"), "t", 0).request("hello")


@pytest.mark.parametrize("error", [Rejected("no", field="mount", fix="yes"), NotFound("x"), Conflict("y"),
                                   Bug("z")])
def test_a_refusal_is_raised_as_what_it_is(tmp_path: Path, error) -> None:
    reply = json.dumps({"ok": False, "error": error.to_wire()}).encode() + b"\n"
    with (_listening(tmp_path / "s", lambda server: _answer(server, reply) and None) as link,
          pytest.raises(type(error)) as raised):
        link.request("open_save")
    assert raised.value.to_wire() == error.to_wire()


@pytest.mark.parametrize("reply", [b"what?\n", b"[]\n"])
def test_nonsense_is_a_bug(tmp_path: Path, reply: bytes) -> None:
    with (_listening(tmp_path / "s", lambda server: _answer(server, reply) and None) as link,
          pytest.raises(Bug)):
        link.request("hello")


def test_what_is_not_json_is_refused_before_it_is_sent(tmp_path: Path) -> None:
    with pytest.raises(Rejected, match="JSON"):
        Link(str(tmp_path / "none"), "t", 0).request("progress", progress=float("nan"))


def test_progress_of_rank_0_is_told_and_no_trouble_stops_training(supervise, be_rank, monkeypatch) -> None:
    report_progress(1)  # outside a gang: nobody to tell
    fake = supervise(2)
    be_rank(fake, 0)
    report_progress(3, total=10, loss=0.5, bad=float("inf"))
    be_rank(fake, 1)
    report_progress(4)
    [told] = fake.progress
    assert told.pop("at_ms") > 0
    assert told == {"step": 3, "total": 10, "metrics": {"loss": 0.5}}
    be_rank(fake, 0)
    monkeypatch.setenv("GANGLINE_SUPERVISOR", str(fake.home / "gone"))
    report_progress(5)


def test_a_rank_keeps_one_connection(supervise, be_rank) -> None:
    assert supervisor() is None
    be_rank(supervise(1))
    assert supervisor() is supervisor() is not None
