"""Slurm's host list expressions: n[001-018,020] is n001 to n018 and n020."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product

MOST_NAMES = 200_000  # a typing error in a range must not fill the memory

_PIECE = re.compile(r"[A-Za-z0-9._/:-]+")
_RANGE = re.compile(r"(\d+)(?:-(\d+))?")


def expand(text: str) -> tuple[str, ...]:
    """The names an expression stands for, in order; ValueError saying what is wrong with it."""
    names: list[str] = []
    for part in _parts(text.strip()):
        pieces = list(_pieces(part))
        count = 1
        for piece in pieces:
            count *= len(piece)
        if len(names) + count > MOST_NAMES:
            raise ValueError(f"{text[:60]!r} stands for more than {MOST_NAMES} names")
        names += map("".join, product(*pieces))
    return tuple(names)


def _parts(text: str) -> Iterator[str]:
    """The expression cut at its outer commas."""
    if not text:
        raise ValueError("the list of names is empty")
    start, inside = 0, False
    for i, letter in enumerate(text):
        if letter == "[":
            if inside:
                raise ValueError(f"{text[:60]!r} opens a bracket inside a bracket")
            inside = True
        elif letter == "]":
            if not inside:
                raise ValueError(f"{text[:60]!r} closes a bracket that is not open")
            inside = False
        elif letter == "," and not inside:
            yield text[start:i]
            start = i + 1
    if inside:
        raise ValueError(f"{text[:60]!r} has a bracket that is not closed")
    yield text[start:]


def _pieces(part: str) -> Iterator[list[str]]:
    """The alternatives of each piece of one name."""
    if not part:
        raise ValueError("there is an empty name between commas")
    for piece in re.split(r"(\[[^]]*\])", part):
        if piece.startswith("["):
            yield [number for span in piece[1:-1].split(",") for number in _numbers(span, part)]
        elif piece:
            if not _PIECE.fullmatch(piece):
                raise ValueError(f"{part[:60]!r} is not a name")
            yield [piece]


def _numbers(span: str, part: str) -> list[str]:
    match = _RANGE.fullmatch(span)
    if match is None:
        raise ValueError(f"{span[:40]!r} in {part[:60]!r} is not a number or a range such as 001-018")
    first, last = match[1], match[2] or match[1]
    if int(last) < int(first):
        raise ValueError(f"the range {span[:40]} in {part[:60]!r} runs backwards")
    if int(last) - int(first) >= MOST_NAMES:
        raise ValueError(f"{part[:60]!r} stands for more than {MOST_NAMES} names")
    return [str(number).zfill(len(first)) for number in range(int(first), int(last) + 1)]
