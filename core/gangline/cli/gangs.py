"""`list`, `show`, `logs`, `cancel`, `explain`: gangs that are there."""

from __future__ import annotations

import getpass
import signal
import time

import click

from gangline.cli.app import Reach, as_json, cli, reaches_server
from gangline.cli.feed import Feed, LogEnd, Lost
from gangline.cli.output import clock, news, show, show_json, table
from gangline.cli.render_events import in_words
from gangline.cli.render_follow import log_line
from gangline.cli.render_gang import explanation, gang_details, gang_list
from gangline.cli.render_passes import explained
from gangline.cli.runs import usage_of
from gangline.cli.screen import Screen
from gangline.client.http import Client
from gangline.client.tail import LogLine, tail
from gangline.model.errors import NotFound, Rejected
from gangline.model.gang import Event, GangView
from gangline.model.states import FINAL, GangState


def now_ms() -> int:
    return int(time.time() * 1000)


@cli.command("list")
@click.option("--state", "states", multiple=True, type=click.Choice([s.value for s in GangState]),
              help="Only gangs in this state. May be repeated.")
@click.option("--active", is_flag=True, help="Only gangs that are not over.")
@click.option("--slot", "slot_prefix", metavar="PREFIX", help="Only gangs whose slot begins so.")
@click.option("--limit", type=click.IntRange(min=1), default=50, show_default=True, help="At most so many.")
@as_json
@reaches_server
def list_command(reach: Reach, states: tuple[str, ...], active: bool, slot_prefix: str | None, limit: int,
                 as_json: bool) -> None:
    """List gangs, newest first.

    \b
    Examples:
      gangline list --active
      gangline list --state failed --limit 5
    """
    if active:
        states = tuple(s.value for s in GangState if s not in FINAL)
    views = reach.client().list(states or None, slot_prefix, limit)
    if as_json:
        show_json({"gangs": [view.full() for view in views]})
    else:
        show(gang_list(views, now_ms()))


@cli.command("show")
@click.argument("gang")
@as_json
@reaches_server
def show_command(reach: Reach, gang: str, as_json: bool) -> None:
    """Show all there is to know of one gang.

    What it asks for, its attempts, ranks, versions, cost and end.
    GANG is an id, or a name: of an active gang, else of the newest one that is over.
    """
    client = reach.client()
    view = find(client, gang)
    if as_json:
        show_json(view.full())
    else:
        show(gang_details(view, usage_of(client, view), now_ms()))


@cli.command()
@click.argument("gang")
@as_json
@reaches_server
def explain(reach: Reach, gang: str, as_json: bool) -> None:
    """Say why a gang waits, or how it came to where it is.

    While it waits: where it was tried, what is short, which gangs of which pipeline steps are in its way,
    when the plan expects to start it, and with which one change it would start now. Always: what happened
    to it so far.
    """
    client = reach.client()
    view = find(client, gang)
    events = all_events(client, view)
    found = client.explain(view.gang) if view.state is GangState.QUEUED else None
    if as_json:
        show_json({"gang": view.full(), "events": [event.full() for event in events],
                   **({} if found is None else {"explanation": found.full()})})
        return
    show(explanation(view, now_ms()))
    if found is not None:
        show(explained(found))
    words = [(clock(event.at_ms), text) for event in events if (text := in_words(event))]
    show(table(("WHEN", "WHAT"), words, indent="  "))


@cli.command()
@click.argument("gang")
@click.option("-f", "--follow", is_flag=True, help="Go on until the gang is over.")
@click.option("--rank", "ranks", multiple=True, type=click.IntRange(min=0),
              help="Only this rank. May be repeated [default: all, up to 16].")
