"""`gangline rdma …` as a user meets it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

Gl = Callable[..., tuple[int, str, str]]


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A host with one InfiniBand port and everything that belongs to it."""
    base = "sys/class/infiniband/mlx5_0"
    write(tmp_path / "host", {
        f"{base}/ports/1/state": "4: ACTIVE", f"{base}/ports/1/phys_state": "5: LinkUp",
        f"{base}/ports/1/rate": "400 Gb/sec (4X NDR)", f"{base}/ports/1/link_layer": "InfiniBand",
        f"{base}/ports/1/counters/link_downed": "0", f"{base}/device/vendor": "0x15b3",
        f"{base}/device/device": "0x1021",
        "dev/infiniband/uverbs0": "", "proc/sys/kernel/osrelease": "6.8.0", "usr/lib64/libibverbs.so.1": "",
        "proc/modules": "ib_core 1 0\nib_uverbs 1 0\nnvidia_peermem 1 0",
        "proc/self/limits": "Max locked memory         unlimited            unlimited            bytes",
        "proc/net/route": "Iface Destination\neth0\t00000000\t010200C0\t0003\t0\t0\t0\t00000000",
        "sys/class/net/eth0/operstate": "up"})
    return tmp_path / "host"


def test_a_host_in_text(gl: Gl, root: Path) -> None:
    status, out, err = gl("rdma", "detect", "--root", str(root))
    assert (status, err) == (0, "")
    assert out.splitlines()[0].split() == ["rdma", "ready"]
    assert "onprem.infiniband" in out
    assert "mlx5_0:1" in out
    assert "not proved yet" in out


def test_a_host_as_json(gl: Gl, root: Path) -> None:
    status, out, _ = gl("rdma", "detect", "--root", str(root), "--json")
    data = json.loads(out)
    assert status == 0
    assert (data["profile"], data["verdict"], data["nics"][0]["gbps"]) == ("onprem.infiniband", "ready", 400.0)


def test_what_is_wrong_has_its_fix_and_exit_one(gl: Gl, root: Path) -> None:
    (root / "sys/class/infiniband/mlx5_0/ports/1/state").write_text("2: INIT\n")
    status, out, _ = gl("rdma", "detect", "--root", str(root))
    assert status == 1
    assert out.splitlines()[0].split() == ["rdma", "unusable"]
    assert "[port-init]" in out
    assert "fix: start a subnet manager" in out


def test_this_machine_whatever_it_has(gl: Gl) -> None:
    status, out, _ = gl("rdma", "detect", "--json")
    assert status in (0, 1)
    assert json.loads(out)["host"]["root"] == "/"


def test_the_environment_with_reasons_and_for_a_shell(gl: Gl, root: Path) -> None:
    status, out, _ = gl("rdma", "env", "--root", str(root), "--node", "n1")
    assert status == 0
    assert "NCCL_IB_HCA==mlx5_0:1\n    must, detected: " in out
    status, out, _ = gl("rdma", "env", "--root", str(root), "--export", "--profile", "aws.p5")
    assert "export NCCL_NET='AWS Libfabric'" in out
    assert status == 1  # this host is no such machine


def test_own_values_are_judged_on_this_machine(gl: Gl, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NCCL_NET", "Socket")
    status, out, _ = gl("rdma", "env", "--json")
    data = json.loads(out)
    assert (status, data["assured"]) == (1, False)
    assert [(one["name"], one["undoes"]) for one in data["overrides"]] == [("NCCL_NET", True)]


def test_profiles_and_what_engines_are_asked_for(gl: Gl, root: Path) -> None:
    assert "azure.nd-h100-v5" in gl("rdma", "profiles")[1]
    assert "AWS Libfabric" in gl("rdma", "profiles", "aws.p5")[1]
    assert json.loads(gl("rdma", "profiles", "aws.p5", "--json")[1])["nics"] == 32
    assert "vpc.amazonaws.com/efa: '32'" in gl("rdma", "profiles", "aws.p5", "--for", "kubernetes")[1]
    assert "#SBATCH --nodes=4" in gl("rdma", "profiles", "aws.p5", "--for", "slurm", "--nodes", "4")[1]
    assert json.loads(gl("rdma", "profiles", "aws.p5", "--for", "ray", "--json")[1])["actor"]["num_gpus"] == 8


def test_an_own_file_of_profiles(gl: Gl, root: Path, tmp_path: Path) -> None:
    own = tmp_path / "own.yaml"
    own.write_text("profiles:\n- {name: lab, provider: us, title: our lab, extends: [onprem.infiniband], nics: 2,\n"
                   "   match: {link_layer: InfiniBand, hcas: [1, 8]}}\n")
    status, out, _ = gl("rdma", "detect", "--root", str(root), "--profiles", str(own))
    assert status == 1
    assert "lab (our lab)" in out
    assert "[nic-missing]" in out


def test_estimates(gl: Gl) -> None:
    out = gl("rdma", "estimate", "--bytes", "717e9", "--within", "2s")[1]
    assert "114.7 s" in out
    assert "1.79 s" in out
    assert "89.6%" in out
    assert "12.80 s" in out
    out = gl("rdma", "estimate", "--bytes", "717e9", "--fabric", "aws.p5", "--nodes", "16")[1]
    assert "rdma aws.p5" in out
    assert "ONE SOURCE" in out
    made = json.loads(gl("rdma", "estimate", "--kv", "80,8,128,32768", "--gbps", "400", "--json")[1])
    assert made["bytes"] == 10 << 30
    assert len(made["estimates"]) == 1


@pytest.mark.parametrize(("argv", "words"), [
    (("detect", "--root", "/nowhere"), "does not exist"),
    (("detect", "--profile", "aws.p9"), "no profile 'aws.p9'"),
    (("detect", "--profiles", "/nowhere.yaml"), "no file"),
    (("env", "--nccl", "new"), "not a version"),
    (("profiles", "aws.p9"), "no profile"),
    (("profiles", "--for", "slurm"), "name a profile"),
    (("estimate",), "--bytes"),
    (("estimate", "--bytes", "1", "--kv", "1,1,1,1"), "either"),
    (("estimate", "--bytes", "much"), "717e9"),
    (("estimate", "--bytes", "nan"), "out of range"),
    (("estimate", "--kv", "1,2"), "80,8,128,32768"),
    (("estimate", "--bytes", "1", "--gbps", "0"), "no rate"),
    (("estimate", "--bytes", "1", "--gbps", "1", "--fabric", "aws.p5"), "one of them"),
    (("estimate", "--bytes", "1", "--fabric", "aws.p6e-gb200"), "give --gbps"),
    (("estimate", "--bytes", "1", "--within", "0"), "no time"),
    (("estimate", "--bytes", "1", "--within", "soon"), "--within"),
])
def test_what_is_asked_wrong_is_one_line(gl: Gl, argv: tuple[str, ...], words: str) -> None:
    status, out, err = gl("rdma", *argv)
    assert (status, out) == (2, "")
    assert len(err.splitlines()) == 1
    assert words in err
