from __future__ import annotations

import sys
from pathlib import Path

import pytest

from gangline.client.code import locate
from gangline.client.source import read_source
from gangline.model.errors import NotFound, Rejected

TRAIN = '''
import os
from math import sqrt
import gangline

print("imported")  # must never show: nothing here is run

@gangline.clustered(size=2)
def train(lr: float, *, steps=10):
    return lr

if os.environ.get("X"):
    def guarded(): ...
else:
    def other(): ...

alias = train

async def later(): ...

class Model:
    @staticmethod
    def fit(): ...
'''


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "pkg" / "deep").mkdir(parents=True)
    (tmp_path / "pkg" / "__init__.py").write_text("raise RuntimeError('parents must not be imported')\n")
    (tmp_path / "pkg" / "deep" / "job.py").write_text("def run(a, b=1): ...\n")  # deep/ is a namespace
    (tmp_path / "train.py").write_text(TRAIN)
    return tmp_path


def test_text_is_found_without_importing(project: Path) -> None:
    before = set(sys.modules)
    code = locate("pkg.deep.job:run", [project])
    assert (code.reference, code.root) == ("pkg.deep.job:run", project)
    assert not {name for name in set(sys.modules) - before if name.partition(".")[0] == "pkg"}


@pytest.mark.parametrize("name", ["train", "guarded", "other", "alias", "sqrt", "Model.fit"])
def test_names_a_module_may_bind(project: Path, name: str) -> None:
    assert locate(f"train:{name}", [project]).root == project


@pytest.mark.parametrize(("text", "message"), [
    ("train:trian", "no function trian in train.py (did you mean train?)"),
    ("train:nothing_like_it", "no function nothing_like_it in train.py (it defines guarded, other, train)"),
    ("train:Model.fix", "no function Model.fix in train.py (did you mean fit?)"),
    ("trian:train", "did you mean train?"),
    ("pkg.deep.jop:run", "did you mean pkg.deep.job?"),
    ("pkg.dep.job:run", "no module pkg.dep.job"),
])
def test_missing_names_say_what_was_found_nearby(project: Path, text: str, message: str) -> None:
    with pytest.raises(NotFound) as caught:
        locate(text, [project])
    assert message in str(caught.value)


@pytest.mark.parametrize(("text", "message"), [
    ("train:Model", "is a class"),
    ("train:later", "is an async function"),
    ("train", "write package.module:function"),
    ("train:", "write package.module:function"),
    ("../x:f", "write package.module:function"),
])
def test_text_that_is_no_function(project: Path, text: str, message: str) -> None:
    with pytest.raises(Rejected) as caught:
        locate(text, [project])
    assert message in str(caught.value)


def test_a_file_that_is_not_python_is_named_with_its_line(project: Path) -> None:
    (project / "broken.py").write_text("x = 1\ndef f(:\n")
    with pytest.raises(Rejected, match=r"broken.py line 2"):
        locate("broken:f", [project])


def test_installed_modules_need_no_root() -> None:
    assert locate("json:dumps").root is None
    assert locate("pytest:main").root is None
    assert locate("time:sleep").root is None  # built in: there is no file to check


def test_arguments_are_checked_by_the_signature(project: Path) -> None:
    source = read_source(project / "train.py")
    source.check_call("train", {"lr": 1, "steps": 2})
    with pytest.raises(Rejected, match=r"takes no argument 'step'.*did you mean steps"):
        source.check_call("train", {"lr": 1, "step": 2})
    with pytest.raises(Rejected, match="needs the argument 'lr'"):
        source.check_call("train", {})
    source.check_call("alias", {"whatever": 1})  # not a definition: nothing is known of it
