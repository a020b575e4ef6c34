"""Values of the wrong kind are refused with field, what was expected and what to write."""

from __future__ import annotations

import pytest

from gangline.model.errors import Rejected
from gangline.model.fleet import Fleet
from gangline.model.spec import GangSpec

POOL = {"name": "p", "gpu": "H100:8", "min": 1}


@pytest.mark.parametrize(("fields", "said"), [
    ({"command": 5}, "command: expected a list, not 5 (write [a, b], or one entry a line after a dash)"),
    ({"env": ["A=1"]}, "env: expected fields with values, not ['A=1'] (write {field: value}, or one field a line)"),
    ({"placement": "z1"},
     "placement: expected fields with values, not 'z1' (write {field: value}, or one field a line)"),
    ({"placement": {"exclude": "n1"}},
     "placement.exclude: expected a list, not 'n1' (write [a, b], or one entry a line after a dash)"),
    ({"rdma": "perhaps"}, "rdma: expected true or false, not 'perhaps' (write one of them without quotes)"),
    ({"labels": {"a": 1}}, "labels.a: expected text, not 1 (put it in quotes)"),
])
def test_a_gang_says_what_it_expects(fields: dict[str, object], said: str) -> None:
    with pytest.raises(Rejected) as refused:
        GangSpec.parse({"name": "a", "command": ["true"], **fields})
    assert str(refused.value) == said


@pytest.mark.parametrize(("fields", "said"), [
    ({"pools": {"name": "p"}}, "pools: expected a list, not {'name': 'p'} "
                               "(write [a, b], or one entry a line after a dash)"),
    ({"pools": []}, "pools: has too few entries, 0 (give 1 or more)"),
    ({"pools": [POOL], "nodes": ["n1"]},
     "nodes.0: expected fields with values, not 'n1' (write {field: value}, or one field a line)"),
    ({"pools": [POOL], "tenants": [{"name": "t", "quota": 8}]},
     "tenants.0.quota: expected fields with values, not 8 (write {field: value}, or one field a line)"),
    ({"pools": [POOL], "tenants": [{"name": "t", "quota": {"H100": -1}}]},
     "tenants.0.quota.H100: -1 is too small (write 0 or more)"),
    ({"pools": [POOL], "tenants": [{"name": "t", "weight": "much"}]},
     "tenants.0.weight: expected a whole number, not 'much' (write it without quotes and without a fraction)"),
    ({"pools": [POOL], "scheduling": {"backfill": "longest"}},
     "scheduling.backfill: 'longest' is not known here (write 'submitted' or 'shortest')"),
])
def test_a_fleet_file_says_what_it_expects(fields: dict[str, object], said: str) -> None:
    with pytest.raises(Rejected) as refused:
        Fleet.parse(fields)
    assert str(refused.value) == said


def test_of_a_long_value_only_the_beginning_is_shown() -> None:
    with pytest.raises(Rejected) as refused:
        GangSpec.parse({"name": "a", "command": ["true"], "env": ["x" * 500]})
    assert len(str(refused.value)) < 200
