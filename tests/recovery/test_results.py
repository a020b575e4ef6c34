"""Results that cannot travel are the user's error, named, and hold nothing up."""

from __future__ import annotations

import pytest
from fleet_world import World

from gangline.model.states import Cause, GangState


@pytest.mark.parametrize(("kind", "said"), [("deep", "nested more than 100 deep"), ("half", "lone surrogate"),
                                            ("set", "is a builtins.set")])
def test_a_result_that_is_not_json_fails_the_gang_and_frees_its_nodes(world: World, kind: str, said: str) -> None:
    view = world.until_final(world.start("give", f"test:{kind}", kind=kind).gang)
    assert view.state is GangState.FAILED
    assert view.end is not None
    assert view.end.cause is Cause.USER
    assert any(said in line for line in view.end.last_lines), view.end
    assert all(len(node.free_gpus) == 8 for node in world.client.nodes())
