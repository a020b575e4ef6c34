"""Following one rank's log: whole lines as they come, over all attempts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gangline.model.gang import GangView

if TYPE_CHECKING:
    from gangline.client.http import Client

_WAIT_S = 20.0


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line a rank wrote, without its line break."""

    attempt: int
    rank: int
    text: str


class Lines:
    """Cuts text that comes in pieces into whole lines."""

    def __init__(self) -> None:
        self._rest = ""

    def add(self, text: str) -> list[str]:
        """The lines that are whole now."""
        *whole, self._rest = (self._rest + text).split("\n")
        return [line.removesuffix("\r") for line in whole]

    def end(self) -> list[str]:
        """The last line, if it has no line break."""
        rest, self._rest = self._rest, ""
        return [rest] if rest else []


def tail(client: Client, gang: str, rank: int, *, attempt: int | None = None,
         follow: bool = True) -> Iterator[LogLine]:
    """Lines of a rank in order; with `follow` until the gang (or the one `attempt` given) is over.

    Without `attempt` it begins with the latest one and goes on with each that follows.
    """
    view = client.observe(gang)
    number = attempt if attempt is not None else view.attempts[-1].number if view.attempts else 1
    cursor = 0
    while True:
        if any(a.number >= number for a in view.attempts):
            yield from tail_attempt(client, gang, rank, number, follow=follow)
            if attempt is not None or not follow:
                return
            number += 1
        elif view.state.final or not follow:
            return
        else:
            cursor = client.events(gang, cursor, _WAIT_S).cursor
        view = client.observe(gang)


def tail_attempt(client: Client, gang: str, rank: int, attempt: int, *, follow: bool) -> Iterator[LogLine]:
    """Lines of a rank in one attempt; with `follow` until that attempt is over."""
    lines, offset, over = Lines(), 0, not follow
    while True:
        # Without a number the server also answers when another attempt begins, instead of holding on.
        chunk = client.logs(gang, rank, attempt if over else None, offset, 0.0 if over else _WAIT_S)
        if chunk.attempt != attempt:
            over = True
            continue
        for text in lines.add(chunk.text):
            yield LogLine(attempt, rank, text)
        if chunk.next > offset:
            offset = chunk.next
        elif over:
            break
        else:
            over = attempt_over(client.observe(gang), attempt)
    for text in lines.end():
        yield LogLine(attempt, rank, text)


def attempt_over(view: GangView, attempt: int) -> bool:
    """Whether nothing more can be written in that attempt."""
    return view.state.final or any(
        a.number > attempt or (a.number == attempt and a.ended_ms is not None) for a in view.attempts)
