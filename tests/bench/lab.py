"""What the benchmarks share: progress on stderr, and one private fleet for all that need one."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
import time
import uuid
from collections.abc import Mapping
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil

RANKS = Path(__file__).parent / "ranks"
PATIENCE_S = 120.0
_HOLD_S = 20.0
_FLEET = """
pools:
  - {name: bench, gpu: "H100:8", fabric: ib-1, zone: z1, min: 4, max: 4, emulated: true}
"""


class Fleet:
    """Four emulated nodes with their own embedded server, in a home of their own."""

    def __init__(self, home: Path) -> None:
        import gangline

        self.home = home
        self.client = gangline.connect(home=home)

    def submit(self, target: str | Mapping[str, Any], args: Mapping[str, Any] | None = None,
               **options: Any) -> tuple[str, str]:
        """The gang and its token; `target` is found in the folder `ranks`."""
        from gangline.client.submission import Origin, prepare, submit

        shape = {"size": 4, "gpu": "H100:8", "ranks_per_node": 2, "grace": "1s",
                 "retries": {"user": 0, "hardware": 0, "lost": 0}}
        origin = Origin(slot=f"bench/{uuid.uuid4().hex}", home=self.home, base=RANKS, search=(RANKS,))
        prepared = prepare(target, args, options=shape | options, origin=origin)
        ensured = submit(self.client, [prepared])[0]
        return ensured.gang, ensured.token

    def run(self, target: str | Mapping[str, Any], args: Mapping[str, Any] | None = None,
            **options: Any) -> Any:
        """Rank 0's result, once the gang has succeeded."""
        from gangline.client.run import failed
        from gangline.model.states import GangState

        view = self.until_final(*self.submit(target, args, **options))
        if view.state is not GangState.SUCCEEDED:
            raise failed(view)
        return view.result

    def until_final(self, gang: str, token: str) -> Any:
        deadline, cursor = time.monotonic() + PATIENCE_S, 0
        while time.monotonic() < deadline:
            news = self.client.watch(gang, token, cursor, _HOLD_S)
            if news.view.state.final:
                return news.view
            cursor = news.cursor
        raise TimeoutError(f"gang {gang} is {self.client.observe(gang).state} after {PATIENCE_S:.0f} s")

    def stop(self) -> None:
        """End the server, its nodes and all they run; what does not leave by itself is killed."""
        try:
            self.client.stop(force=True)
        finally:
            self.client.close()
            _, left = psutil.wait_procs(self._processes(), timeout=15)
            for process in left:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()

    def _processes(self) -> list[psutil.Process]:
        home = str(self.home)
        return [process for process in psutil.process_iter(["cmdline"])
                if any(home in word for word in process.info["cmdline"] or ()) and process.pid != os.getpid()]


class Lab:
    """The place and the helpers of one run of the bench; leaving it leaves nothing behind."""

    def __init__(self, rounds: int) -> None:
        self.rounds = rounds
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None,
                 trace: TracebackType | None) -> None:
        self._stack.close()

    def say(self, text: str) -> None:
        """Progress for a person."""
        print(text, file=sys.stderr, flush=True)

    @cached_property
    def folder(self) -> Path:
        """A folder with a short name: a unix socket's path has to fit into 108 bytes."""
        path = Path(tempfile.mkdtemp(prefix="glb-", dir="/tmp"))
        self._stack.callback(shutil.rmtree, path, ignore_errors=True)
        return path

    @cached_property
    def fleet(self) -> Fleet:
        """The fleet, started when first asked for, with its torch template in place."""
        home = self.folder / "home"
        home.mkdir(mode=0o700)
        (home / "fleet.yaml").write_text(_FLEET)
        os.environ["GANGLINE_HOME"] = str(home)
        for name in ("GANGLINE_URL", "GANGLINE_PRELOAD"):
            os.environ.pop(name, None)
        began_s = time.monotonic()
        self.say("fleet: starting 4 emulated nodes")
        fleet = Fleet(home)
        self._stack.callback(fleet.stop)
        fleet.run("rank_work:first_line", {"folder": str(self.marks())})
        self.say(f"fleet: up, with a first gang run, after {time.monotonic() - began_s:.1f} s")
        return fleet

    def marks(self) -> Path:
        """A fresh folder for what ranks leave."""
        path = self.folder / f"marks-{uuid.uuid4().hex[:8]}"
        path.mkdir()
        return path


def read_marks(folder: Path, count: int, *, within_s: float = PATIENCE_S) -> dict[int, int]:
    """The number each rank left, by rank, as soon as all of them are there."""
    deadline = time.monotonic() + within_s
    while True:
        found = {int(path.name): path.read_text() for path in folder.iterdir() if path.name.isdigit()}
        if len(found) == count and all(found.values()):
            return {rank: int(text) for rank, text in sorted(found.items())}
        if time.monotonic() > deadline:
            raise TimeoutError(f"{len(found)} of {count} ranks left their mark within {within_s:.0f} s")
        time.sleep(0.01)
