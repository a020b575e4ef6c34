from __future__ import annotations

import os
from pathlib import Path

import pytest

from gangline.model.errors import Rejected
from gangline.server.fleet import detect_gpus, gpu_type, load_fleet, this_machine


@pytest.mark.parametrize(("model", "short"), [
    ("NVIDIA H100 80GB HBM3", "H100"),
    ("NVIDIA H200", "H200"),
    ("NVIDIA A100-SXM4-80GB", "A100"),
    ("Tesla V100-SXM2-16GB", "V100"),
    ("NVIDIA L40S", "L40S"),
    ("NVIDIA GeForce RTX 4090", "RTX-4090"),
    ("NVIDIA B300 SXM6 AC", "B300"),
])
def test_a_driver_s_model_name_has_a_short_type(model: str, short: str) -> None:
    assert gpu_type(model) == short


def fake_driver(root: Path, *models: str) -> Path:
    for index, model in enumerate(models):
        card = root / f"0000:{index:02x}:00.0"
        card.mkdir(parents=True)
        (card / "information").write_text(f"Model: \t\t {model}\nIRQ:   \t\t 1\n")
    return root


def test_gpus_are_found_by_the_driver_s_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # no nvidia-smi
    driver = fake_driver(tmp_path / "gpus", "NVIDIA H100 80GB HBM3", "NVIDIA H100 80GB HBM3")
    assert detect_gpus({}, driver) == "H100:2"
    assert detect_gpus({"CUDA_VISIBLE_DEVICES": ""}, driver) is None
    assert detect_gpus({}, tmp_path / "none") is None


def test_gpus_are_found_by_nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho 'GPU 0: NVIDIA H200 (UUID: GPU-1)'\n"
                    "echo '  MIG 1g.18gb Device 0: (UUID: MIG-1)'\necho 'GPU 1: NVIDIA H200 (UUID: GPU-2)'\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert detect_gpus({}) == "H200:2"


def test_without_gpus_this_machine_offers_its_processors() -> None:
    (pool,) = this_machine({"CUDA_VISIBLE_DEVICES": ""}).pools
    assert (pool.name, pool.ask.type, pool.emulated) == ("local", "cpu", False)
    assert pool.ask.count == len(os.sched_getaffinity(0))


@pytest.mark.parametrize(("text", "words"), [
    ("pools: [", "is not YAML"),
    ("- a", "expected `pools:`"),
    ("pools:\n- {name: a, gpus: 'H100:8'}", r"pools\.0\.gpus: unknown field"),
    ("pools: []", "pools"),
])
def test_a_wrong_fleet_file_is_one_line_naming_the_field(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "fleet.yaml"
    path.write_text(text)
    with pytest.raises(Rejected, match=words) as caught:
        load_fleet(path)
    assert "fleet" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_fleet_file_says_how_to_write_one(tmp_path: Path) -> None:
    with pytest.raises(Rejected, match="gangline fleet init"):
        load_fleet(tmp_path / "none.yaml")
