"""One fleet over this machine and a cluster: one queue, and every gang whole in one pool."""

from __future__ import annotations

import pytest
from hosted_world import Cluster, hosted_world

from gangline.model.errors import Rejected
from gangline.model.states import GangState

pytestmark = pytest.mark.slow

LOCAL = '  - {name: desk, gpu: "L4:2", min: 2, max: 2, zone: z2, emulated: true, price_per_gpu_hour: "0.50"}\n'


def test_gangs_go_where_their_gpus_are_and_on_when_those_are_taken(monkeypatch: pytest.MonkeyPatch,
                                                                   cluster: Cluster) -> None:
    with hosted_world(monkeypatch, cluster, more=LOCAL) as world:
        big = world.start("hold", "test:big", size=4).gang
        world.until(big, lambda view: view.state is GangState.RUNNING, "running")
        either = world.start("train", "test:either", size=2, steps=10, spec={"gpu": ["H100:8", "L4:2"]}).gang
        view = world.until_final(either)
        assert view.state is GangState.SUCCEEDED, view.end
        assert {share.gpu_type for share in view.attempts[0].nodes} == {"L4"}
        with pytest.raises(Rejected, match="at most 4 x H100:8 or L4:2 together"):  # six nodes, in two pools
            world.start("train", "test:wide", size=5, steps=10, spec={"gpu": ["H100:8", "L4:2"]})
        (world.marks / "go").touch()
        assert world.until_final(big).state is GangState.SUCCEEDED
        rows = {row.by["node"] for row in world.client.usage(("node",))}
        assert rows == {*cluster.nodes, *(share.node for share in view.attempts[0].nodes)}
