"""Wrapped, coloured, interleaved and cut lines; pieces of any size; bytes of any kind."""

from __future__ import annotations

import json
import random
import tracemalloc
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nccl_log import channel, good, info, start, warn

from gangline.fabric.logs import Diagnosis, GangVerdict
from gangline.fabric.logs.lines import MAX_LINE, LineCutter

DOWN = "NET/IB : mlx5_7:1 Got async error event: port error"
LINES = [*good(0), *good(1), warn(1, DOWN)]
BROKEN = [*good(0, via="Socket/0", net="Socket"), *good(1), warn(1, DOWN)]


def verdict_of(data: bytes, *, rank: int | None = None) -> GangVerdict:
    diagnosis = Diagnosis()
    diagnosis.feed(rank, data)
    diagnosis.end(rank)
    return diagnosis.verdict()


def docker(line: str, number: int) -> str:
    return json.dumps({"log": line + "\n", "stream": "stdout", "time": f"2025-11-30T10:00:{number:02}.123456789Z"})


def cri(line: str, number: int) -> str:
    return f"2025-11-30T10:00:{number:02}.123456789+00:00 stderr F {line}"


def structlog(line: str, number: int) -> str:
    return json.dumps({"event": line, "level": "info", "timestamp": f"2025-11-30T10:00:{number:02}Z", "rank": "x"})


def in_docker(line: str, number: int) -> str:
    return docker(structlog(line, number), number)


def cloud(line: str, number: int) -> str:
    return json.dumps({"jsonPayload": {"message": line}, "timestamp": f"2025-11-30T10:00:{number:02}Z"})


def slashes(line: str, number: int) -> str:
    return docker(line, number).replace("/", "\\/")


def in_cri(line: str, number: int) -> str:
    return cri(structlog(line, number), number)


def coloured(line: str, number: int) -> str:
    bright = line.replace("via NET", "via \x1b[1mNET\x1b[0m").replace("NCCL", "\x1b[36mNCCL\x1b[0m")
    return f"\x1b[32m{bright}\x1b[0m"


def coloured_json(line: str, number: int) -> str:
    return docker(coloured(line, number), number)


def timed(line: str, number: int) -> str:
    return f"2025-11-30 10:00:{number:02},500 INFO {line}"


def windows(line: str, number: int) -> str:
    return f"{line}\r"


def after_a_bar(line: str, number: int) -> str:
    return f" 12%|#   | 3/25 [00:01<00:09]\r 16%|##  | 4/25 [00:02<00:08]\r{line}"


WRAPS = (docker, cri, structlog, in_docker, cloud, slashes, in_cri, coloured, coloured_json, timed, windows,
         after_a_bar)


@pytest.mark.parametrize("wrap", WRAPS)
@pytest.mark.parametrize(("lines", "state"), [(LINES, "proved"), (BROKEN, "mixed")])
def test_wrapped_logs_tell_the_same(wrap: type, lines: Sequence[str], state: str) -> None:
    text = "\n".join(wrap(line, number) for number, line in enumerate(lines)) + "\n"
    found = verdict_of(text.encode())
    assert (found.state, found.cause and found.cause.code, found.blame.hca) == (state, "port-down", "mlx5_7:1")
    assert [rank.rank for rank in found.ranks] == ["0", "1"]


@pytest.mark.parametrize("prefix", ["[rank{}]: ", "[default{}]:", "{}: ", " {}: ", "[1,{}]<stdout>:", "rank{}: ",
                                    "[Rank {}] "])
def test_ranks_are_told_by_the_launchers_prefix(prefix: str) -> None:
    lines = [prefix.format(rank + 4) + channel(rank) for rank in (0, 1)]
    assert [rank.rank for rank in verdict_of("\n".join(lines).encode()).ranks] == ["4", "5"]


def test_json_names_the_rank_and_the_time() -> None:
    lines = [json.dumps({"message": channel(rank), "rank": rank + 8}) for rank in (0, 1)]
    lines.append(json.dumps({"message": warn(0, DOWN), "rank": 8, "time": 1764496800500}))
    found = verdict_of("\n".join(lines).encode())
    assert [rank.rank for rank in found.ranks] == ["8", "9"]
    assert found.evidence is not None
    assert found.evidence.at_s == 1764496800.5


@pytest.mark.parametrize(("text", "at_s"), [
    ("2025-11-30T10:00:00Z stdout F ", 1764496800.0), ("2025-11-30T11:00:00.250000000+01:00 stderr F ", 1764496800.25),
    ("[2025-11-30 10:00:00.5] ", 1764496800.5), ("2025-11-30 10:00:00,750 - x - ", 1764496800.75), ("", None),
    ("2025-99-30 10:00:00 ", None),
])
def test_times(text: str, at_s: float | None) -> None:
    found = verdict_of(f"{text}{warn(0, DOWN)}\n".encode())
    assert found.evidence is not None
    assert found.evidence.at_s == at_s


def test_two_processes_in_one_line() -> None:
    """One process's write ends in the middle of another's line, at every place it can."""
    first, second = channel(0), channel(1)
    head = [*start(0), *start(1), second]
    for cut in range(1, len(first)):
        found = verdict_of("\n".join([*head, first[:cut] + second, first[cut:]]).encode() + b"\n")
        assert found.state in ("proved", "unproved"), (cut, found.reason)
        assert {rank.rank for rank in found.ranks} == {"0", "1"}, cut


