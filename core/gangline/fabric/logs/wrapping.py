"""A raw line taken out of what log drivers wrap it in, and split where several processes wrote into it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

MAX_TEXT = 8192  # of one message; NCCL's own buffer is 1,024 and its plugins' not far above
_MAX_DEPTH = 3  # of JSON in JSON: docker around structlog around a message

# Colour, as the byte itself or as the escape that JSON writes.
_ANSI = re.compile(rb"(?:\x1b|\\u001[bB]|\\x1[bB]|\\033)(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b\n]{0,80}(?:\x07|\x1b\\))")
_ANSI_MARKS = (b"\x1b", b"u001b", b"u001B", b"x1b", b"x1B", b"\\033")

_MESSAGE_KEYS = ("log", "message", "msg", "event", "textPayload", "MESSAGE", "body", "line", "text", "jsonPayload",
                 "content", "_raw")
_TIME_KEYS = ("time", "timestamp", "@timestamp", "ts", "asctime", "receiveTimestamp", "t")
_RANK_KEYS = ("rank", "global_rank", "RANK", "jsonPayload", "labels")

_DAY = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?: ?(?:Z|[+-]\d\d:?\d\d))?"
_CRI = re.compile(rf"({_DAY}) (?:stdout|stderr) ([FP])(?:\S*) ")
_TIME = re.compile(_DAY)
_TAGS = re.compile(r"(?:\[(?:rank|default|worker)[ _-]?(\d{1,7})\] ?:?|\[?rank[ _:=]?(\d{1,7})\]?[:|>]|"
                   r"\[\d+,(\d{1,7})\](?:<std(?:out|err)>)?:|\[(\d{1,7})\]:|(\d{1,7}):(?=[ \t]*\D))\s*", re.IGNORECASE)
_SPEAKER = re.compile(r"([A-Za-z0-9][\w.-]{0,62}):(\d{1,8}):(\d{1,8}) (?=\[-?\d{1,4}\] )")
_USUAL = re.compile(rb"([A-Za-z0-9][\w.-]{0,62}:\d{1,8}):\d{1,8} \[-?\d{1,4}\] NCCL INFO ")
_BAD = ("WARN", "ERROR")
_LEVEL = re.compile(r"\bNCCL (WARN|INFO|ERROR|TRACE|ABORT|VERSION) ?")
_UCX = re.compile(r"\[(?:\d+\.\d+)\] +\[([\w.-]{1,63}):(\d{1,8}):\d+\] +\S+ +(?=UCX )")
_GLUED = re.compile(r"^\d*(?:/?(?:GDRDMA|Shared))+")


@dataclass(frozen=True, slots=True)
class Said:
    """One message of one process. `whole` False: it was cut off, so what it lacks says nothing."""

    text: str
    host: str | None
    pid: int | None
    rank: int | None  # as a prefix or the wrapper tells it
    warns: bool
    whole: bool
    before: str  # what stood in front, where a time may be
    at: str | None  # the wrapper's time


@dataclass(frozen=True, slots=True)
class _Wrapped:
    text: str
    rank: int | None
    at: str | None
    whole: bool


def messages(raw: bytes, *, whole: bool) -> Iterator[Said]:
    """Every message of a line without colours, in order. Any bytes do."""
    for wrapped in _unwrap(raw.decode("utf-8", "replace"), whole):
        yield from _speakers(wrapped)


def usual(raw: bytes) -> tuple[bytes, bytes] | None:
    """Speaker (host:pid) and message of a line that is one process's INFO and nothing more: nearly every line is."""
    found = _USUAL.match(raw)
    if found is None or len(raw) > MAX_TEXT or raw.find(b"NCCL ", found.end()) >= 0:
        return None
    return found[1], raw[found.end():]


def plain(raw: bytes) -> bytes:
    """The line without colours."""
    return _ANSI.sub(b"", raw) if any(mark in raw for mark in _ANSI_MARKS) else raw


def seconds(said: Said) -> float | None:
    """The line's time as Unix seconds: the wrapper's, else the one in front; without a zone it counts as UTC."""
    text = said.at
    if text is None:
        found = _TIME.search(said.before)
        text = found[0] if found else None
    return _instant(text) if text else None


