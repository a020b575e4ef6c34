"""Numbers that no store and no planner could hold are refused where they are written."""

from __future__ import annotations

from typing import Any

import pytest

from gangline.model.errors import Rejected
from gangline.model.fleet import Fleet
from gangline.model.spec import GangSpec


@pytest.mark.parametrize(("field", "value"), [
    ("priority", 2**63), ("priority", -(2**63)), ("priority", 1_000_001), ("size", 2**63), ("size", "1..2000000"),
    ("size", "4..2"), ("domain_size", 2**40), ("roles", {"a": {"size": 2**63, "command": ["true"]}}),
])
def test_a_spec_out_of_bounds_is_refused(field: str, value: Any) -> None:
    plain: dict[str, Any] = {"name": "g"} if field == "roles" else {"name": "g", "command": ["true"]}
    with pytest.raises(Rejected) as caught:
        GangSpec.parse({**plain, field: value})
    assert (caught.value.field or "").split(".")[0] in (field, "")


def test_an_elastic_gang_has_no_domain_blocks() -> None:
    with pytest.raises(Rejected, match="one fixed size"):
        GangSpec.parse({"name": "g", "size": "2..4", "domain_size": 2, "command": ["true"]})


@pytest.mark.parametrize("price", ["99999999999", "1e30", "100000.01"])
def test_a_price_that_cannot_be_one_is_refused(price: str) -> None:
    with pytest.raises(Rejected, match="is no price of a GPU for an hour"):
        Fleet.parse({"pools": [{"name": "p", "gpu": "H100:8", "price_per_gpu_hour": price}]})
