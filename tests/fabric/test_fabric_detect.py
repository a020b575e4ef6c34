"""Detection on constructed hosts: the whole answer, and no crash on whatever is done to them."""

from __future__ import annotations

from pathlib import Path

import pytest
from host_trees import HostTree
from known_trees import TREES

from gangline.fabric.detection import detect


@pytest.mark.parametrize("name", TREES)
def test_a_host_is_told_for_what_it_is(name: str, tmp_path: Path) -> None:
    known = TREES[name]
    known.build(HostTree(tmp_path))
    found = detect(tmp_path)
    expected = known.expected
    assert found.profile == expected.profile
    assert sorted(finding.code for finding in found.findings) == sorted(expected.codes)
    assert sorted(nic.name for nic in found.compute) == sorted(expected.compute)
    assert found.verdict == expected.verdict
    roles = {nic.device: nic.role for nic in found.nics}
    assert {name: roles[name] for name, _ in expected.roles} == dict(expected.roles)