def _instant(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        pass
    else:
        for scale in (1.0, 1e3, 1e6, 1e9):  # seconds to nanoseconds, by size
            if 1e9 <= number / scale < 1e10:
                return number / scale
        return None
    found = _TIME.match(text)
    if found is None:
        return None
    day = re.sub(r"([.,]\d{6})\d+", r"\1", found[0]).replace(",", ".").replace(" +", "+").replace(" Z", "Z")
    try:
        when = datetime.fromisoformat(day)
    except ValueError:
        return None
    return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()


def _unwrap(text: str, whole: bool) -> Iterator[_Wrapped]:
    at = None
    cri = _CRI.match(text)
    if cri is not None:
        text, at, whole = text[cri.end():], cri[1], whole and cri[2] == "F"
    start = text.find("{")
    if 0 <= start <= 64 and '"' in text:
        found = _from_json(text[start:], at, _MAX_DEPTH)
        if found is not None:
            for line in found.text.split("\n"):
                if line.strip():
                    yield _Wrapped(line, found.rank, found.at, whole)
            return
    yield _Wrapped(text, None, at, whole)


def _from_json(text: str, at: str | None, depth: int) -> _Wrapped | None:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    message = _text(value, depth)
    if message is None:
        return None
    at = next((str(value[key]) for key in _TIME_KEYS if isinstance(value.get(key), str | int | float)), at)
    rank = _rank(value)
    inner = _from_json(message, at, depth - 1) if depth > 1 and message.lstrip().startswith("{") else None
    if inner is not None:
        return _Wrapped(inner.text, inner.rank if inner.rank is not None else rank, inner.at, True)
    return _Wrapped(plain(message.encode("utf-8", "replace")).decode("utf-8", "replace"), rank, at, True)


def _text(value: dict[str, Any], depth: int) -> str | None:
    for key in _MESSAGE_KEYS:
        found = value.get(key)
        if isinstance(found, str):
            return found
        if isinstance(found, dict) and depth > 0:
            inner = _text(found, depth - 1)
            if inner is not None:
                return inner
    return None


def _rank(value: dict[str, Any]) -> int | None:
    for key in _RANK_KEYS:
        found = value.get(key)
        if isinstance(found, dict):
            found = found.get("rank")
        if isinstance(found, str) and found.isascii() and found.isdigit() and len(found) <= 7:
            return int(found)
        if isinstance(found, int) and not isinstance(found, bool) and 0 <= found < 10_000_000:
            return found
    return None


def _speakers(wrapped: _Wrapped) -> Iterator[Said]:
    """One message per `host:pid:tid [device] NCCL`; what stands before the first is its prefix."""
    text = wrapped.text
    starts = list(_SPEAKER.finditer(text)) if "NCCL" in text else []
    if not starts:
        yield from _lone(wrapped)
        return
    before = text[:starts[0].start()]
    rank = wrapped.rank if wrapped.rank is not None else tag(before)
    for number, found in enumerate(starts):
        last = number + 1 == len(starts)
        piece = text[found.end():] if last else text[found.end():starts[number + 1].start()]
        glue = "" if last else _glue(starts[number + 1])
        level = _LEVEL.search(piece[:400])
        if level is not None:
            host = _GLUED.sub("", found[1]) or found[1]
            yield Said((piece[level.end():] + glue)[:MAX_TEXT], host, int(found[2]), rank, level[1] in _BAD,
                       wrapped.whole and last and len(piece) <= MAX_TEXT, before[-200:], wrapped.at)


def _glue(after: re.Match[str]) -> str:
    """The end of a cut message that stuck to the next one's host name."""
    found = _GLUED.match(after[1])
    return found[0] if found else ""


def _lone(wrapped: _Wrapped) -> Iterator[Said]:
    """A message of no NCCL prefix: UCX's, torch's, a program's, or NCCL's with the host filtered away."""
    text, host, pid, rank = wrapped.text, None, None, wrapped.rank
    before = ""
    ucx = _UCX.search(text)
    level = _LEVEL.search(text[:600])
    if ucx is not None:
        before, text, host, pid = text[:ucx.end()], text[ucx.end():], ucx[1], int(ucx[2])
    elif level is not None:
        before, text = text[:level.end()], text[level.end():]
    else:
        found = _TAGS.match(text)
        if found is not None:
            before, text = text[:found.end()], text[found.end():]
    rank = rank if rank is not None else tag(before)
    yield Said(text[:MAX_TEXT], host, pid, rank, level is not None and level[1] in _BAD,
               wrapped.whole and len(text) <= MAX_TEXT, before[-200:] or wrapped.text[:40], wrapped.at)


def tag(before: str) -> int | None:
    """The rank that a launcher put in front of a line: `[rank3]:`, `[default3]:`, `3:`, `[1,3]<stdout>:`."""
    found = _TAGS.match(before.lstrip())
    return int(next(group for group in found.groups() if group)) if found else None
