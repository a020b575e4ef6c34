"""How jobs ended, kept in the server's home: Ray forgets an actor's words with the actor."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import TypedDict

_KEPT = 1000


class Ending(TypedDict):
    """What is remembered of a job that is over."""

    id: str
    nodes: list[str]
    text: str
    log: str


class Endings:
    """A folder with one file for each of the latest jobs that are over."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def get(self, name: str) -> Ending | None:
        try:
            ending: Ending = json.loads((self._folder / f"{name}.json").read_text())
        except (OSError, ValueError):
            return None
        return ending

    def put(self, name: str, ending: Ending) -> None:
        temporary = self._folder / f"{name}.{os.getpid()}.tmp"
        temporary.write_text(json.dumps(ending))
        os.replace(temporary, self._folder / f"{name}.json")
        self._forget()

    def _forget(self) -> None:
        files = list(self._folder.glob("*.json"))
        if len(files) > 2 * _KEPT:
            for old in sorted(files, key=lambda file: file.stat().st_mtime)[:-_KEPT]:
                with contextlib.suppress(FileNotFoundError):  # another envoy of this home forgets too
                    old.unlink()
