"""A subtree as gangs with the same needs see it: what would do there, and who is in the way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gangline.plan.board import Board, Variant, is_down
from gangline.plan.demand import Choice
from gangline.plan.fleet import Bools, Ints
from gangline.plan.forecast import Forecast
from gangline.plan.holders import Holders
from gangline.plan.outcome import Placement
from gangline.plan.words import some, verb

MOST_HOLDERS = 16


def meeting(choice: Choice) -> Bools:
    """Every row that meets a need of the choice, busy or not, there or not yet. Never write into it."""
    rows = choice.needs[0].mask
    for need in choice.needs[1:]:
        rows = rows | need.mask
    return rows


@dataclass(slots=True)
class Site:
    """The nodes of a subtree that are there, in service or not, and would do; and gangs that lease them."""

    where: str
    serving: Bools
    count: int
    out_of_service: str  # "" when none is
    holders: Sequence[str]  # those with most first, not all
    many: int  # how many lease them in all
    whole: dict[Variant, int]  # how many a gang could have now, by the claims that are open to it


class Sites:
    """The subtrees that a pass has to say something of, once everything is decided."""

    def __init__(self, board: Board, placements: Sequence[Placement]) -> None:
        self._board, self._placements = board, placements
        self._known: dict[tuple[tuple[int, ...], int, int], tuple[Site, Choice]] = {}

    def of(self, found: Forecast) -> Site:
        """Where the forecast is."""
        key = (tuple(id(need.mask) for need in found.choice.needs), found.level, found.subtree)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._look(found), found.choice  # the choice keeps its masks and these their ids
        return known[0]

    def whole(self, site: Site, variant: Variant) -> int:
        """How many whole rows of the site are open to gangs of the variant."""
        known = site.whole.get(variant)
        if known is None:
            board = self._board
            rows = site.serving & board.whole & board.allowed(variant)
            known = site.whole[variant] = int(np.count_nonzero(rows))
        return known

    def _look(self, found: Forecast) -> Site:
        fleet_map = self._board.map
        inside = fleet_map.ids[found.level] == found.subtree
        serving: Bools = meeting(found.choice) & inside & ~fleet_map.virtual
        holders, many = self._holders.most_first(serving, MOST_HOLDERS)
        return Site(fleet_map.name_of(found.level, found.subtree), serving, int(np.count_nonzero(serving)),
                    out_of_service(self._board, np.flatnonzero(serving)), holders, many, {})

    @cached_property
    def _holders(self) -> Holders:
        return Holders.of(self._board.snapshot, self._placements)


def out_of_service(board: Board, rows: Ints) -> str:
    """"2 are out of service (n1, n2)"; "" when none of the rows is."""
    down = rows[is_down(board, rows)]
    names = [board.map.names[row] for row in down.tolist()]
    return f"{len(down)} {verb(len(down))} out of service ({some(names, len(names))})" if len(down) else ""
