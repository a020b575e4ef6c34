"""Every wrong input is one clear line that names the field and the way out, with nothing stored."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from gangline.cli.runs import prepare_target
from gangline.cli.usage import instant_ms
from gangline.cli.yamlfile import read_fleet, read_yaml
from gangline.model.errors import Rejected

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True)
def project(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "project"
    root.mkdir()
    (root / "train.py").write_text("def main(lr=1.0): ...\nnot_a_function = lambda: 0\n")
    monkeypatch.chdir(root)
    # Whatever slips through must not start a server: this address has none.
    monkeypatch.setenv("GANGLINE_URL", f"unix:{root}/none.sock")
    return root


def refused(done: tuple[int, str, str]) -> str:
    status, out, err = done
    assert (status, out) == (2, "")
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    return err.removeprefix("error: ").rstrip("\n")


@pytest.mark.parametrize(("argv", "said"), [
    (["train:main", "--size", "0"], "size: a gang has at least 1 node, not 0"),
    (["train:main", "--size", "many"], "size: 'many' is not a size"),
    (["train:main", "--gpu", "H100:0"], "gpu: 'H100:0' asks for no GPU at all"),
    (["train:main", "--gpu", "?"], "gpu: '?' is not a GPU; write TYPE:COUNT such as H100:8, or cpu"),
    (["train:mian"], "function: no function mian in train.py (did you mean main?)"),
    (["trian:main"], "(did you mean train?)"),
    (["train:main", "--arg", "lrr=1"], "args: main takes no argument 'lrr' (did you mean lr?)"),
    (["train:main", "--arg", "lr"], "--arg: 'lr' has no name and value (write NAME=VALUE)"),
    (["train:main", "--arg", "lr=1", "--arg", "lr=2"], "--arg: 'lr' is given twice (give it once)"),
    (["train:main", "--volume", "ckpt=sft"], "volumes: 'ckpt' is not an absolute path such as /ckpt"),
    (["train:main", "--volume", "/ckpt=sft@"], "--volume: 'sft@' names no version after @"),
    (["train:main", "--timeout", "soon"], "timeout: 'soon' is not a duration"),
    (["train:main", "--priority", "urgent"], "priority: 'urgent' is not a priority"),
    (["train"], "'train' is neither a spec file nor a function (write FILE.yaml or package.module:function)"),
    (["missing.yaml"], "no file missing.yaml"),
    (["train:main", "--sise", "2"], "No such option"),
    ([], "Missing argument 'SPEC.yaml|MODULE:FUNCTION' (see gangline run --help)"),
])
def test_run(gl: Run, argv: list[str], said: str) -> None:
    assert said in refused(gl("run", *argv))


@pytest.mark.parametrize(("text", "said"), [
    ("command: [x]\nsise: 2\n", "sise: unknown field (remove it or check its spelling)"),
    ("command: [x]\nretries: {user: many}\n", "retries.user: expected a number of retries"),
    ("size: 1\n", "give a command or a function (one of the two)"),
    ("command: x\n", "command: expected a list of words such as [python, -m, train], not one string"),
    ("command: [x]\nimage: ubuntu\n", "image: images need the kubernetes engine, not available yet"),
    ("- command: [x]\n", "spec.yaml holds no gang"),
    ("command: [x\nsize: 1\n", "spec.yaml line 2: "),
    ("command: [x]\nsize: 1\nsize: 2\n", "spec.yaml line 3: 'size' is written twice"),
    ("command: !!python/object/apply:os.system [x]\n", "spec.yaml line 1: could not determine a constructor"),
    ("\t", "spec.yaml line 1: "),
    ("function: train:not_there\n", "function: no function not_there in train.py"),
    ("function: train:main\nargs: {lr: .nan}\n", "args: argument 'lr' is not JSON"),
    ("function: train:main\nargs: {lr: 2026-01-01}\n", "args: argument 'lr' is not JSON"),
    ("command: [x]\nroles: {a: {size: 1, command: [x]}}\n", "command belongs inside each role"),
])
def test_spec_files(gl: Run, project: Path, text: str, said: str) -> None:
    (project / "spec.yaml").write_text(text)
    assert said in refused(gl("submit", "spec.yaml"))


def test_the_file_is_named_with_the_field(gl: Run, project: Path) -> None:
    (project / "spec.yaml").write_text("command: [x]\nsise: 2\n")
    assert refused(gl("run", "spec.yaml")) == \
        "spec.yaml: sise: unknown field (remove it or check its spelling)"


def test_plan_on_files(gl: Run, project: Path) -> None:
    (project / "fleet.yaml").write_text("pools: [{name: p, gpu: 'H100:8', fabric: f, min: 2, max: 2}]\n")
    (project / "gangs.yaml").write_text("- {name: a, size: 2, gpu: H100:8, command: [x]}\n"
                                        "- {name: b, size: 1, gpu: H100:8, command: [x], timeout: 1h}\n")
    argv = ("plan", "--fleet", "fleet.yaml", "--gangs", "gangs.yaml")
    status, out, _ = gl(*argv, "--json")
    planned = json.loads(out)
    assert status == 0
    assert [p["gang"] for p in planned["placements"]] == ["a"]
    assert [w["gang"] for w in planned["waiting"]] == ["b"]
    assert "starts now" in gl(*argv)[1]
    (project / "gangs.yaml").write_text("name: a\n")
    assert "holds no list of gangs" in refused(gl(*argv))
    (project / "gangs.yaml").write_text("- {name: a, sise: 2, command: [x]}\n")
    assert "gangs[0].sise: unknown field" in refused(gl(*argv))


def test_a_huge_or_binary_file_is_refused(project: Path) -> None:
    (project / "big.yaml").write_text("#" * (1 << 20) + "\n")
    with pytest.raises(Rejected, match="is larger than 1 MiB"):
        read_yaml(project / "big.yaml")
    (project / "binary.yaml").write_bytes(b"a: \xff\x81")
    with pytest.raises(Rejected, match=r"binary\.yaml"):
        read_yaml(project / "binary.yaml")
    with pytest.raises(Rejected, match="cannot read"):
        read_yaml(project)


@pytest.mark.parametrize(("text", "said"), [
    ("pools: []\n", "pools: "),
    ("pools: [{name: a, gpu: H100:8, gppu: 1}]\n", "pools.0.gppu: unknown field"),
    ("pools: [{name: a, price_per_gpu_hour: 7.1}]\n", "write the price as a string"),
    ("nothing\n", "holds no fleet"),
    ("pools: [{name: a}]\nnodes: [{name: n, pool: b}]\n", "node n names pool 'b', which is not declared"),
    ("pools: [\n", "line 2: "),
])
def test_fleet_files(gl: Run, project: Path, text: str, said: str) -> None:
    (project / "fleet.yaml").write_text(text)
    with pytest.raises(Rejected) as caught:
        read_fleet(project / "fleet.yaml")
    assert said in str(caught.value)
    assert said in refused(gl("serve", "--fleet", str(project / "fleet.yaml")))


def test_a_fleet_file_that_is_not_there(gl: Run) -> None:
    assert refused(gl("serve", "--fleet", "none.yaml")) == "no file none.yaml"


@pytest.mark.parametrize(("argv", "said"), [
    (["--emulated", "nonsense:x"], "pools.0.gpu: 'nonsense:x' is not a GPU"),
    (["--emulated", "H100:8", "--price", "7,10"], "pools.0.price_per_gpu_hour: '7,10' is not an amount"),
    (["--emulated", "H100:8", "--nodes", "0"], "Invalid value for '--nodes'"),
    ([], "Missing option '--emulated'"),
])
def test_fleet_init(gl: Run, home: Path, argv: list[str], said: str) -> None:
    assert said in refused(gl("fleet", "init", *argv))
    assert not home.exists()


def test_fleet_init_does_not_overwrite(gl: Run, home: Path) -> None:
    status, out, err = gl("fleet", "init", "--emulated", "H100:8", "--nodes", "3", "--price", "7.10")
    assert (status, out) == (0, "")
    assert "3 emulated nodes with H100:8 each" in err
    fleet = read_fleet(home / "fleet.yaml")
    assert len(fleet.all_nodes()) == 3
    assert fleet.pools[0].emulated
    assert fleet.pools[0].rdma is not None
    again = refused(gl("fleet", "init", "--emulated", "B300:8"))
    assert "is there already (give --force to replace it)" in again
    assert gl("fleet", "init", "--emulated", "B300:8", "--no-rdma", "--force")[0] == 0
    assert read_fleet(home / "fleet.yaml").pools[0].gpu == "B300:8"


# The HTTP library leaves the socket of a failed connection to the garbage collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("argv", [["list"], ["show", "x"], ["status"], ["fleet", "show"], ["volume", "list"],
                                  ["usage"], ["run", "train:main"], ["cancel", "x"], ["stop"]])
def test_an_unreachable_server_is_status_3(gl: Run, argv: list[str]) -> None:
    status, out, err = gl(*argv)
    assert (status, out) == (3, "")
    assert "no server answers at unix:" in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(("argv", "said"), [
    (["usage", "--by", "colour"], "--by: 'colour' is not a group (choose from gang, attempt,"),
    (["usage", "--from", "tomorrow"], "--from: 'tomorrow' is not a time"),
    (["list", "--state", "lost"], "Invalid value for '--state'"),
    (["nonsense"], "No such command 'nonsense'"),
    (["--url", "ftp://x", "list"], "No such option"),
    (["list", "--url", "ftp://x"], "url: 'ftp://x' is not the address of a server"),
])
def test_other_commands(gl: Run, argv: list[str], said: str) -> None:
    assert said in refused(gl(*argv))


def test_instants() -> None:
    assert instant_ms(None, "--from", 5) is None
    assert instant_ms("2h", "--from", 7_200_000) == 0
    assert instant_ms("2026-01-31T12:00+00:00", "--from", 0) == 1_769_860_800_000


def test_a_command_line_becomes_a_submission(project: Path, home: Path) -> None:
    given = {"name": None, "size": "2", "gpu": ("H200:8", "H100:8"), "ranks_per_node": 1, "rdma": True,
             "args": ("lr=0.5",), "env": ("A=b=c",), "volumes": ("/ckpt=sft@best", "/out=res"),
             "timeout": "1h", "priority": "7", "tenant": None, "pool": "p", "zone": None, "slot": "s",
             "epoch": 3}
    made = prepare_target("train:main", dict(given), None).submission
    assert (made.slot, made.epoch) == ("s", 3)
    assert made.spec.wire() == {
        "name": "main", "size": 2, "gpu": ["H200:8", "H100:8"], "ranks_per_node": 1, "rdma": True,
        "function": "train:main", "args": {"lr": 0.5}, "env": {"A": "b=c"}, "timeout": 3600.0, "priority": 7,
        "volumes": {"/ckpt": {"volume": "sft", "from": "sft@best"}, "/out": {"volume": "res"}},
        "placement": {"pool": "p"}, "on_orphan": "keep"}
    assert made.snapshot


def test_options_add_to_a_file(project: Path, home: Path) -> None:
    (project / "my job.yaml").write_text(
        "function: train:main\nargs: {lr: 1}\nenv: {A: '1', B: '2'}\nsize: 4\nplacement: {zone: z}\n")
    given = {"name": None, "size": None, "gpu": (), "ranks_per_node": None, "rdma": None, "args": ("lr=nan",),
             "env": ("B=3",), "volumes": (), "timeout": None, "priority": "high", "tenant": "t", "pool": "p",
             "zone": None, "slot": None, "epoch": 0}
    spec = prepare_target("my job.yaml", given, None).submission.spec
    assert (spec.name, spec.size, spec.args, spec.env) == ("my-job", 4, {"lr": "nan"}, {"A": "1", "B": "3"})
    assert (spec.placement.zone, spec.placement.pool, spec.priority, spec.tenant) == ("z", "p", 100, "t")


def test_help_shows_examples_and_needs_nothing(gl: Run) -> None:
    for argv in (["--help"], ["run", "--help"], ["fleet", "init", "-h"], ["volume", "name", "--help"]):
        status, out, err = gl(*argv)
        assert (status, err) == (0, "")
        assert "Example" in out
    listed = gl("--help")[1].partition("Commands:")[2].split("\n  ")[1:]
    assert len(listed) == 17
    for line in listed:
        assert len(line.split()) > 2, f"no help: {line}"
    assert gl("--version")[1].startswith("gangline, version ")


def test_an_unforeseen_error_is_one_line_too(gl: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    from gangline.cli import usage

    monkeypatch.setattr(usage, "instant_ms", lambda *_: 1 / 0)
    status, _, err = gl("usage")
    assert status == 70
    assert err == ("error: internal error: ZeroDivisionError: division by zero "
                   "(GANGLINE_DEBUG=1 shows where; please report it)\n")
    monkeypatch.setenv("GANGLINE_DEBUG", "1")
    assert "Traceback" in gl("usage")[2]


def test_doctor_without_a_server(gl: Run, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GANGLINE_URL")
    status, out, _ = gl("doctor")
    assert status == 0
    assert "no server runs; the first command that needs one starts it" in out
    home.mkdir()
    (home / "fleet.yaml").write_text("pools: [{name: a, gpu: '?'}]\n")
    os.chmod(home, 0o755)
    status, out, _ = gl("doctor")
    assert status == 1
    assert "fail  " in out
    assert f"fix: chmod 700 {home}" in out


def test_stop_without_a_server_is_no_failure(gl: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GANGLINE_URL")
    status, _, err = gl("stop")
    assert (status, "no server runs for" in err) == (0, True)
