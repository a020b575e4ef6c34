"""Nodes that attempts' ends are blamed on: remembered, and told once they are too many to be chance."""

from __future__ import annotations

from gangline.model.gang import End
from gangline.model.node import Strike, suspicious
from gangline.model.states import Cause
from gangline.store import Gang, Transaction

WITHIN_MS = 24 * 3_600_000
KEPT = 16  # gangs, the latest strike of each
BLAMES = frozenset({Cause.HARDWARE, Cause.LOST, Cause.LAUNCH})


def blame(tx: Transaction, gang: Gang, end: End, now_ms: int) -> None:
    """Holds the end of the gang's attempt against the node it names, if it is the kind a node may cause.

    Tells, and does nothing else: to drain the node is for a person to decide.
    """
    if end.node is None or end.cause not in BLAMES:
        return
    node = tx.nodes.get(end.node)
    recent = tuple(strike for strike in node.strikes if strike.at_ms > now_ms - WITHIN_MS)
    strike = Strike(gang=gang.id, attempt=gang.attempt, cause=end.cause, at_ms=now_ms)
    strikes = (*(other for other in recent if other.gang != gang.id), strike)[-KEPT:]
    tx.nodes.blamed(node.name, strikes)
    if suspicious(strikes) and not suspicious(recent):
        tx.events.add("node.suspect", now_ms, node=node.name, gangs=[strike.gang for strike in strikes],
                      within_h=WITHIN_MS // 3_600_000)
