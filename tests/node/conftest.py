"""Labs of several kinds; see `node_lab`."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from node_lab import Lab, end_template, open_lab

_GANGS = itertools.count(1)


@pytest.fixture(scope="session")
def template_socket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A template without torch for the whole run."""
    path = tmp_path_factory.mktemp("t") / "t.sock"
    yield path
    end_template(path)


@pytest.fixture(params=["warm", "cold, no group"])
def lab(request: pytest.FixtureRequest, tmp_path: Path, template_socket: Path) -> Iterator[Lab]:
    """A lab of one's own, for tests that end supervisors; with and without template and control groups."""
    yield from open_lab(tmp_path, template_socket, request.param)


@pytest.fixture
def warm_lab(tmp_path: Path, template_socket: Path) -> Iterator[Lab]:
    yield from open_lab(tmp_path, template_socket, "warm")


@pytest.fixture
def cold_lab(tmp_path: Path) -> Iterator[Lab]:
    yield from open_lab(tmp_path, tmp_path, "cold")


@pytest.fixture(scope="session", params=["cold", "warm, no group"])
def long_lived_lab(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory,
                   template_socket: Path) -> Iterator[Lab]:
    for lab in open_lab(tmp_path_factory.mktemp("shared"), template_socket, request.param):
        lab.supervisor()
        yield lab


@pytest.fixture
def shared(long_lived_lab: Lab) -> Iterator[Lab]:
    """A lab with one supervisor, n1, for tests that leave it alive."""
    yield long_lived_lab
    if not long_lived_lab.script.running:
        long_lived_lab.script.start()
    long_lived_lab.script.order("n1")


@pytest.fixture
def gang() -> str:
    """A name no other test has."""
    return f"g-{next(_GANGS)}"
