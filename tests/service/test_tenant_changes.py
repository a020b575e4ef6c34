"""What a reload says of tenants."""

from __future__ import annotations

from gangline.cli.fleet_size import change_lines
from gangline.model.fleet import Fleet
from gangline.model.inventory import FleetChanges
from gangline.service.tenants import tenant_changes


def fleet(*tenants: dict[str, object]) -> Fleet:
    return Fleet.parse({"pools": [{"name": "p", "gpu": "H100:8", "min": 1}], "tenants": list(tenants)})


def test_tenants_that_come_go_and_change_are_named_with_their_numbers() -> None:
    old = fleet({"name": "a", "quota": {"H100": 64}}, {"name": "b"}, {"name": "same", "weight": 3})
    new = fleet({"name": "a", "quota": {"H100": 32}, "weight": 2, "cohort": "lab", "borrow": 8},
                {"name": "c", "quota": {"H100": 8}}, {"name": "same", "weight": 3})
    lines = ("a: quota of H100 64 -> 32, weight 1 -> 2, cohort none -> lab, borrow no limit -> 8",
             "b: no longer declared", "c: new, quota of H100 no limit -> 8")
    assert tenant_changes(old, new) == lines
    assert tenant_changes(new, new) == ()
    assert [line.plain for line in change_lines(FleetChanges(tenants=lines))] == [f"~ tenant {line}" for line in lines]
