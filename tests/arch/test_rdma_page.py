"""The page about RDMA explains every finding that the code can make."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROOM = ROOT / "core" / "gangline" / "fabric"
PAGE = (ROOT / "docs" / "rdma.md").read_text()
WORD = r'"([a-z]+(?:-[a-z]+)+|undone|unread)"'
CODE = re.compile(r"(?:finding\(|_fail\(|_differs\(views, |code=|^    \()\s*" + WORD, re.MULTILINE)


def made() -> set[str]:
    folders = (ROOM / "detection", ROOM / "environment")
    files = [*(path for folder in folders for path in folder.rglob("*.py")), ROOM / "asking.py", ROOM / "sandbox.py"]
    return {code for path in files for code in CODE.findall(path.read_text())}


def test_every_finding_is_explained_and_none_is_made_up() -> None:
    table = PAGE[PAGE.index("| code | meaning |"):PAGE.index("## The environment")]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("|")]
    explained = {code for row in rows for code in re.findall(r"`([a-z-]+)`", row)}
    assert len(made()) > 50
    assert explained == made()
