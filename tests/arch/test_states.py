"""The page about states says what the table in the code says."""

from __future__ import annotations

import re
from pathlib import Path

from gangline.model.spec import Retries
from gangline.model.states import TRANSITIONS, Cause, GangState

PAGE = (Path(__file__).parents[2] / "docs" / "states.md").read_text()


def table(heading: str) -> dict[str, str]:
    """The two columns under a header row that begins so."""
    lines = PAGE[PAGE.index(f"| {heading} |"):].splitlines()[2:]
    rows: dict[str, str] = {}
    for line in lines:
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if not line.startswith("|"):
            break
        rows[cells[0]] = cells[1] if len(cells) > 1 else ""
    return rows


def names(cell: str) -> list[str]:
    return [name.strip() for name in cell.split(",") if name.strip()]


def test_every_state_is_explained() -> None:
    assert list(table("state")) == list(GangState)


def test_the_transitions_are_those_of_the_code() -> None:
    told = {GangState(old): {GangState(new) for new in names(cell)} for old, cell in table("from").items()}
    assert told == TRANSITIONS


def test_every_cause_has_its_budget() -> None:
    budgets = table("cause of an attempt's end")
    assert sorted(cause for causes in budgets for cause in names(causes)) == sorted(Cause)
    for text in budgets.values():
        for field, default in re.findall(r"`retries\.(\w+)` \((\w+)\)", text):
            meant = -1 if default == "unlimited" else int(default)
            assert getattr(Retries(), field) == meant
