"""What a tenant may never have is refused when it is submitted, and a quota of what no pool has when it is written."""

from __future__ import annotations

from typing import Any

import pytest

from gangline.model.errors import Rejected
from gangline.model.fleet import Fleet
from gangline.model.spec import GangSpec
from gangline.service.feasible import judge
from gangline.service.fleet import sync_fleet
from gangline.service.loop import snapshot
from gangline.store import Store

POOLS = [{"name": "p", "gpu": "H100:8", "min": 8, "emulated": True}]


def fleet(*tenants: dict[str, Any]) -> Fleet:
    return Fleet.parse({"pools": POOLS, "tenants": list(tenants)})


def refusal(of: Fleet, size: int) -> Rejected | None:
    store = Store.memory()
    sync_fleet(store, of, now_ms=0)
    spec = GangSpec.parse({"name": "g", "size": size, "gpu": "H100:8", "command": ["true"], "tenant": "small"})
    return judge(lambda: snapshot(store, of, now_ms=0), of)(spec)


@pytest.mark.parametrize(("tenants", "most"), [
    ([{"name": "small", "quota": {"H100": 16}}], 2),
    ([{"name": "small", "quota": {"H100": 8}, "cohort": "c", "borrow": 8},
      {"name": "o", "quota": {"H100": 32}, "cohort": "c"}], 2),
    ([{"name": "small", "quota": {"H100": 8}, "cohort": "c"}, {"name": "o", "quota": {"H100": 16}, "cohort": "c"}], 3),
    ([{"name": "other", "quota": {"H100": 8}}], 8),
], ids=["alone", "borrow", "cohort", "undeclared"])
def test_no_more_than_the_tenant_may_ever_have(tenants: list[dict[str, Any]], most: int) -> None:
    of = fleet(*tenants)
    assert refusal(of, most) is None
    if most < 8:
        found = refusal(of, most + 1)
        assert found is not None
        assert (found.field, f"at most {most * 8} H100" in found.message) == ("tenant", True)


@pytest.mark.parametrize("kind", ["H300", "H100:8", "h100"])
def test_a_quota_of_what_no_pool_has_is_a_mistake(kind: str) -> None:
    with pytest.raises(Rejected, match=rf"small has a quota of {kind}, which no pool has; the types are H100"):
        fleet({"name": "small", "quota": {kind: 8}})
