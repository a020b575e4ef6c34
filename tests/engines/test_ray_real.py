"""The Ray engine keeps every engine's promises, and its own, on a real Ray."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from conformance import Conformance, undo  # noqa: F401 - a fixture
from hub import Hub
from ray_rig import RayRig, RayServers, ray_servers
from rig import ask, look, start, until

from gangline.engines.base import JobStatus
from gangline.engines.ray.engine import RayEngine
from gangline.engines.ray.link import EnvoyLink
from gangline.model.errors import Unavailable
from gangline.model.node import NodeView
from gangline.model.states import NodeLifecycle

pytestmark = pytest.mark.slow

servers = pytest.fixture(scope="module", name="servers")(ray_servers)


@pytest.fixture(scope="module")
def rig(servers: RayServers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayRig]:
    rig = RayRig(servers, Hub(), tmp_path_factory.mktemp("ray", numbered=True))
    yield rig
    rig.close()
    rig.hub.close()


def link_of(rig: RayRig) -> EnvoyLink:
    assert isinstance(rig.engine, RayEngine)
    return rig.engine.link


class TestRay(Conformance):
    """All of the suite, and what is Ray's own."""

    # -- the envoy -----------------------------------------------------------------------------------

    def test_an_envoy_that_is_killed_is_replaced_and_jobs_go_on(self, rig: RayRig) -> None:
        run = start(rig, rig.nodes[:2])
        first = link_of(rig).pid
        assert first is not None
        os.kill(first, signal.SIGKILL)
        psutil.wait_procs([psutil.Process(first)] if psutil.pid_exists(first) else [], timeout=10)
        assert run.wait_status(JobStatus.RUNNING).id == run.id
        assert link_of(rig).pid not in (None, first)
        rig.engine.stop(run.name, 5.0)
        run.wait_over()
        assert run.processes() == []

    def test_an_envoy_that_hangs_is_given_up(self, rig: RayRig) -> None:
        rig.engine.observe()
        first = link_of(rig).pid
        assert first is not None
        os.kill(first, signal.SIGSTOP)
        with pytest.raises(Unavailable, match="did not look within"):
            link_of(rig).call("look", 0.2)
        assert not psutil.pid_exists(first)
        assert len(rig.engine.observe().nodes) == len(rig.nodes)

    def test_an_envoy_leaves_when_its_server_is_gone(self, rig: RayRig, tmp_path: Path) -> None:
        code = ("import sys, time; from pathlib import Path; from gangline.engines.ray.link import EnvoyLink\n"
                "link = EnvoyLink('Ray', sys.argv[2:], {'RAY_AUTH_MODE': 'token', 'RAY_AUTH_TOKEN_PATH':"
                " sys.argv[1]}, Path('log')); link.call('look', 60.0); print(link.pid, flush=True); time.sleep(1000)")
        server = subprocess.Popen(
            [sys.executable, "-c", code, rig.servers.token_file, "--address", rig.servers.address, "--node-address",
             "127.0.0.10", "--fleet", "00000000", "--folder", str(tmp_path)], stdout=subprocess.PIPE, text=True,
            cwd=tmp_path, env=rig.servers.env)
        assert server.stdout is not None
        envoy = psutil.Process(int(server.stdout.readline()))
        server.kill()
        server.communicate()
        until(lambda: not envoy.is_running() or envoy.status() == psutil.STATUS_ZOMBIE, "the envoy to leave")

    def test_a_wrong_token_is_no_way_in(self, rig: RayRig, tmp_path: Path) -> None:
        (tmp_path / "token").write_text("f" * 64)
        stranger = rig.make("00000000", token_file=str(tmp_path / "token"))
        with pytest.raises(Unavailable, match="Ray at 127"):
            stranger.observe()
        stranger.close()

    # -- parts of jobs -------------------------------------------------------------------------------

    def test_a_warden_that_is_killed_ends_its_whole_job(self, rig: RayRig) -> None:
        run = start(rig, rig.nodes[:2])
        run.wait_started()
        wardens = [child for child in rig.servers.raylet(rig.nodes[1]).children() if "Warden" in child.name()]
        assert len(wardens) == 1
        wardens[0].kill()
        run.wait_over()
        assert run.processes() == []
        seen = run.seen()
        assert seen is not None
        assert rig.nodes[1] in seen.text
        until(lambda: not look(rig, rig.nodes[0]).foreign_gpus, "the node to be free")

    def test_a_supervisor_that_cannot_start_says_so_after_the_job_is_over(self, rig: RayRig) -> None:
        elsewhere = rig.make("00c0ffee", python="/nowhere/python")
        run = ask(rig, rig.nodes[:2])
        run.launch(elsewhere)
        run.wait_over()
        assert "cannot start /nowhere/python" in rig.engine.logs(run.name)
        seen = run.seen()
        assert seen is not None
        assert "ended with 127" in seen.text
        assert run.launch(elsewhere) == seen.id  # its name is not used again
        assert run.wait_status(JobStatus.ENDED).id == seen.id
        elsewhere.close()

    def test_a_launch_that_was_cut_short_is_completed(self, rig: RayRig) -> None:
        run = ask(rig, rig.nodes[:2])
        half = self._half_launched(rig, run.name)
        assert run.launch() == half
        run.wait_hello()
        run.wait_status(JobStatus.RUNNING)

    def test_a_launch_that_was_cut_short_and_forgotten_is_cleaned_away(self, rig: RayRig) -> None:
        run = ask(rig, rig.nodes[:2])
        run.id = self._half_launched(rig, run.name)
        assert look(rig, rig.nodes[0]).foreign_gpus == 0
        run.wait_over()
        state = rig.driver("print(ray.util.placement_group_table()[sys.argv[2]]['state'])", run.id)
        assert state == "REMOVED"

    def _half_launched(self, rig: RayRig, name: str) -> str:
        """The placement group of a job whose server died before it asked for the wardens."""
        return rig.driver(
            "ids = {node['NodeName']: node['NodeID'] for node in ray.nodes() if node['Alive']}\n"
            "group = ray.util.placement_group([{'GPU': 8, 'CPU': 8, 'rdma': 1}] * 2, 'STRICT_SPREAD', sys.argv[2],\n"
            "    'detached', bundle_label_selector=[{'ray.io/node-id': ids[name]} for name in ('n1', 'n2')])\n"
            "print(group.id.hex())", name)

    def test_a_job_that_was_taken_away_in_ray_is_over(self, rig: RayRig) -> None:
        run = start(rig, rig.nodes[:2])
        rig.driver("ray.util.remove_placement_group(ray.util.get_placement_group(sys.argv[2]))", run.name)
        run.wait_over()
        until(lambda: not run.processes(), "nothing to be left", run.processes)

    def test_a_job_that_waits_for_a_node_that_died_is_over(self, rig: RayRig) -> None:
        end = rig.occupy(rig.nodes[0], rig.gpus)
        run = ask(rig, rig.nodes[:2])
        run.launch()
        assert run.wait_status(JobStatus.WAITING).nodes == rig.nodes[:2]
        revive = rig.kill_node(rig.nodes[1])
        run.wait_over()
        revive()
        end()
        seen = run.seen()
        assert seen is not None
        assert rig.nodes[1] in seen.text
        assert run.guest.hellos == {}

    # -- capacity ------------------------------------------------------------------------------------

    def test_the_autoscaler_is_told_how_large_the_cluster_is_to_be(self, rig: RayRig) -> None:
        def asked() -> str:
            return rig.driver("from ray.autoscaler._private.constants import AUTOSCALER_RESOURCE_REQUEST_CHANNEL as c\n"
                              "from ray.experimental.internal_kv import _internal_kv_get\n"
                              "import json; print(len(json.loads(_internal_kv_get(c))))")

        new = NodeView(node="ray-5", pool=rig.pool, engine="ray", gpu_type="H100", gpu_count=8, zone="z1",
                       lifecycle=NodeLifecycle.BOOTING)
        for _ in range(2):
            rig.engine.provision([new])
            assert asked() == "5"
        rig.engine.release([new.model_copy(update={"node": "n4"})])
        assert asked() == "4"
        rig.engine.release([new])
        assert asked() == "4"
