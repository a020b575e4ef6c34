"""Why gangs wait, in words: what they need, what is there, who holds it, and the rule that decided."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from gangline.plan.board import SPARE, Board, Variant, is_down
from gangline.plan.demand import Demand
from gangline.plan.fleet import Bools, Ints
from gangline.plan.forecast import Forecast, forecast
from gangline.plan.never import misfit
from gangline.plan.outcome import Placement, WaitCode, Waiting
from gangline.plan.outlook import Outlook
from gangline.plan.place import Offers, place
from gangline.plan.sites import MOST_HOLDERS, Site, Sites, meeting
from gangline.plan.snapshot import UNKNOWN_MS, PendingGang, Signature
from gangline.plan.words import MOST_NAMED, need_text, nodes_text, some, verb


@dataclass(slots=True)
class Asked:
    """Blocked gangs that ask for the same, what the pass found for them, and the nodes it asked for.

    `alike` are the positions of others that were not looked at because they ask for the same: it grows.

    Without a code, it is judged when everything is decided.
    """

    gangs: list[PendingGang]
    code: WaitCode | None
    found: Forecast | None
    asked: int
    alike: list[int] = field(default_factory=list)


def explain(board: Board, blocked: Sequence[Asked], preempted: Sequence[str],
            placements: Sequence[Placement]) -> tuple[Waiting, ...]:
    """One reason for all gangs that ask for the same and fare the same, in the order they were blocked."""
    reasons = _Reasons(board, preempted, placements)
    return tuple(reasons.of(group) for group in _merged(blocked))


def _merged(blocked: Sequence[Asked]) -> list[Asked]:
    groups: dict[tuple[object, ...], Asked] = {}
    for number, asked in enumerate(blocked):
        head = asked.gangs[0]
        tenant = "" if asked.code is WaitCode.ORDER else head.tenant  # quota may refuse one what another may have
        key: tuple[object, ...] = (asked.code, _signature(asked, head), tenant)
        if asked.found is not None or head.held:
            key = (number,)
        known = groups.get(key)
        groups[key] = asked if known is None else Asked(
            [*known.gangs, *asked.gangs], asked.code, None, 0, [*known.alike, *asked.alike])
    return list(groups.values())


def _signature(asked: Asked, head: PendingGang) -> Signature:
    return Signature() if asked.code is WaitCode.ORDER else head.signature


@dataclass(frozen=True, slots=True)
class _Scene:
    """What stands in the way of a gang where it could start earliest."""

    site: Site
    ready: int  # how many of its nodes the gang could have now
    reserved: bool  # they would be enough were nothing kept
    holders: list[str]  # some of those that lease them, those with most first
    many: int  # how many lease them in all
    kept: list[str]  # for whom free ones are kept


class _Reasons:
    def __init__(self, board: Board, preempted: Sequence[str], placements: Sequence[Placement]) -> None:
        self.board = board
        self.preempted = frozenset(preempted)
        self._outlook = Outlook(board)
        self._sites = Sites(board, placements)
        self._names: dict[str, tuple[str, str]] | None = None

    def of(self, group: Asked) -> Waiting:
        gang = group.gangs[0]
        demand = self.board.demand(gang)
        match group.code:
            case WaitCode.CAPACITY:
                assert group.found is not None
                made = self._capacity(gang, group.found, group.asked)
            case WaitCode.QUOTA:
                made = self._quota(gang, demand)
            case WaitCode.ORDER:
                made = self._made(gang, WaitCode.ORDER, "nobody passes the gang before it that waits", gang.nodes)
            case _:
                made = self._others(gang, demand, group.found)
        queued = self.board.snapshot.queue.gangs
        gangs = (*(each.gang for each in group.gangs), *(queued[at].gang for at in group.alike))
        return Waiting(gangs=gangs, code=made.code, text=made.text,
                       short=made.short, blocked_by=made.blocked_by, earliest_ms=made.earliest_ms)

    def _made(self, gang: PendingGang, code: WaitCode, text: str, short: int, blocked_by: Sequence[str] = (),
              earliest_ms: int | None = None) -> Waiting:
        return Waiting(gangs=(gang.gang,), code=code, text=text, short=short, blocked_by=tuple(blocked_by),
                       earliest_ms=None if earliest_ms is None or earliest_ms >= UNKNOWN_MS else earliest_ms)

    def _capacity(self, gang: PendingGang, found: Forecast, asked: int) -> Waiting:
        board, rows = self.board, found.rows
        where = board.map.name_of(found.level, found.subtree)
        free = int(board.in_service[rows].sum())
        later = int(board.virtual[rows].sum())
        coming = len(rows) - free - later - asked
        parts = [f"needs {need_text(gang)}"]
        if free:
            parts.append(f"{free} {verb(free)} free in {where} and kept for it")
        if asked:
            pools = sorted({board.map.values[row].pool for row in rows if board.map.virtual[row]})
            parts.append(f"{nodes_text(asked)} asked of {_pools(pools)}")
        if later:
            pools = sorted({board.map.values[row].pool for row in rows if board.virtual[row]})
            parts.append(f"{_pools(pools)} will be asked for {nodes_text(later)} once it has waited for the delay")
        if coming:
            parts.append(f"{nodes_text(coming)} on the way")
        return self._made(gang, WaitCode.CAPACITY, "; ".join(parts), len(rows) - free, (), found.start_ms)

    def _quota(self, gang: PendingGang, demand: Demand) -> Waiting:
        kinds = {kind for choice in demand.choices for kind, _ in choice.gpus}
        used = self.board.usage.quota_text(gang.tenant, kinds)
        text = f"needs {need_text(gang)}; tenant {gang.tenant} uses {used} of its quota"
        blockers = [run.gang for run in self.board.snapshot.running if run.tenant == gang.tenant]
        return self._made(gang, WaitCode.QUOTA, text, gang.nodes, sorted(blockers)[:MOST_HOLDERS])

    def _others(self, gang: PendingGang, demand: Demand, found: Forecast | None) -> Waiting:
        board = self.board
        if found is None:
            offers = Offers.of(board, gang, demand)
            if demand.choices and not offers.choices:
                return self._quota(gang, demand)
            found = forecast(board, gang, demand, offers.choices, self._outlook)
        if found is None:
            return self._in_vain(gang, demand)
        site = self._sites.of(found)
        claimers = self._claimers_in_the_way(gang, demand)
        reserved = claimers is not None
        holders = [] if reserved else [holder for holder in site.holders if holder != gang.gang]
        many = 0 if reserved else site.many - (len(site.holders) - len(holders))
        kept = claimers if claimers is not None else self._claimers(site.serving & (board.free > 0), gang)
        ready = self._ready(gang, demand, site)
        scene = _Scene(site, ready, reserved, holders, many, kept)
        return self._made(gang, WaitCode.RESERVED if reserved else WaitCode.BUSY, self._text(gang, demand, scene),
                          max(0 if reserved else 1, gang.nodes - ready),
                          [name for name in dict.fromkeys([*holders, *kept]) if name != SPARE][:MOST_HOLDERS],
                          found.start_ms)

    def _text(self, gang: PendingGang, demand: Demand, scene: _Scene) -> str:
        site = scene.site
        parts = [f"needs {need_text(gang)}"]
        if demand.single and not scene.reserved:
            most = int(self.board.free[site.serving].max(initial=0))
            parts.append("one has room" if scene.ready else f"no node has so many free; the most is {most}")
        elif not demand.single:  # a single that finds its room reserved: there is room, only not for it
            parts.append(f"{scene.ready} of {site.count} {verb(scene.ready)} free in {site.where}")
        leaving = [name for name in scene.holders if name in self.preempted]
        staying = [name for name in scene.holders if name not in self.preempted]
        if leaving:
            parts.append(f"{self._some(leaving)} {verb(len(leaving))} preempted for it")
        if staying:
            parts.append(f"held by {self._some(staying, scene.many - len(leaving))}")
        if scene.kept:
            parts.append(f"free nodes are kept for {self._some(scene.kept)}")
        if site.out_of_service:
            parts.append(site.out_of_service)
        return "; ".join(parts)

    def _in_vain(self, gang: PendingGang, demand: Demand) -> Waiting:
        wrong = misfit(gang, self.board.snapshot)
        if wrong is not None:
            return self._made(gang, WaitCode.NEVER, str(wrong), wrong.short)
        rows = np.flatnonzero(meeting(demand.choices[0]) & ~self.board.map.virtual)
        down = rows[is_down(self.board, rows)]
        out = "too few nodes would do"
        if len(down):
            names = [self.board.map.names[row] for row in down]
            out = (f"{len(down)} of {nodes_text(len(rows))} that would do {verb(len(down))} out of service "
                   f"({some(names, len(names))})")
        grow = "" if self.board.policy.capacity else "; its pools may not be asked for more"
        return self._made(gang, WaitCode.UNAVAILABLE, f"needs {need_text(gang)}; {out}{grow}",
                          max(1, gang.nodes - (len(rows) - len(down))))

    def _ready(self, gang: PendingGang, demand: Demand, site: Site) -> int:
        board, variant = self.board, self.board.variant(gang)
        if not demand.single:
            return self._sites.whole(site, variant)
        rows = site.serving & board.in_service & board.allowed(variant)
        counts = [choice.asks[0] for choice in demand.choices]
        rooms = [rows & choice.needs[0].mask & (board.free >= ask.count)
                 for choice, ask in zip(demand.choices, counts, strict=True)]
        return int(np.any(rooms, axis=0).sum())

    def _claimers_in_the_way(self, gang: PendingGang, demand: Demand) -> list[str] | None:
        """For whom the nodes are kept that the gang would get if nothing were kept; None if none would do."""
        board = self.board
        if not board.claims:
            return None
        everything: Variant = tuple(range(len(board.claims)))
        spot = place(board, gang, demand, Offers.of(board, gang, demand), everything)
        if spot is None:
            return None
        rows: Bools = np.zeros(board.map.size, np.bool_)
        rows[spot.rows] = True
        return self._claimers(rows, gang) or None

    def _claimers(self, rows: Bools, gang: PendingGang) -> list[str]:
        board, variant = self.board, self.board.variant(gang)
        claims: Ints = board.claim[rows & (board.claim >= 0)]
        return list(dict.fromkeys(board.claims[claim].gang for claim in claims.tolist() if claim not in variant))

    def _some(self, gangs: Sequence[str], many: int | None = None) -> str:
        return some([self._named(gang) for gang in gangs[:MOST_NAMED]], len(gangs) if many is None else many)

    def _named(self, gang: str) -> str:
        if gang == SPARE:
            return "repairs (spares)"
        if self._names is None:
            snapshot = self.board.snapshot
            self._names = {run.gang: (run.name, run.slot) for run in snapshot.running}
        known = self.board.snapshot.queue.get(gang)
        name, slot = self._names.get(gang, (gang, "")) if known is None else (known.name, known.slot)
        return f"{name} ({slot})" if slot and slot != name else name


def _pools(names: list[str]) -> str:
    return f"pool{'s' if len(names) > 1 else ''} {', '.join(names)}"