@click.option("--attempt", type=click.IntRange(min=1), help="Only this attempt [default: the latest].")
@as_json
@reaches_server
def logs(reach: Reach, gang: str, follow: bool, ranks: tuple[int, ...], attempt: int | None,
         as_json: bool) -> None:
    """Print what the ranks of a gang wrote.

    With --json one object a line: {"attempt", "rank", "text"}.

    \b
    Examples:
      gangline logs -f sft
      gangline logs g-7f3kq2m4x5a1 --rank 3 --attempt 2
    """
    client = reach.client()
    view = find(client, gang)
    if attempt is not None and attempt > len(view.attempts):
        raise NotFound(f"{view.gang} has had {len(view.attempts)} attempts", field="--attempt",
                       fix=f"see: gangline show {view.gang}")
    if follow:
        _follow_logs(client, view, ranks, attempt, as_json)
        return
    for rank in _chosen(view, ranks):
        for line in tail(client, view.gang, rank, attempt=attempt, follow=False):
            _print_line(Screen(), line, len(view.ranks), as_json)


@cli.command()
@click.argument("gangs", nargs=-1, required=True, metavar="GANG...")
@click.option("--reason", help="Why, for those who will ask.")
@as_json
@reaches_server
def cancel(reach: Reach, gangs: tuple[str, ...], reason: str | None, as_json: bool) -> None:
    """Cancel gangs.

    Their ranks get SIGTERM and the time of their grace, then SIGKILL.
    """
    client = reach.client()
    views = [find(client, gang) for gang in gangs]  # a wrong name among them cancels none
    who = f"{getpass.getuser()}: {reason}" if reason else getpass.getuser()
    done = [view if view.state.final else client.cancel(view.gang, None, who) for view in views]
    if as_json:
        show_json({"gangs": [view.full() for view in done]})
        return
    for before, after in zip(views, done, strict=True):
        news(_over(before) if before.state.final else
             f"{after.gang} is {after.state}" if after.state.final else f"{after.gang} is stopping")


def _over(view: GangView) -> str:
    """That there is nothing left to cancel."""
    how = "was cancelled" if view.state is GangState.CANCELLED else view.state
    when = f" at {clock(view.ended_ms)}" if view.ended_ms is not None else ""
    return f"{view.gang} ({view.name}) has ended already: it {how}{when}; nothing to cancel"


def find(client: Client, gang: str) -> GangView:
    """The gang of that id or name; of gangs that are over, the newest of that name.

    Raises:
        NotFound: there is none.
        Conflict: several active ones have that name.
    """
    try:
        return client.observe(gang)
    except NotFound:
        for view in client.list(limit=500):
            if view.name == gang:
                return view
        raise


def all_events(client: Client, view: GangView) -> list[Event]:
    """The whole history of a gang so far."""
    events: list[Event] = []
    cursor = 0
    while page := client.events(view.gang, cursor, 0.0):
        if not page.events:
            break
        events += page.events
        cursor = page.cursor
    return events


def _follow_logs(client: Client, view: GangView, ranks: tuple[int, ...], attempt: int | None,
                 as_json: bool) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    cursor = 0
    while not view.ranks and not view.state.final:  # how many ranks there are shows when it is placed
        cursor = client.events(view.gang, cursor, 25.0).cursor
        view = client.observe(view.gang)
    feed, screen = Feed(client, view.gang), Screen()
    for rank in _chosen(view, ranks):
        feed.log_all_attempts(rank, attempt)
    while feed.open_logs:
        match feed.next():
            case LogLine() as line:
                _print_line(screen, line, len(view.ranks), as_json)
            case LogEnd():
                feed.open_logs -= 1
            case Lost(error):
                raise error
            case _:
                pass


def _chosen(view: GangView, ranks: tuple[int, ...]) -> list[int]:
    known = [r.rank for r in view.ranks]
    wrong = [rank for rank in ranks if rank not in known]
    if wrong and known:
        raise Rejected(f"{view.gang} has ranks 0 to {len(known) - 1}, not {wrong[0]}", field="--rank",
                       fix="choose one of them")
    if ranks or len(known) <= 16:
        return list(ranks) or known
    news(f"{len(known)} ranks: showing rank 0; --rank N shows others")
    return known[:1]


def _print_line(screen: Screen, line: LogLine, world_size: int, as_json: bool) -> None:
    if as_json:
        click.echo(_json_line(line))
    else:
        screen.log(log_line(line.rank, line.text, world_size))


def _json_line(line: LogLine) -> str:
    import json

    return json.dumps({"attempt": line.attempt, "rank": line.rank, "text": line.text}, ensure_ascii=False)
