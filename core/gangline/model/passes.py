"""Passes of the loop, and why a gang waits, as anyone may look at them."""

from __future__ import annotations

from typing import Any

from gangline.model.base import Wire
from gangline.model.gang import Holder, Wait


class PassView(Wire):
    """One pass that decided something or said something new. `replayable`: its inputs were kept.

    Counts: gangs that waited for it, gangs placed, nodes asked for, gangs that gave nodes back, gangs
    preempted and resized, nodes retired, placements refused when they were committed. With `faults` the
    checker refused the whole plan: none of it was done.
    """

    id: int
    at_ms: int
    version: int
    duration_us: int
    trigger: str
    policy: str
    pending: int = 0
    placed: int = 0
    asked: int = 0
    released: int = 0
    preempted: int = 0
    resized: int = 0
    retired: int = 0
    refused: int = 0
    size_bytes: int = 0
    replayable: bool = False
    faults: tuple[str, ...] = ()


class PassDetail(Wire):
    """A pass with its plan, and with its inputs when they were asked for and kept."""

    summary: PassView
    plan: dict[str, Any]
    inputs: dict[str, Any] | None = None


class TriedGroup(Wire):
    """Where a gang was tried: a subtree, how many nodes it could have there now, and how many it needs."""

    where: str
    free: int
    could: int  # free or not
    need: int


class HolderView(Wire):
    """A gang in the way: what it holds of what would do, and when it is expected to end."""

    holder: Holder
    nodes: int
    ends_ms: int | None = None
    reserved: bool = False  # it holds nothing yet: nodes are kept for it


class WhatIf(Wire):
    """What would happen to the gang now, were one thing of it another."""

    change: str
    fits: bool
    text: str
    nodes: tuple[str, ...] = ()
    preempts: tuple[Holder, ...] = ()
    earliest_ms: int | None = None


class Explanation(Wire):
    """Why a gang waits, as a pass over the present picture sees it."""

    gang: str
    at_ms: int
    wait: Wait | None = None
    tried: tuple[TriedGroup, ...] = ()
    holders: tuple[HolderView, ...] = ()
    what_if: tuple[WhatIf, ...] = ()
