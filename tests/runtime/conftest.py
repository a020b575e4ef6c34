"""A supervisor to talk to, and ranks to talk to it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from fake_supervisor import FakeSupervisor

from gangline.runtime import link

HERE = Path(__file__).parent
_OURS = ("GANGLINE_", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")


@pytest.fixture(autouse=True)
def outside_a_gang(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in [n for n in os.environ if n.startswith(_OURS)]:
        monkeypatch.delenv(name)
    yield
    for opened in link._links.values():
        opened.close()
    link._links.clear()


@pytest.fixture
def supervise(tmp_path: Path) -> Iterator[Callable[..., FakeSupervisor]]:
    """Start a supervisor of an attempt: supervise(world_size, {mount: volume})."""
    from contextlib import ExitStack

    with ExitStack() as running:
        def start(world_size: int = 1, mounts: dict[str, str] | None = None, **kw: Any) -> FakeSupervisor:
            fake = FakeSupervisor(tmp_path, world_size, {"/ckpt": "sft"} if mounts is None else mounts, **kw)
            return running.enter_context(fake.serving())
        yield start


@pytest.fixture
def be_rank(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Make this process a rank of the supervisor's attempt."""
    def be(fake: FakeSupervisor, rank: int = 0, **kw: Any) -> None:
        for name, value in (fake.info(**kw) | {"RANK": str(rank), "LOCAL_RANK": str(rank)}).items():
            monkeypatch.setenv(name, value)
    return be


@dataclass
class Ran:
    exits: list[int]
    results: list[Any]


class Template:
    """A process that forks ranks; see rank_template."""

    def __init__(self, *args: str) -> None:
        self.process = subprocess.Popen([sys.executable, str(HERE / "rank_template.py"), *args],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        env=os.environ | {"OMP_NUM_THREADS": "1"})
        assert self._line() == "ready\n"

    def run(self, body: str, fake: FakeSupervisor, world: int, results: Path, **args: Any) -> Ran:
        env = fake.info(world_size=world)
        return self.run_as(body, [env | {"RANK": str(r), "LOCAL_RANK": str(r)} for r in range(world)],
                           results, **args)

    def run_as(self, body: str, ranks: list[dict[str, str]], results: Path, **args: Any) -> Ran:
        results.mkdir()
        request = {"body": body, "args": args, "ranks": ranks, "results": str(results)}
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        exits = json.loads(self._line())["exits"]
        files = [results / f"{rank}.json" for rank in range(len(ranks))]
        return Ran(exits, [json.loads(f.read_text()) if f.exists() else None for f in files])

    def close(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait(60)

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()


@pytest.fixture(scope="session")
def template() -> Iterator[Template]:
    started = Template()
    yield started
    started.close()


@pytest.fixture(scope="session")
def torch_template() -> Iterator[Template]:
    pytest.importorskip("torch")
    started = Template("torch")
    yield started
    started.close()
