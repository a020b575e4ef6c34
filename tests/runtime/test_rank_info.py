"""A rank knows its place without asking anybody."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys

import pytest

from gangline.model.errors import Unavailable
from gangline.runtime.info import ClusterInfo, RdmaInfo, cluster_info


def test_outside_a_gang_it_is_a_world_of_one() -> None:
    assert cluster_info() == ClusterInfo()
    assert (cluster_info().gang, cluster_info().world_size, cluster_info().size) == (None, 1, 1)
    assert cluster_info().addresses == ("127.0.0.1",)


def test_in_a_gang_everything_is_known_without_a_call(supervise, be_rank) -> None:
    fake = supervise(4)
    be_rank(fake, 3, node_rank=1)
    os.environ["LOCAL_RANK"] = "1"
    info = cluster_info()
    assert (info.rank, info.world_size, info.local_rank, info.local_world_size) == (3, 4, 1, 2)
    assert (info.node_rank, info.size, info.node, info.addresses) == (1, 2, "n1", ("127.0.1.1", "127.0.1.2"))
    assert (info.fabric, info.zone, info.emulated, info.slot, info.attempt) == ("f", "z", True, "run/sft", 1)
    assert (info.least, info.most) == (2, 2), "not elastic"
    assert info.rdma == RdmaInfo(requested=True, proved=False, emulated=True)
    assert info.volumes["/ckpt"].volume == "sft"
    assert info.volumes["/ckpt"].resume is None
    assert cluster_info() is info
    assert fake.requests == []
    with pytest.raises(dataclasses.FrozenInstanceError):
        info.rank = 1  # type: ignore[misc]


def test_a_forked_rank_has_its_own_place(supervise, be_rank, monkeypatch) -> None:
    fake = supervise(4)
    be_rank(fake, 0)
    assert cluster_info().rank == 0
    monkeypatch.setenv("RANK", "2")
    assert cluster_info().rank == 2


def test_an_unreadable_file_says_what_to_do(monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("GANGLINE_INFO", str(tmp_path / "gone.json"))
    with pytest.raises(Unavailable, match="unset GANGLINE_INFO"):
        cluster_info()


def test_the_import_is_light() -> None:
    code = ("import sys, gangline.runtime\n"
            "gangline.runtime.cluster_info()\n"
            "print([m for m in ('torch', 'pydantic', 'numpy', 'httpx') if m in sys.modules])")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
