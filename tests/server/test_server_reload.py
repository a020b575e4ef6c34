"""Following a fleet file and asking pools for sizes, over HTTP."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
import yaml

from gangline.model.errors import NotFound, Rejected
from gangline.model.fleet import Fleet
from gangline.server.reloading import reload_on_hangup

POOL = {"name": "p", "gpu": "H100:8", "min": 2, "max": 4, "boot": "1h", "emulated": True,
        "price_per_gpu_hour": "2.50"}


def text(**pool: object) -> str:
    return yaml.safe_dump({"pools": [{**POOL, **pool}]})


def test_a_reload_follows_the_home_s_file_once_there_is_one(server: Any) -> None:
    with server.client() as client:
        (server.home / "fleet.yaml").write_text(text(min=3))
        told = client.reload_fleet(dry_run=True)
        assert (told.added, told.dry_run, len(client.nodes())) == (("p-3",), True, 2)
        assert client.status().fleet is None
        assert client.reload_fleet().added == ("p-3",)
        assert client.status().fleet == str(server.home / "fleet.yaml")
        assert client.reload_fleet().any is False
        (server.home / "fleet.yaml").unlink()
        with pytest.raises(Rejected, match="cannot read"):
            client.reload_fleet()
        assert len(client.nodes()) == 3


@pytest.mark.parametrize(("written", "words"), [
    ("pools: [", "is not YAML"),
    ("pools: []", "pools"),
    (text(engine="slurm"), "needs a block `slurm:`"),
    (text(min=5), r"max \(4\) is below min \(5\)"),
])
def test_a_file_of_no_use_changes_nothing(server: Any, written: str, words: str) -> None:
    with server.client() as client:
        for ask in ({"text": written, "dry_run": True}, {}):
            (server.home / "fleet.yaml").write_text(written)
            with pytest.raises(Rejected, match=words):
                client.reload_fleet(**ask)  # type: ignore[arg-type]
        assert len(client.nodes()) == 2
        assert server.state.fleet == Fleet.parse({"pools": [POOL]})


def test_the_text_of_a_file_is_only_looked_at(server: Any) -> None:
    with server.client() as client:
        assert client.reload_fleet(text=text(min=4), dry_run=True).added == ("p-3", "p-4")
        with pytest.raises(Rejected, match="only looked at"):
            client.reload_fleet(text=text(min=4))
        assert len(client.nodes()) == 2


def test_a_hangup_reloads_and_a_bad_file_does_no_harm(server: Any) -> None:
    handlers = {}

    class Clock:
        def add_signal_handler(self, number: int, handler: object) -> None:
            handlers[number] = handler

        def create_task(self, work: object) -> object:
            return server.clock.create_task(work)

    server.in_loop(lambda: reload_on_hangup(Clock(), server.state))  # type: ignore[arg-type]
    with server.client() as client:
        for written, count in (("pools: [", 2), (text(min=3), 3)):
            (server.home / "fleet.yaml").write_text(written)
            server.in_loop(handlers[signal.SIGHUP])
            assert client.reload_fleet(text=text(min=2), dry_run=True).dry_run  # waits for the one before
            assert len(client.nodes()) == count


def test_sizes_are_asked_for_over_http(server: Any) -> None:
    with server.client() as client:
        assert client.scale("p", 4, dry_run=True).added == ("p-3", "p-4")
        assert client.scale("p", 3).added == ("p-3",)
        assert client.scale("p", None).before == 3
        with pytest.raises(NotFound, match="no pool q"):
            client.scale("q", 1)
        with pytest.raises(Rejected, match="between 2 and 4"):
            client.scale("p", 5)
    with server.raw() as http:
        assert http.post("/v1/pools/p/scale", json={"nodes": "many"}).status_code == 422
        assert http.post("/v1/fleet/reload", json={"file": "/etc/passwd"}).status_code == 422


def test_the_file_of_a_server_may_be_anywhere(server: Any, tmp_path: Path) -> None:
    elsewhere = tmp_path / "f.yaml"
    elsewhere.write_text(text(min=3))
    server.state.fleet_path = str(elsewhere)
    with server.client() as client:
        assert client.reload_fleet().file == str(elsewhere)
