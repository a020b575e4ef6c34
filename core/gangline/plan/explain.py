"""Why a gang waits, in words: what it needs, what is there, and who holds it."""

from __future__ import annotations

from collections.abc import Iterable

from gangline.plan.board import UNKNOWN_MS, Board, Spot
from gangline.plan.demand import Demand
from gangline.plan.forecast import Forecast
from gangline.plan.growth import Growth
from gangline.plan.never import Misfit
from gangline.plan.outcome import NodeChoice, WaitCode, Waiting
from gangline.plan.snapshot import PendingGang
from gangline.plan.words import need_text, nodes_text, some, verb


def waits_for_capacity(gang: PendingGang, found: Growth) -> Waiting:
    """Nodes are being asked for or are on their way."""
    parts = [f"needs {need_text(gang)}"]
    if found.free:
        parts.append(f"{len(found.free)} {verb(len(found.free))} free in {found.where} and kept for it")
    if found.new:
        pools = sorted({s.node.pool for s in found.new})
        parts.append(f"{nodes_text(len(found.new))} asked of {_pools(pools)}")
    if found.coming:
        parts.append(f"{nodes_text(len(found.coming))} on the way")
    return Waiting(gang=gang.gang, code=WaitCode.CAPACITY, text="; ".join(parts),
                   short=len(found.new) + len(found.coming), earliest_ms=found.ready_ms)


def waits_for_others(board: Board, demand: Demand, found: Forecast,
                     without_claims: tuple[NodeChoice, ...] | None) -> Waiting:
    """Nodes are held by other gangs, or kept for gangs before this one."""
    gang = demand.gang
    claimers = _claimers(board, gang, without_claims, found)
    reserved = without_claims is not None and bool(claimers)
    holders = [] if reserved else _holders(gang, found.serving)
    have = [s for s in found.serving if _ready(board, demand, s)]
    parts = [f"needs {need_text(gang)}"]
    if not (reserved and demand.single):  # then room there is, only not for this gang
        parts.append(_free_text(demand, found, have))
    if holders:
        parts.append(f"held by {some([_named(board, h) for h in holders])}")
    if claimers:
        parts.append(f"free nodes are kept for {some([_named(board, c) for c in claimers])}")
    down = [s.node.name for s in found.serving if s.down]
    if down:
        parts.append(f"{len(down)} {verb(len(down))} out of service ({some(down)})")
    blocked_by = tuple(dict.fromkeys([*holders, *claimers]))
    return Waiting(gang=gang.gang, code=WaitCode.RESERVED if reserved else WaitCode.BUSY,
                   text="; ".join(parts), short=max(0 if reserved else 1, gang.nodes - len(have)),
                   blocked_by=blocked_by,
                   earliest_ms=None if found.at_ms == UNKNOWN_MS else found.at_ms)


def waits_in_vain(board: Board, demand: Demand, wrong: Misfit | None) -> Waiting:
    """Nothing the fleet can be now would do, or nothing it could ever be."""
    gang = demand.gang
    if wrong is not None:
        return Waiting(gang=gang.gang, code=WaitCode.NEVER, text=str(wrong), short=wrong.short)
    choice = demand.choices[0]
    serving = {s.order: s for need in choice.needs for s in board.matching(demand, need)}
    down = [serving[order].node.name for order in sorted(serving) if serving[order].down]
    out = (f"{len(down)} of {nodes_text(len(serving))} that would do {verb(len(down))} out of service "
           f"({some(down)})") if down else "too few nodes would do"
    grow = "" if board.policy.capacity else "; its pools may not be asked for more"
    return Waiting(gang=gang.gang, code=WaitCode.UNAVAILABLE, text=f"needs {need_text(gang)}; {out}{grow}",
                   short=max(1, gang.nodes - (len(serving) - len(down))))


def _free_text(demand: Demand, found: Forecast, have: list[Spot]) -> str:
    if demand.single:
        best = max((len(s.free) for s in found.serving), default=0)
        return f"no node has so many free; the most is {best}" if not have else "one has room"
    return f"{len(have)} of {len(found.serving)} {verb(len(have))} free in {found.where}"


def _ready(board: Board, demand: Demand, spot: Spot) -> bool:
    if not spot.free or not board.open_to(spot, demand.gang):
        return False
    if demand.single:
        asks = [choice.asks[0] for choice in demand.choices]
        return any(a.type == spot.node.gpu.type and a.count <= len(spot.free) for a in asks)
    return spot.whole


def _holders(gang: PendingGang, spots: Iterable[Spot]) -> list[str]:
    """Gangs with leases on the spots, those that free most first."""
    gpus: dict[str, int] = {}
    for spot in spots:
        for hold in spot.holds:
            if hold.gang != gang.gang:
                gpus[hold.gang] = gpus.get(hold.gang, 0) + len(hold.gpus)
    return sorted(gpus, key=lambda holder: (-gpus[holder], holder))


def _claimers(board: Board, gang: PendingGang, without_claims: tuple[NodeChoice, ...] | None,
              found: Forecast) -> list[str]:
    spots = ([board.by_name[m.node] for m in without_claims] if without_claims is not None
             else [s for s in found.serving if s.free])
    return list(dict.fromkeys(s.claim.gang for s in spots
                              if s.claim is not None and not board.open_to(s, gang)))


def _named(board: Board, gang: str) -> str:
    name, slot = board.names.get(gang, (gang, ""))
    return f"{name} ({slot})" if slot and slot != name else name


def _pools(names: list[str]) -> str:
    return f"pool{'s' if len(names) > 1 else ''} {', '.join(names)}"
