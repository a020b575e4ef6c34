"""What cannot reach a process or a server is refused where it is written, in one line."""

from __future__ import annotations

import pytest

from gangline.model.errors import Rejected
from gangline.model.spec import GangSpec


@pytest.mark.parametrize(("fields", "said"), [
    ({"command": ["x" * 128_001]}, "command: 128001 bytes are too many"),
    ({"command": ["x" * 100_000] * 3}, "command: 300000 bytes are too many"),
    ({"command": ["true"], "env": {"A": "x" * 128_001}}, "env: 128003 bytes are too many"),
    ({"command": ["a\0b"]}, "holds a NUL"),
    ({"command": ["\ud800"]}, "lone surrogate"),
    ({"command": [True]}, "command.0: expected text, not True (put it in quotes)"),
    ({"roles": {"a": {"size": 1, "command": ["x" * 128_001]}}}, "roles.a: command"),
])
def test_words_that_no_process_can_take_are_refused(fields: dict[str, object], said: str) -> None:
    with pytest.raises(Rejected) as refused:
        GangSpec.parse({"name": "a", **fields})
    assert said in str(refused.value)
    assert len(str(refused.value)) < 300