def test_a_channel_that_stuck_to_the_next_line_is_proof_only_as_far_as_it_was_seen() -> None:
    head = "\n".join([*start(0), *start(1), channel(1)]) + "\n"
    whole = verdict_of(f"{head}{channel(0)}{info(1, 'Connected all rings')}\n".encode())
    cut = verdict_of(f"{head}{channel(0, 'IB/0')}{info(1, 'Connected all rings')}\n".encode())
    assert (whole.state, cut.state) == ("proved", "unproved")


@pytest.mark.parametrize("tail", ["IB/0", "IB/0/GDR", "IB/", "Sock"])
def test_the_last_line_may_be_cut(tail: str) -> None:
    data = "\n".join([*good(0), *start(1), channel(1, tail)]).encode()
    found = verdict_of(data)
    assert found.ranks[1].state == "unproved"


def test_a_partial_line_of_a_container_runtime_says_nothing_by_what_it_lacks() -> None:
    line = cri(channel(0, "IB/0"), 1).replace(" F ", " P ")
    assert verdict_of(f"{line}\n".encode()).ranks[0].state == "unproved"


def test_an_unfinished_line_waits_for_its_end() -> None:
    diagnosis = Diagnosis()
    text = "".join(f"{line}\n" for line in good(0)).encode()
    diagnosis.feed(0, text[:-4])
    assert diagnosis.verdict().ranks[0].channels == 1
    diagnosis.feed(0, text[-4:])
    assert diagnosis.verdict().ranks[0].channels == 2


def test_streams_do_not_mix() -> None:
    """Pieces of two streams in turn, each cut in the middle of lines."""
    diagnosis = Diagnosis()
    texts = ["".join(f"{line}\n" for line in good(rank)).encode() for rank in (0, 1)]
    for start_ in range(0, max(map(len, texts)), 7):
        for rank, text in enumerate(texts):
            diagnosis.feed(rank, text[start_:start_ + 7])
    assert diagnosis.verdict().state == "proved"


CHUNKS = [line.encode() for line in (*LINES, *BROKEN, docker(channel(0), 1), cri(warn(0, DOWN), 2), "CUDA error: x",
                                     coloured(channel(1), 3), "[rank3]: ValueError: x", "{", '{"log": 1}', "NCCL",
                                     "na:1:2 [0] NCCL ", '{"log": "NCCL', "via NET/", "UCX ERROR", "\r", "\x1b[",
                                     "[" * 50 + "NCCL", '{"a":' * 60 + "NCCL", "Error: ", "status=99999999")]
ENDS = [b"\n", b"\n", b"\r\n", b" "]
texts = st.lists(st.one_of(st.sampled_from(CHUNKS), st.sampled_from(ENDS), st.binary(max_size=40)),
                 max_size=40).map(b"".join)


@given(texts, st.one_of(st.none(), st.integers(0, 3)))
@settings(max_examples=100, deadline=None)
def test_no_bytes_make_it_fall_over(data: bytes, rank: int | None) -> None:
    found = verdict_of(data, rank=rank)
    assert found.state is not None


@given(texts, st.data())
@settings(max_examples=100, deadline=None)
def test_pieces_tell_what_the_whole_tells(data: bytes, draw: st.DataObject) -> None:
    cuts = sorted(draw.draw(st.lists(st.integers(0, len(data)), max_size=8)))
    diagnosis = Diagnosis()
    for low, high in zip([0, *cuts], [*cuts, len(data)], strict=True):
        diagnosis.feed(None, data[low:high])
        diagnosis.verdict()
    diagnosis.end(None)
    assert diagnosis.verdict() == verdict_of(data)


@given(st.lists(st.sampled_from([b"NCCL ", b"x" * 700, b"\n", b"\r", b"NET/", b"y" * (MAX_LINE - 3)]), max_size=24),
       st.integers(1, 3 * MAX_LINE))
@settings(max_examples=60, deadline=None)
def test_long_lines_are_cut_alike_whatever_the_pieces(parts: list[bytes], size: int) -> None:
    data = b"".join(parts)
    whole, pieces = LineCutter(), LineCutter()
    expected = [*whole.cut(data), *whole.end()]
    found = [line for start_ in range(0, len(data), size) for line in pieces.cut(data[start_:start_ + size])]
    assert [*found, *pieces.end()] == expected
    assert all(len(line) <= MAX_LINE for line, _ in expected)


def test_memory_is_bounded_whatever_is_printed() -> None:
    """Endless lines, endless names, endless errors: some kB stay."""
    rnd = random.Random(5)
    diagnosis = Diagnosis()
    tracemalloc.start()
    for turn in range(200):
        diagnosis.feed(0, b"z" * 50_000)
        lines = [channel(0, f"net{turn}-{rnd.random()}/{turn}/GDRDMA"), info(0, f"Using network n{rnd.random()}"),
                 warn(0, DOWN.replace("mlx5_7", f"mlx5_{turn}"))]
        diagnosis.feed(1, "".join(f"{line}\n" for line in lines).encode() * 5)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < 3_000_000
