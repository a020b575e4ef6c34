from __future__ import annotations

import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from gangline.client.submission import Origin, default_name, prepare, prepare_many, submit
from gangline.model.errors import Bug, NotFound, Rejected
from gangline.model.gang import Ensured, Submission
from gangline.model.spec import GangSpec, OnOrphan
from gangline.model.states import GangState


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    (root / "lib").mkdir(parents=True)
    (root / "train.py").write_text("def main(lr=1.0, *, steps): ...\n")
    (root / "other.py").write_text("def evaluate(**anything): ...\n")
    (root / "lib" / "apart.py").write_text("def helper(): ...\n")
    return root


@pytest.fixture
def origin(project: Path, tmp_path: Path) -> Origin:
    return Origin(search=(project,), home=tmp_path / "home")


def test_a_function_by_name(origin: Origin) -> None:
    made = prepare("train:main", {"steps": 3}, options={"size": 2, "gpu": "H100:8"}, origin=origin)
    spec = made.submission.spec
    assert (spec.name, spec.function, spec.args, spec.size) == ("main", "train:main", {"steps": 3}, 2)
    assert made.submission.interpreter == sys.executable
    assert made.archive is not None
    assert made.archive.stem == made.submission.snapshot


def test_a_spec_with_roles_is_sent_with_their_one_root(origin: Origin) -> None:
    trainer = {"size": 1, "function": "train:main", "args": {"steps": 1}}
    evaluation = {"size": 2, "function": "other:evaluate"}
    made = prepare({"name": "rl", "roles": {"trainer": trainer, "eval": evaluation}}, origin=origin)
    assert made.submission.snapshot


def test_roles_of_several_roots_are_refused(origin: Origin, project: Path, tmp_path: Path) -> None:
    both = Origin(search=(project, project / "lib"), home=tmp_path / "home")
    roles = {"a": {"size": 1, "function": "other:evaluate"}, "b": {"size": 1, "function": "apart:helper"}}
    with pytest.raises(Rejected, match="workdir: the roles' functions live in 2 directories"):
        prepare({"name": "rl", "roles": roles}, origin=both)


@pytest.mark.parametrize(("spec", "message"), [
    ({"name": "a", "function": "train:man"}, "function: no function man in train.py (did you mean main?)"),
    ({"name": "a", "roles": {"t": {"size": 1, "function": "trian:main"}}},
     "roles.t.function: no module trian"),
    ({"name": "a", "function": "train:main", "args": {"step": 1}},
     "args: main takes no argument 'step' (did you mean steps?)"),
    ({"name": "a", "function": "train:main"}, "args: main needs the argument 'steps'"),
    ({"name": "a", "function": "train:main", "args": [1]}, "args: "),
    ({"name": "a", "function": "train:main", "sise": 2}, "sise: unknown field"),
    ({"name": "a", "function": "train:main", "size": 0}, "size: a gang has at least 1 node, not 0"),
    ({"name": "a", "function": "train:main", "size": "2-4"}, "size: '2-4' is not a size"),
    ({"name": "a", "function": "train:main", "gpu": "H100:0"}, "gpu: 'H100:0' asks for no GPU at all"),
    ({"name": "a", "command": ["x"], "workdir": "."}, "workdir: '.' is relative"),
    ({"name": "a", "command": ["x"], "workdir": "/no/such/place"},
     "workdir: /no/such/place is not a directory"),
    ({"name": "a", "function": "train:main", "secrets": ["S"]}, "secrets: secrets are not available yet"),
    ({"name": "a"}, "give a command or a function"),
])
def test_what_is_wrong_is_named(origin: Origin, spec: dict[str, Any], message: str) -> None:
    with pytest.raises((Rejected, NotFound)) as caught:
        prepare(spec, origin=origin)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_command_travels_with_its_workdir_only(origin: Origin, project: Path, tmp_path: Path) -> None:
    bare = prepare(GangSpec(name="a", command=("true",)), origin=origin)
    assert (bare.submission.snapshot, bare.archive) == (None, None)
    here = Origin(base=project, home=tmp_path / "home")
    relative = prepare({"name": "a", "command": ["true"], "workdir": "."}, origin=here)
    absolute = prepare({"name": "a", "command": ["true"], "workdir": str(project)}, origin=here)
    assert relative.submission.snapshot is not None
    assert relative.submission.digest() == absolute.submission.digest()
    assert relative.submission.spec.workdir == "."


def test_a_function_comes_from_its_workdir_when_there_is_one(project: Path, tmp_path: Path) -> None:
    origin = Origin(base=project, search=(project,), home=tmp_path / "home")
    made = prepare({"name": "a", "function": "apart:helper", "workdir": "lib"}, origin=origin)
    assert made.submission.snapshot
    with pytest.raises(Rejected, match=r"workdir: other:evaluate is imported from"):
        prepare({"name": "a", "function": "other:evaluate", "workdir": "lib"}, origin=origin)


def test_installed_functions_send_nothing(tmp_path: Path) -> None:
    made = prepare("json:dumps", {"obj": 1}, origin=Origin(home=tmp_path / "home"))
    assert (made.submission.snapshot, made.archive) == (None, None)
    assert not (tmp_path / "home").exists()


