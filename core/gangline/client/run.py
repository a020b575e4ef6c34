"""`Run`: the handle of a submitted gang."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from gangline.client.tail import LogLine, tail
from gangline.model.errors import GangFailed
from gangline.model.gang import End, Ensured, Event, GangView
from gangline.model.states import Cause, GangState

if TYPE_CHECKING:
    from gangline.client.http import Client

_HOLD_S = 25.0


class Run:
    """A submitted gang and the right to act for it.

    Letting go of the handle changes nothing for the gang: it goes on.
    """

    def __init__(self, client: Client, ensured: Ensured) -> None:
        self.gang = ensured.gang
        self.token = ensured.token
        self._client = client

    def __repr__(self) -> str:
        return f"Run({self.gang})"

    def view(self) -> GangView:
        """The gang now."""
        return self._client.observe(self.gang)

    def wait(self, timeout_s: float | None = None) -> GangView:
        """The gang's last view, once it is in a final state, whichever that is.

        Raises:
            TimeoutError: it is not over after `timeout_s` seconds; it goes on.
            Superseded: another owner acts for its slot now.
            Unavailable: no server answers; the gang goes on, and this may be called again.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        cursor = 0
        while True:
            left_s = _HOLD_S if deadline is None else max(0.0, deadline - time.monotonic())
            news = self._client.watch(self.gang, self.token, cursor, min(left_s, _HOLD_S))
            cursor = news.cursor
            if news.view.state.final:
                return news.view
            if deadline is not None and time.monotonic() >= deadline:
                raise TimeoutError(f"{describe(news.view)} is {news.view.state} after {timeout_s:g} s; "
                                   "it goes on")

    def result(self, timeout_s: float | None = None) -> Any:
        """Rank 0's value, once the gang has succeeded.

        Raises:
            GangFailed: it ended otherwise; the message says which rank, where, why, and its last lines.
            TimeoutError: it is not over after `timeout_s` seconds; it goes on.
        """
        view = self.wait(timeout_s)
        if view.state is not GangState.SUCCEEDED:
            raise failed(view)
        return view.result

    def cancel(self, reason: str = "cancelled by its submitter") -> GangView:
        """Ask for the gang to stop. Does nothing when another owner acts for its slot now."""
        return self._client.cancel(self.gang, self.token, reason)

    def events(self) -> Iterator[Event]:
        """What happened and happens to the gang, until it is over."""
        cursor = 0
        while True:
            final = self.view().state.final
            page = self._client.events(self.gang, cursor, 0.0 if final else _HOLD_S)
            yield from page.events
            if final and not page.events:
                return
            cursor = page.cursor

    def logs(self, rank: int = 0, *, follow: bool = True) -> Iterator[LogLine]:
        """Lines of one rank's log; with `follow` until the gang is over."""
        return tail(self._client, self.gang, rank, follow=follow)


def failed(view: GangView) -> GangFailed:
    """The error for a gang that ended without success, readable at one glance."""
    lines = [f"{describe(view)} {view.state}: {blame(view.end)}"]
    if view.end is not None and view.end.last_lines:
        lines.append("last lines:")
        lines += [f"  {line}" for line in view.end.last_lines[-15:]]
    return GangFailed("\n".join(lines), view=view.full())


def describe(view: GangView) -> str:
    """A gang as messages name it."""
    return f"{view.name} ({view.gang})"


def blame(end: End | None) -> str:
    """Which rank, where, and why, in one line."""
    if end is None:
        return "no reason was recorded"
    how = f" [{end.cause}]" if end.cause is not Cause.USER else ""
    return located(end.text, end.rank, end.node) + how


def located(text: str, rank: int | None, node: str | None) -> str:
    """A text about a rank with the rank and node named once, at its front."""
    who = f"rank {rank}" if rank is not None else ""
    place = f"{who} on {node}".strip() if node is not None else who
    if who and text.startswith(f"{who} "):
        return place + text.removeprefix(who)
    return f"{place}: {text}" if place and (node is None or node not in text) else text
