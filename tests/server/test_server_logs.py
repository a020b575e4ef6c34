from __future__ import annotations

import base64
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline.model.errors import Rejected
from gangline.model.orders import LogPiece
from gangline.server.logs import CHUNK_BYTES, LogStore, whole_characters


def piece(offset: int, data: bytes, *, rank: int = 0, gang: str = "g-aaaaaaaaaaaa") -> LogPiece:
    return LogPiece(gang=gang, attempt=1, generation=1, rank=rank, offset=offset,
                    data_b64=base64.b64encode(data).decode())


def whole(logs: LogStore, rank: int = 0) -> str:
    text, offset = "", 0
    while chunk := logs.read("g-aaaaaaaaaaaa", 1, rank, offset, ended=True):
        if not chunk.text:
            return text
        text, offset = text + chunk.text, chunk.next
    raise AssertionError


def test_pieces_are_stored_once_in_order_whatever_is_sent_twice(tmp_path: Path) -> None:
    logs = LogStore(tmp_path)
    assert logs.store([piece(0, b"hello "), piece(6, b"wor")]) == []
    assert logs.store([piece(0, b"hello "), piece(6, b"world"), piece(0, b"again", rank=1)]) == []
    assert whole(logs) == "hello world"
    assert whole(logs, rank=1) == "again"


def test_a_gap_is_refused_and_says_where_to_go_on(tmp_path: Path) -> None:
    logs = LogStore(tmp_path)
    logs.store([piece(0, b"abc")])
    gaps = logs.store([piece(5, b"fgh"), piece(0, b"other", rank=1)])
    assert [(gap.rank, gap.have) for gap in gaps] == [(0, 3)]
    assert whole(logs) == "abc"
    assert whole(logs, rank=1) == "other"
    assert logs.store([piece(gaps[0].have, b"defgh")]) == []
    assert whole(logs) == "abcdefgh"


@pytest.mark.parametrize("gang", ["../../etc", "", "a/b", ".", "g\0"])
def test_a_gang_cannot_name_a_place_outside_the_logs(tmp_path: Path, gang: str) -> None:
    with pytest.raises(Rejected):
        LogStore(tmp_path / "logs").store([piece(0, b"x", gang=gang)])
    assert list(tmp_path.iterdir()) == []


def test_data_that_is_not_base64_is_refused(tmp_path: Path) -> None:
    bad = piece(0, b"x").model_copy(update={"data_b64": "!!!"})
    with pytest.raises(Rejected, match="base64"):
        LogStore(tmp_path).store([bad])


def test_a_log_that_is_not_there_yet_reads_as_empty(tmp_path: Path) -> None:
    chunk = LogStore(tmp_path).read("g-aaaaaaaaaaaa", 1, 0, 7, ended=False)
    assert (chunk.text, chunk.offset, chunk.next) == ("", 7, 7)


def test_half_a_character_waits_for_its_rest_unless_the_log_has_ended(tmp_path: Path) -> None:
    logs = LogStore(tmp_path)
    logs.store([piece(0, "é".encode()[:1])])
    assert logs.read("g-aaaaaaaaaaaa", 1, 0, 0, ended=False).text == ""
    assert logs.read("g-aaaaaaaaaaaa", 1, 0, 0, ended=True).text == "\N{REPLACEMENT CHARACTER}"
    logs.store([piece(1, "é".encode()[1:])])
    assert logs.read("g-aaaaaaaaaaaa", 1, 0, 0, ended=False).text == "é"


def test_a_long_log_is_read_in_chunks_that_cut_no_character(tmp_path: Path) -> None:
    text = "a" + "漢" * CHUNK_BYTES
    logs = LogStore(tmp_path)
    logs.store([piece(0, text.encode())])
    assert whole(logs) == text


@given(st.text(), st.integers(min_value=0))
def test_a_cut_falls_between_characters(text: str, at: int) -> None:
    data = text.encode()[: at % (len(text.encode()) + 1)]
    cut = whole_characters(data)
    assert text.startswith(data[:cut].decode())
    assert len(data) - cut < 4


@given(st.binary())
def test_bytes_that_are_no_text_never_hold_a_log_up(data: bytes) -> None:
    assert len(data) - whole_characters(data) < 4
