"""Detection on constructed hosts: the whole answer, and no crash on whatever is done to them."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from host_trees import HostTree, apart, flat, rail
from hypothesis import given, settings
from hypothesis import strategies as st
from known_trees import TREES

from gangline.cli.render_rdma import detection_lines, environment_lines
from gangline.fabric.detection import Detection, detect
from gangline.fabric.environment import Gang, compare, environment, view_of
from gangline.fabric.host.pci import Distance, distance


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
    assert all(finding.fix for finding in found.findings if finding.level in ("fail", "degraded"))


def test_nothing_is_written_and_the_answer_stays_the_same(tmp_path: Path) -> None:
    TREES["crusoe virtual functions"].build(HostTree(tmp_path))
    before = sorted((path, path.lstat().st_mtime_ns) for path in tmp_path.rglob("*"))
    assert detect(tmp_path) == detect(tmp_path)
    assert sorted((path, path.lstat().st_mtime_ns) for path in tmp_path.rglob("*")) == before


def test_a_link_does_not_lead_out_of_the_root(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("400 Gb/sec (4X NDR)")
    root = tmp_path / "root"
    tree = HostTree(root)
    tree.hca("mlx5_0", flat(3))
    rate = root / "sys/class/infiniband/mlx5_0/ports/1/rate"
    rate.unlink()
    rate.symlink_to(tmp_path / "secret")
    found = detect(root)
    assert found.nics[0].gbps is None
    assert any("leads out" in unread.why for unread in found.host.unread)


def test_a_pipe_in_place_of_a_file_holds_nobody_up(tmp_path: Path) -> None:
    tree = HostTree(tmp_path)
    tree.hca("mlx5_0", flat(3))
    state = tmp_path / "sys/class/infiniband/mlx5_0/ports/1/state"
    state.unlink()
    os.mkfifo(state)
    assert "state-unknown" in {finding.code for finding in detect(tmp_path).findings}


@pytest.mark.parametrize(("a", "b", "numa", "expected"), [
    (rail(0, 0), rail(0, 1), (0, 0), Distance.PIX),
    (("pci0000:00", "0000:00:01.0", "0000:01:00.0", "0000:02:00.0", "0000:03:00.0", "0000:04:00.0"),
     ("pci0000:00", "0000:00:01.0", "0000:01:00.0", "0000:02:01.0", "0000:05:00.0", "0000:06:00.0"), (0, 0),
     Distance.PXB),
    (flat(1), flat(2), (0, 0), Distance.PHB),
    (rail(0, 0), rail(1, 1), (0, 0), Distance.NODE),
    (rail(0, 0), rail(1, 1), (0, 1), Distance.SYS),
    (rail(0, 0), rail(1, 1), (None, 1), None),
    (rail(0, 0), apart(1), (0, 0), Distance.NODE),
    ((), rail(0, 0), (0, 0), None),
    (("0000:03:00.0",), rail(0, 0), (0, 0), None),
])
def test_the_distance_of_two_devices(a: tuple[str, ...], b: tuple[str, ...], numa: tuple[int | None, int | None],
                                     expected: Distance | None) -> None:
    assert distance(a, b, *numa) is expected
    assert distance(b, a, *reversed(numa)) is expected


MUTATED = ("oracle H100, 16 and 2", "crusoe virtual functions", "a3-mega without verbs",
           "GB200 with NVLink between nodes", "p4d", "azure H100 with accelerated networking")
GARBAGE = st.one_of(
    st.binary(max_size=40), st.just(b"9" * 5000), st.just(b"-1\n"), st.just(b"0x" + b"f" * 400), st.just(b"\x00" * 9),
    st.just(b"99999999999999999999 Gb/sec"), st.just(b"4: ACTIVE\n4: ACTIVE"), st.just("\u00b2".encode()),
    st.just(b"::ffff:1.2.3.4"), st.just(b"unlimited"), st.just(b"a" * (2 << 20)))


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, list[str]]]:
    """Hosts to damage copies of, each with the paths of everything in it."""
    built = {}
    for name in MUTATED:
        root = tmp_path_factory.mktemp("host")
        TREES[name].build(HostTree(root))
        built[name] = root, sorted(str(path.relative_to(root)) for path in root.rglob("*"))
    return built


def ask_everything(root: Path) -> Detection:
    """All that is made of a host, down to what a person reads."""
    found = detect(root)
    for gang in (Gang(node="n", nodes=2), Gang(nodes=1, nccl=(2, 18)), Gang(user={"NCCL_IB_HCA": "mlx5"})):
        env = environment(found, gang)
        assert environment_lines(env, found)
        compare([view_of("a", found, env), view_of("b", found, env)])
    assert detection_lines(found)
    assert Detection.model_validate_json(found.model_dump_json()) == found
    return found


def replace(path: Path, how: str, data: bytes) -> None:
    """Put something else where a file or a directory was."""
    match how:
        case "garbage":
            path.write_bytes(data)
        case "directory":
            path.mkdir()
        case "loop":
            path.symlink_to(path.name)
        case "outside":
            path.symlink_to("/")
        case "names":
            path.mkdir()
            for name in (b"\xff\xfe", b"1e9", b"00", b"-1", b"x" * 200, b"\x1b[31m"):
                Path(os.fsdecode(os.path.join(os.fsencode(path), name))).write_bytes(data[:100])


def remove(path: Path) -> None:
    """Take away whatever is there."""
    if path.is_symlink() or path.is_file():
        path.unlink()
    elif path.is_dir():
        shutil.rmtree(path)


@contextmanager
def damaged(path: Path, how: str, data: bytes, kept: Path) -> Iterator[None]:
    """A file or a directory (unless one above it is gone already) is broken for a while, then whole again."""
    if not os.path.lexists(path) or not path.parent.resolve().is_relative_to(kept.parent):
        yield
        return
    path.rename(kept)
    replace(path, how, data)
    try:
        yield
    finally:
        remove(path)
        kept.rename(path)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_damaged_host_gives_findings_never_a_traceback(healthy: dict[str, tuple[Path, list[str]]],
                                                         data: st.DataObject) -> None:
    root, paths = healthy[data.draw(st.sampled_from(MUTATED))]
    with ExitStack() as damages:
        for number, path in enumerate(data.draw(st.lists(st.sampled_from(paths), min_size=1, max_size=8))):
            how = data.draw(st.sampled_from(("missing", "garbage", "directory", "loop", "outside", "names")))
            kept = root.parent / f"{root.name}-kept-{number}"
            damages.enter_context(damaged(root / path, how, data.draw(GARBAGE), kept))
        ask_everything(root)


@contextmanager
def denied(refused: set[str], code: int) -> Iterator[None]:
    """The kernel refuses these paths. (Tests may run as root, whom no mode of a file stops.)"""
    open_, listdir = os.open, os.listdir

    def check(path: object) -> None:
        if isinstance(path, str) and path in refused:
            raise OSError(code, os.strerror(code), path)

    def opened(path: str, flags: int, mode: int = 0o777, **more: int) -> int:
        check(path)
        return open_(path, flags, mode, **more)

    def listed(path: str) -> list[str]:
        check(path)
        return listdir(path)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "open", opened)
        patch.setattr(os, "listdir", listed)
        yield


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_what_may_not_be_read_is_unknown(healthy: dict[str, tuple[Path, list[str]]], data: st.DataObject) -> None:
    root, paths = healthy[data.draw(st.sampled_from(MUTATED))]
    chosen = data.draw(st.lists(st.sampled_from(paths), min_size=1, max_size=12))
    code = data.draw(st.sampled_from((errno.EACCES, errno.EPERM, errno.EIO, errno.EINVAL, errno.ENODEV)))
    with denied({os.path.realpath(root / path) for path in chosen}, code):
        ask_everything(root)


def test_a_denied_state_is_told_and_not_taken_for_healthy(healthy: dict[str, tuple[Path, list[str]]]) -> None:
    root, _ = healthy["oracle H100, 16 and 2"]
    state = os.path.realpath(root / "sys/class/infiniband/mlx5_7/ports/1/state")
    with denied({state}, errno.EACCES):
        found = detect(root)
    assert found.verdict == "unknown"
    told = [(finding.code, finding.where) for finding in found.findings if finding.level == "unknown"]
    assert told == [("state-unknown", "mlx5_7:1")]
