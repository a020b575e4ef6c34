"""Functions and files stay small enough to be read in one go."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MOST_FUNCTION_LINES = 70
MOST_FILE_LINES = 400
FILES = sorted(path for room in ("core", "dagster_plugin", "airflow_provider") for path in (ROOT / room).rglob("*.py"))


def too_long(path: Path) -> list[str]:
    """What of a file is over the limits, one line each."""
    source = path.read_text()
    lines = source.count("\n")
    found = [f"the file has {lines} lines"] if lines > MOST_FILE_LINES else []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            # Decorators count: they are read with the function.
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            length = (node.end_lineno or node.lineno) - first + 1
            if length > MOST_FUNCTION_LINES:
                found.append(f"{node.name} has {length} lines")
    return found


def test_there_is_something_to_measure() -> None:
    assert len(FILES) > 100


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_nothing_is_too_long(path: Path) -> None:
    assert too_long(path) == []


def test_the_measure_sees_what_is_too_long(tmp_path: Path) -> None:
    long = tmp_path / "long.py"
    long.write_text("@f\ndef g():\n" + "    x = 1\n" * 69 + "y = 2\n" * 400)
    assert too_long(long) == ["the file has 471 lines", "g has 71 lines"]
