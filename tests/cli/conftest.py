"""A home of its own for every test, and the command run in this process or as a program."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cli_views import SOURCE_ROOT

from gangline.cli.app import run_cli


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "home"
    monkeypatch.setenv("GANGLINE_HOME", str(home))
    for name in ("GANGLINE_URL", "GANGLINE_TOKEN", "GANGLINE_TOKEN_FILE", "GANGLINE_DEBUG"):
        monkeypatch.delenv(name, raising=False)
    return home


Done = tuple[int, str, str]


@pytest.fixture
def gl(home: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., Done]:
    """Run a command line here: (exit status, stdout, stderr)."""

    def run(*argv: str) -> Done:
        capsys.readouterr()
        status = run_cli(argv)
        said = capsys.readouterr()
        return status, said.out, said.err

    return run


@pytest.fixture
def program(home: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start a command line as a program; what a test leaves running is killed."""
    started: list[subprocess.Popen[str]] = []

    def start(*argv: str, **options: object) -> subprocess.Popen[str]:
        environment = {**os.environ, "PYTHONPATH": SOURCE_ROOT, "PYTHONUNBUFFERED": "1"}
        process = subprocess.Popen([sys.executable, "-m", "gangline.cli", *argv], text=True, env=environment,
                                   **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options})
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()