def test_a_home_inside_the_project_does_not_travel(project: Path) -> None:
    home = project / ".state"
    (home / "volumes").mkdir(parents=True)
    (home / "volumes" / "big").write_text("x")
    made = prepare("other:evaluate", origin=Origin(search=(project,), home=home))
    assert made.archive is not None
    with tarfile.open(made.archive) as tar:
        assert tar.getnames() == ["lib/apart.py", "other.py", "train.py"]


def test_who_has_to_watch(origin: Origin, project: Path, tmp_path: Path) -> None:
    def keeps(slot: str | None, watched: bool, **spec: Any) -> OnOrphan | None:
        given = Origin(slot=slot, watched=watched, home=tmp_path / "home")
        return prepare({"name": "a", "command": ["x"], **spec}, origin=given).submission.spec.on_orphan

    assert keeps(None, True) is OnOrphan.KEEP
    assert keeps("step", False) is OnOrphan.KEEP
    assert keeps("step", True) is None
    assert keeps("step", False, on_orphan="cancel") is OnOrphan.CANCEL


def test_many_share_one_archive_and_number_their_slots(origin: Origin) -> None:
    made = prepare_many("other:evaluate", [{"shard": i} for i in range(3)],
                        origin=Origin(slot="s", epoch=4, search=origin.search, home=origin.home))
    assert [p.submission.slot for p in made] == ["s#0", "s#1", "s#2"]
    assert {p.submission.epoch for p in made} == {4}
    assert len({p.archive for p in made}) == 1
    first, second = (prepare("other:evaluate", origin=origin).submission.slot for _ in range(2))
    assert first != second


def test_the_decorator_s_options_are_read_without_importing(project: Path, origin: Origin) -> None:
    (project / "job.py").write_text(
        "import gangline\nSIZE = 3\nraise RuntimeError\n"
        "@gangline.clustered(size=4, gpu=['H200:8', 'H100:8'], volumes={'/ckpt': 'sft'}, **{'rdma': True})\n"
        "def known(): ...\n"
        "@clustered(size=SIZE, name='other')\n"
        "def computed(): ...\n")
    spec = prepare("job:known", options={"size": 2}, origin=origin).submission.spec
    assert (spec.size, spec.gpu, spec.rdma, spec.volumes["/ckpt"].volume) == (
        2, ("H200:8", "H100:8"), True, "sft")
    with pytest.raises(Rejected, match="size: the decorator of computed computes it"):
        prepare("job:computed", origin=origin)
    assert prepare("job:computed", options={"size": 1}, origin=origin).submission.spec.name == "other"


class Server:
    """Keeps what a client was asked to do."""

    def __init__(self, answers: int | None = None) -> None:
        self.blobs: list[str] = []
        self.asked = 0
        self.answers = answers

    def has_blob(self, sha256: str) -> bool:
        return sha256 in self.blobs

    def put_blob(self, sha256: str, source: Path) -> None:
        assert source.is_file()
        self.blobs.append(sha256)

    def ensure_many(self, submissions: list[Submission]) -> list[Ensured]:
        self.asked += 1
        count = len(submissions) if self.answers is None else self.answers
        return [Ensured(gang=f"g-{i}", token="t", created=True, state=GangState.QUEUED) for i in range(count)]


def test_an_archive_is_uploaded_once_and_all_gangs_asked_for_at_once(origin: Origin) -> None:
    server: Any = Server()
    made = prepare_many("other:evaluate", [{}, {}], origin=origin)
    assert [e.gang for e in submit(server, made)] == ["g-0", "g-1"]
    submit(server, made)
    assert (len(server.blobs), server.asked) == (1, 2)


def test_a_missing_answer_is_not_taken_for_one(origin: Origin) -> None:
    server: Any = Server(answers=1)
    with pytest.raises(Bug, match="1 gangs for 2 submissions"):
        submit(server, prepare_many("other:evaluate", [{}, {}], origin=origin))


@pytest.mark.parametrize(("text", "name"), [
    ("train", "train"), ("_private", "private"), ("a b/c", "a-b-c"), ("__", "gang"), ("x" * 80, "x" * 63)])
def test_names_are_made_fit(text: str, name: str) -> None:
    assert default_name(text) == name


def test_an_unwritable_home_is_told(origin: Origin, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Rejected, match="set GANGLINE_HOME"):
        prepare("other:evaluate", origin=Origin(search=origin.search, home=tmp_path / "file"))


def test_importing_gangline_loads_nothing_of_it() -> None:
    code = ("import sys; before = set(sys.modules); import gangline; "
            "print(*sorted({m.split('.')[0] for m in set(sys.modules) - before} - sys.stdlib_module_names), "
            "len([m for m in sys.modules if m.startswith('gangline')]))")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["gangline", "1"]


def test_every_public_name_is_there_and_the_decorator_loads_no_http() -> None:
    code = ("import sys, gangline; gangline.clustered; "
            "assert 'httpx' not in sys.modules and 'click' not in sys.modules; "
            "[getattr(gangline, name) for name in gangline.__all__]")
    subprocess.run([sys.executable, "-c", code], check=True)
