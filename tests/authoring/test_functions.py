"""References of function objects, however the host program loaded their module."""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import gangline.model
from gangline.client.code import locate
from gangline.model.errors import Rejected


def load(path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Load a file as a host does that does not go through the import path."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)
    spec.loader.exec_module(module)
    return module


def write(path: Path, text: str = "def train(): ...\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_a_module_on_the_path_keeps_its_name() -> None:
    code = locate(write)
    assert code.reference == "test_functions:write"
    assert code.root == Path(__file__).parent


def test_an_airflow_dag_file_maps_back_to_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dag = write(tmp_path / "dags" / "my_dag.py")
    module = load(dag, f"unusual_prefix_{'a1' * 20}_my_dag", monkeypatch)
    monkeypatch.chdir("/")
    code = locate(module.train)
    assert (code.reference, code.root) == ("my_dag:train", tmp_path / "dags")


def test_an_airflow_dag_file_in_a_subfolder_uses_the_folder_airflow_imports_from(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dag = write(tmp_path / "dags" / "team" / "my_dag.py")
    monkeypatch.syspath_prepend(str(tmp_path / "dags"))
    module = load(dag, f"unusual_prefix_{'0f' * 20}_my_dag", monkeypatch)
    code = locate(module.train)
    assert (code.reference, code.root) == ("team.my_dag:train", tmp_path / "dags")


def test_an_airflow_dag_file_in_a_package_uses_its_dotted_name(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "dags" / "team" / "__init__.py", "")
    dag = write(tmp_path / "dags" / "team" / "my_dag.py")
    module = load(dag, f"unusual_prefix_{'9c' * 20}_my_dag", monkeypatch)
    code = locate(module.train)
    assert (code.reference, code.root) == ("team.my_dag:train", tmp_path / "dags")


def test_a_dagster_file_location(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = load(write(tmp_path / "defs.py"), "defs", monkeypatch)
    assert locate(module.train).root == tmp_path
    assert locate(module.train).reference == "defs:train"


def test_a_namespace_package_on_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "space" / "job.py")
    monkeypatch.syspath_prepend(str(tmp_path))
    import importlib

    try:
        module = importlib.import_module("space.job")
        code = locate(module.train)
    finally:
        sys.modules.pop("space.job", None)
        sys.modules.pop("space", None)
    assert (code.reference, code.root) == ("space.job:train", tmp_path)


def test_lambdas_closures_methods_and_others_are_refused() -> None:
    def nested() -> None: ...

    class Trainer:
        def fit(self) -> None: ...

    async def later() -> None: ...

    for target, message in [
        (lambda: 0, "a lambda has no name"),
        (nested, "nested is defined inside"),
        (Trainer().fit, "is a method"),
        (functools.partial(write), "is a partial, not a function"),
        (len, "is a builtin_function_or_method, not a function"),
        (Trainer, "is a type, not a function"),
    ]:
        with pytest.raises(Rejected) as caught:
            locate(target)
        assert message in str(caught.value)
        assert caught.value.fix


def test_a_decorator_without_wraps_is_explained() -> None:
    def decorate(fn: object) -> object:
        def wrapper() -> None: ...
        return wrapper

    with pytest.raises(Rejected, match=r"functools\.wraps"):
        locate(decorate(write))  # type: ignore[arg-type]


def test_functions_made_by_exec_have_no_file() -> None:
    space = {"__name__": "nowhere"}
    exec("def made(): ...", space)
    with pytest.raises(Rejected, match="notebook, an interactive session or by exec"):
        locate(space["made"])  # type: ignore[arg-type]


def test_a_generator_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = load(write(tmp_path / "gen.py", "def train():\n    yield 1\n"), "gen", monkeypatch)
    with pytest.raises(Rejected, match="is a generator"):
        locate(module.train)


def test_a_file_whose_name_cannot_be_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = load(write(tmp_path / "train-v2.py"), "train-v2", monkeypatch)
    with pytest.raises(Rejected, match="rename it"):
        locate(module.train)


MAIN = """
import json, sys
from gangline.client.code import locate
from gangline.model.errors import Rejected

def train(): ...

{guard}
    try:
        code = locate(train)
        print(json.dumps([code.reference, str(code.root)]))
    except Rejected as error:
        print(json.dumps(str(error)))
"""


SOURCE_ROOT = str(Path(gangline.model.__file__).parents[2])  # absolute, since these change directory


def run_main(argv: list[str], cwd: Path) -> object:
    done = subprocess.run([sys.executable, *argv], cwd=cwd, capture_output=True, text=True, check=True,
                          env={**os.environ, "PYTHONPATH": SOURCE_ROOT})
    return json.loads(done.stdout)


def test_main_maps_to_its_file_wherever_it_is_started(tmp_path: Path) -> None:
    write(tmp_path / "job" / "train.py", MAIN.format(guard='if __name__ == "__main__":'))
    expected = ["train:train", str(tmp_path / "job")]
    assert run_main([str(tmp_path / "job" / "train.py")], Path("/")) == expected
    assert run_main(["train.py"], tmp_path / "job") == expected


def test_main_of_dash_m_keeps_its_dotted_name(tmp_path: Path) -> None:
    write(tmp_path / "job" / "__init__.py", "")
    write(tmp_path / "job" / "train.py", MAIN.format(guard='if __name__ == "__main__":'))
    assert run_main(["-m", "job.train"], tmp_path) == ["job.train:train", str(tmp_path)]


def test_a_script_that_would_submit_when_imported_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "train.py", MAIN.format(guard="if True:"))
    said = run_main(["train.py"], tmp_path)
    assert "would submit again on every rank" in str(said)


def test_a_notebook_is_refused(tmp_path: Path) -> None:
    text = "def train(): ...\nfrom gangline.client.code import locate\nlocate(train)\n"
    done = subprocess.run([sys.executable, "-"], input=text, capture_output=True, text=True,
                          check=False)
    assert "has no source file: it was made in a notebook" in done.stderr
